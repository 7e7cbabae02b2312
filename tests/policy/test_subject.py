"""The attributes in `s`."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from policy.people import HOME, Person, alice, mary, stranger
from tidegate.policy.domains import shown
from tidegate.policy.subject import BUILT_IN, attributes_of, facets, frozen, paths_below
from tidegate.predicate import compile


def test_the_table_of_semantics() -> None:
    actor = Person(
        client="tr1",
        user="mary",
        level="tls",
        roles=("frequenter", "student"),
        groups=("yoga",),
        tls={"version": "TLSv1.3", "cipher": "TLS_AES_128_GCM_SHA256"},
        attributes={"enrolled": ["ts1"]},
    )
    assert attributes_of(actor, HOME) == {
        "kind": "client",
        "client": "tr1",
        "user": "mary",
        "domain": "mygymbrand",
        "scope": "gym",
        "node": "mygym",
        "level": "tls",
        "facts": (),
        "address": "127.0.0.1",
        "listener": "mqtt",
        "role": "frequenter",
        "roles": ("frequenter", "student"),
        "groups": ("yoga",),
        "tls": {"version": "TLSv1.3", "cipher": "TLS_AES_128_GCM_SHA256"},
        "enrolled": ["ts1"],
    }
    when = compile(
        "s.role == 'frequenter' && 'student' in s.roles && s.tls.version == 'TLSv1.3' && 'ts1' in s.enrolled"
    )
    assert when({"s": attributes_of(actor, HOME)}) is True


@given(st.dictionaries(st.sampled_from(sorted(BUILT_IN)) | st.text(max_size=5), st.text(max_size=3)))
def test_attributes_never_stand_in_for_a_built_in(extra: dict[str, str]) -> None:
    for actor in (stranger, mary):
        plain = attributes_of(actor, HOME)
        found = attributes_of(replace(actor, attributes={**actor.attributes, **extra}), HOME)
        for name in BUILT_IN:
            assert found.get(name) == plain.get(name)
            assert (name in found) == (name in plain)


def test_who_has_no_user_or_role_has_none() -> None:
    found = attributes_of(replace(stranger, attributes={"user": "mary", "role": "coach", "tls": {}}), HOME)
    assert not {"user", "role", "tls"} & found.keys()


def test_people_of_another_domain_appear_with_it() -> None:
    assert attributes_of(alice, HOME)["user"] == "alice"
    assert attributes_of(alice, "hospital")["user"] == "alice@mygymbrand"


users = st.sampled_from(["a", "a@x", "a@y", "a@x@y", "@", "x"])
domains = st.sampled_from(["x", "y"])


@given(users, users, domains, domains, domains)
def test_nobody_appears_as_somebody_else(a: str, b: str, x: str, y: str, here: str) -> None:
    if (a, x) != (b, y):
        assert shown(a, x, here) != shown(b, y, here)


def test_facets_tell_apart_what_predicates_tell_apart() -> None:
    assert frozen(1) != frozen(True)
    assert frozen(1) != frozen(1.0)
    assert frozen([1, {"a": [2]}]) == frozen((1, {"a": (2,)}))
    a, deep = paths_below("s", {"s.a"}), paths_below("s", {"s.a.x"})
    assert facets({"a": 1, "b": 2}, a) == facets({"a": 1, "b": 3}, a)
    assert facets({"a": {"x": 1}}, deep) != facets({"a": {}}, deep)
    assert facets({"a": None}, a) != facets({}, a)
    assert paths_below("s", {"o.a", "e.now"}) == ()
    assert facets({"a": 1}, paths_below("s", {"s"})) != facets({"a": 2}, paths_below("s", {"s"}))
