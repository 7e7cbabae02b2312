"""Preferences of data owners: the sharing seed's examples, and the definition read independently."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.people import HOME, Person, alice, bob, john, mary
from policy.written import preference_of
from tidegate import topics
from tidegate.errors import ConfigError, MalformedPacket
from tidegate.policy.outcome import Refuse
from tidegate.policy.preferences import Granted, Preference, Preferences, Undecided
from tidegate.policy.subject import attributes_of
from tidegate.policy.views import ALL, NOTHING, View
from tidegate.predicate import PredicateFailed, compile

TOPIC = "tr1/performance/ts1/speed"
NOW = 1e9


def pref(id: str, user: str = "mary", topic: str = "+/performance/ts1/+", **more: Any) -> Preference:
    return preference_of(id=id, user=user, topic=topic, **more)


gym = Preferences(
    [
        pref("up1", when="s.role == 'coach' && s.user == 'alice'"),
        pref("up2", to="analyzer", when="false"),
        pref("up3", user="bob", to="remotegym", when="false"),
    ],
    domain=HOME,
)
analyzer = Person(kind="link", client="gym->analyzer", scope="gym")
remote = Person(kind="link", client="gym->remotegym", scope="gym")

# -- the sharing seed ------------------------------------------------------------------------------------------------


def test_sharing_example_5_only_alice_receives_marys_data() -> None:
    applicable = gym.receiving("mary", HOME, TOPIC)
    assert applicable.decide(alice, {}) == Granted(("up1",), ALL)
    for other in (john, bob, mary):
        assert applicable.decide(other, {}) == Refuse("up1")


def test_sharing_example_5_only_for_the_session_it_speaks_of() -> None:
    assert gym.receiving("mary", HOME, "tr1/performance/ts2/speed").decide(bob, {}) == Granted()


def test_sharing_example_7_forwarding() -> None:
    assert gym.forwarding("mary", HOME, TOPIC, "analyzer").decide(analyzer, {}) == Refuse("up2")
    assert gym.forwarding("mary", HOME, TOPIC, "remotegym").decide(remote, {}) == Granted()
    assert gym.forwarding("bob", HOME, TOPIC, "remotegym").decide(remote, {}) == Refuse("up3")


def test_sharing_example_8_mary_sees_bobs_data_but_not_he_hers() -> None:
    assert gym.receiving("bob", HOME, TOPIC).decide(mary, {}) == Granted()
    assert gym.receiving("mary", HOME, TOPIC).decide(bob, {}) == Refuse("up1")
    assert gym.forwarding("bob", HOME, TOPIC, "analyzer").decide(analyzer, {}) == Granted()


def test_sharing_example_9_it_binds_in_the_other_gym_too() -> None:
    travelled = Preferences.decode(cbor2.loads(cbor2.dumps(gym.applicable("mary", HOME, TOPIC).encode())))
    there = travelled.receiving("mary", HOME, TOPIC)
    assert there.decide(replace(alice, node="remotegym"), {}) == Granted(("up1",), ALL)
    assert there.decide(replace(john, node="remotegym"), {}) == Refuse("up1")
    # an alice of another organisation is somebody else
    assert there.decide(replace(alice, domain="othergym"), {}) == Refuse("up1")


def test_sharing_introduction_the_owner_hides_identifying_parts() -> None:
    owner = Preferences(
        [
            pref("all", when="s.node == 'mygym'"),
            pref("some", when="s.node != 'mygym'", keep=["/speed", "/length"]),
        ],
        domain=HOME,
    ).receiving("mary", HOME, TOPIC)
    assert owner.decide(bob, {}) == Granted(("all",), ALL)
    assert owner.decide(replace(bob, node="remotegym"), {}) == Granted(("some",), View.parse(["/speed", "/length"]))


# -- the rest of the definition --------------------------------------------------------------------------------------


def test_naming_a_scope_replaces_any() -> None:
    made = Preferences([pref("any", to="*", when="false"), pref("brand", to="brand")], domain=HOME)
    assert made.forwarding("mary", HOME, TOPIC, "brand").decide(remote, {}) == Granted(("brand",), ALL)
    assert made.forwarding("mary", HOME, TOPIC, "analyzer").decide(remote, {}) == Refuse("any")
    assert made.receiving("mary", HOME, TOPIC).decide(bob, {}) == Granted()
    strict = Preferences([pref("any", to="*"), pref("brand", to="brand", when="false")], domain=HOME)
    assert strict.forwarding("mary", HOME, TOPIC, "brand").decide(remote, {}) == Refuse("brand")
    # one that names the scope, but is about other topics, replaces nothing here
    other = Preferences([pref("any", to="*", when="false"), pref("brand", to="brand", topic="x")], domain=HOME)
    assert other.forwarding("mary", HOME, TOPIC, "brand").decide(remote, {}) == Refuse("any")


def test_messages_without_owner_and_of_another_domain() -> None:
    assert gym.receiving(None, HOME, TOPIC).decide(bob, {}) == Granted()
    assert gym.receiving("mary", "othergym", TOPIC).decide(bob, {}) == Granted()


def test_errors_count_as_false_and_are_told() -> None:
    made = Preferences([pref("bad", when="s.nothing == 1"), pref("good", when="s.user == 'bob'")], domain=HOME)
    granted = made.receiving("mary", HOME, TOPIC).decide(bob, {})
    assert isinstance(granted, Granted)
    assert granted.rules == ("good",)
    assert [id for id, _ in granted.errors] == ["bad"]
    refused = made.receiving("mary", HOME, TOPIC).decide(alice, {})
    assert isinstance(refused, Refuse)
    assert refused.rule == "bad, good"
    assert refused.error is not None
    assert refused.error.startswith("bad: ")


def test_what_is_left_reads_the_message_only() -> None:
    made = Preferences([pref("slow", when="s.role == 'coach' && o.payload.speed < 10")], domain=HOME)
    applicable = made.receiving("mary", HOME, TOPIC)
    assert applicable.decide(bob, {}) == Refuse("slow")
    answer = applicable.decide(alice, {})
    assert isinstance(answer, Undecided)
    assert answer.reads == {"o.payload.speed"}
    assert answer.residual({"o": {"payload": {"speed": 5}}}) == Granted(("slow",), ALL)
    assert answer.residual({"o": {"payload": {"speed": 15}}}) == Refuse("slow")
    failed = answer.residual({"o": {}})
    assert isinstance(failed, Refuse)
    assert failed.error


def test_what_is_kept_waits_for_conditions_that_are_open() -> None:
    made = Preferences([pref("some", keep=["/speed"]), pref("more", when="o.size < 9", keep=["/length"])], domain=HOME)
    answer = made.receiving("mary", HOME, TOPIC).decide(bob, {})
    assert isinstance(answer, Undecided)
    assert answer.residual({"o": {"size": 1}}) == Granted(("some", "more"), View.parse(["/speed", "/length"]))
    assert answer.residual({"o": {"size": 10}}) == Granted(("some",), View.parse(["/speed"]))


def test_the_receiver_is_named_by_the_owners_domain_to_the_end() -> None:
    """Also by what is left, to which the node gives its own `s`, in which its own alice is `alice`."""
    made = Preferences([pref("odd", when="s[o.payload.name] == 'alice'")], domain="othergym")
    answer = made.receiving("mary", "othergym", TOPIC).decide(alice, {})
    assert isinstance(answer, Undecided)
    env = {"o": {"payload": {"name": "user"}}, "s": attributes_of(alice, HOME)}
    assert answer.residual(env) == Refuse("odd")


def test_kin() -> None:
    assert gym.cache_key("mary", HOME) != gym.cache_key("bob", HOME)
    assert gym.cache_key("zoe", HOME) == gym.cache_key(None, HOME) == gym.cache_key("mary", "othergym")
    assert gym.reads == {"s.role", "s.user"}
    assert len(gym) == 3


# -- against an independent reading ----------------------------------------------------------------------------------

CONDITIONS = [
    None,
    "true",
    "false",
    "s.user == 'alice'",
    "s.zone == 1",
    "o.size > 3",
    "o.payload.v == p.user",
    "has(s.user)",
]
compiled = {text: None if text is None else compile(text) for text in CONDITIONS}
preferences = st.builds(
    lambda user, topic, to, when, keep, denies, expires: Preference(
        id="",
        user=user,
        topic=topic,
        to=to,
        when=compiled[when],
        text=when,
        keep=ALL if denies else keep,
        denies=denies,
        expires=expires,
    ),
    st.sampled_from(["mary", "bob"]),
    st.sampled_from(["#", "a/#", "a/b", "b"]),
    st.sampled_from([None, None, "R", "*"]),
    st.sampled_from(CONDITIONS),
    st.sampled_from([ALL, View.parse(["/x"]), View.parse(["/y", "/z"])]),
    st.sampled_from([False, False, True]),
    st.sampled_from([None, None, NOW - 1, NOW + 1]),
)
sets = st.lists(preferences, max_size=6).map(lambda all: [replace(each, id=f"u{n}") for n, each in enumerate(all)])
receivers = st.builds(
    Person,
    user=st.sampled_from([None, "alice", "bob", "mary"]),
    domain=st.sampled_from([HOME, "othergym"]),
    attributes=st.sampled_from([{}, {"zone": 1}]),
)
messages = st.fixed_dictionaries(
    {
        "o": st.sampled_from([{"size": 1}, {"size": 9, "payload": {"v": "mary"}}, {"size": 9, "payload": {"v": 1}}]),
        "p": st.sampled_from([{}, {"user": "mary"}]),
        "e": st.just({}),
    }
)


def straightforward(
    all: list[Preference], owner: str, topic: str, to: str | None, env: dict[str, Any]
) -> tuple[bool, View, set[str]]:
    """Whether the owner agrees, to what, and by which: read off semantics.md."""
    mine = [each for each in all if each.user == owner and topics.matches(each.topic, topic)]
    mine = [each for each in mine if each.expires is None or each.expires > NOW]
    places = (None,) if to is None else (to, "*")
    for (
        each
    ) in mine:  # "whose condition is true or fails forbids, whatever other preferences allow, except to the owner"
        if each.denies and each.to in places and env["s"].get("user") != owner:
            try:
                if each.when is None or each.when(env):
                    return False, NOTHING, {each.id}
            except PredicateFailed:
                return False, NOTHING, {each.id}
    mine = [each for each in mine if not each.denies]
    if to is None:
        mine = [each for each in mine if each.to is None]
    else:
        naming = [each for each in mine if each.to == to]
        mine = naming if naming else [each for each in mine if each.to == "*"]
    if not mine:
        return True, ALL, set()
    true = []
    for each in mine:
        try:
            if each.when is None or each.when(env):
                true.append(each)
        except PredicateFailed:
            pass
    view = NOTHING
    for each in true:
        view |= each.keep
    return bool(true), view, {each.id for each in true}


@given(
    sets,
    st.sampled_from(["mary", "bob", "zoe"]),
    st.sampled_from(["a", "a/b", "b", "c"]),
    st.sampled_from([None, "R", "Q"]),
    receivers,
    messages,
    st.sets(st.sampled_from(["o", "p", "e"])),
)
def test_partial_then_the_rest_is_the_straightforward_decision(
    all: list[Preference],
    owner: str,
    topic: str,
    to: str | None,
    receiver: Person,
    message: dict[str, Any],
    roots: set[str],
) -> None:
    agrees, view, rules = straightforward(all, owner, topic, to, {**message, "s": attributes_of(receiver, HOME)})
    made = Preferences(all, domain=HOME)
    for each in (made, Preferences.decode(made.encode())):
        if to is None:
            applicable = each.receiving(owner, HOME, topic, now=NOW)
        else:
            applicable = each.forwarding(owner, HOME, topic, to, now=NOW)
        answer = applicable.decide(receiver, {root: message[root] for root in roots})
        if isinstance(answer, Undecided):
            assert answer.reads
            answer = answer.residual({**message, "s": attributes_of(receiver, HOME)})
        assert isinstance(answer, Granted) is agrees
        if isinstance(answer, Granted):
            assert answer.view == view
            assert set(answer.rules) <= rules
            assert bool(answer.rules) == bool(rules)


def test_what_a_person_says_of_a_device_forbids_nothing_to_the_person() -> None:
    denies = pref("no", user="scale", topic="#", denies=True)
    for owner in (None, "m1"):
        made = Preferences([replace(denies, person=("mary", owner))], domain=HOME)
        applicable = made.receiving("scale", HOME, "a")
        assert applicable.decide(replace(mary, identity="m1"), {}) == Granted()
        for other in (bob, replace(bob, user="scale"), replace(mary, domain="othergym", identity="m1")):
            assert applicable.decide(other, {}) == Refuse("no")
        travelled = Preferences.decode(made.encode()).receiving("scale", HOME, "a")
        assert travelled.decide(bob, {}) == Refuse("no")


# -- loading and travelling ------------------------------------------------------------------------------------------


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ConfigError, match="two preferences"):
        Preferences([pref("a"), pref("a")])
    with pytest.raises(ConfigError, match="placeholder"):
        pref("a", topic="{s.user}/#")
    with pytest.raises(ConfigError, match="JSON pointer"):
        pref("a", keep=["speed"])


def test_what_is_not_understood_elsewhere_counts_as_false_and_travels_on() -> None:
    data = {"domain": HOME, "preferences": [{"id": "u", "user": "mary", "topic": "#", "when": "is_enrolled(s.user)"}]}
    made = Preferences.decode(data)
    refused = made.receiving("mary", HOME, "a").decide(bob, {})
    assert isinstance(refused, Refuse)
    assert refused.error is not None
    assert "is_enrolled" in refused.error
    assert made.encode() == data


def test_a_field_that_is_not_known_makes_it_count_as_false() -> None:
    entry = {"id": "u", "user": "mary", "topic": "#", "unless": "true"}
    made = Preferences.decode({"domain": HOME, "preferences": [entry, {"id": "v", "user": "mary", "topic": "a"}]})
    refused = made.receiving("mary", HOME, "b").decide(bob, {})
    assert refused == Refuse("u", "u: `unless` is not known here")
    granted = made.receiving("mary", HOME, "a").decide(bob, {})
    assert isinstance(granted, Granted)
    assert granted.rules == ("v",)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"when": "s.kind == 'client'"},
        {"when": "s.nothing"},
        {"when": "s.user =="},
        {"owner": "m1"},
        {"unless": 1},
        {"effect": "mask"},
        {"expires": "soon"},
    ],
)
def test_one_that_denies_or_is_not_understood_forbids_to_all_but_the_owner(more: dict[str, Any]) -> None:
    entry = {"id": "no", "user": "mary", "topic": "#", "effect": "deny", **more}
    allowing = {"id": "yes", "user": "mary", "topic": "#"}
    made = Preferences.decode({"domain": HOME, "preferences": [allowing, entry]})
    applicable = made.receiving("mary", HOME, "a", more.get("owner", ""))
    for known in ({}, {"o": {}, "e": {}, "p": {}}):
        refused = applicable.decide(bob, known)
        assert isinstance(refused, Refuse)
        assert refused.rule == "no"
    assert isinstance(applicable.decide(replace(mary, domain="othergym", identity="m1"), {}), Refuse)
    owner = replace(mary, identity="m1")
    assert applicable.decide(owner, {}) == Granted(("yes",))
    alone = Preferences.decode({"domain": HOME, "preferences": [entry]})
    applicable = alone.receiving("mary", HOME, "a", more.get("owner", ""))
    assert applicable.decide(owner, {}) == Granted()
    assert isinstance(applicable.decide(bob, {}), Refuse)


def test_a_preference_survives_another_node_as_it_was() -> None:
    assert Preferences.decode(gym.encode()).encode() == gym.encode()


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"domain": 1, "preferences": []},
        {"domain": "d", "preferences": [1]},
        {"domain": "d", "preferences": [{"id": "u", "user": "mary"}]},
        {"domain": "d", "preferences": [{"id": "u", "user": "mary", "topic": "a/#/b"}]},
        {"domain": "d", "preferences": [{"id": "u", "user": "mary", "topic": "#", "to": 1}]},
        {"domain": "d", "preferences": [{"id": "u", "user": "mary", "topic": "#", "keep": [1]}]},
        {"domain": "d", "preferences": [{"id": "u", "user": "mary", "topic": "#", "keep": "some"}]},
        {"domain": "d", "preferences": [{"id": "u", "user": "mary", "topic": "#", "keep": {"/a": 1}}]},
        {"domain": "d", "preferences": [{"id": "u", "user": "mary", "topic": "#", 1: "true"}]},
        {"domain": "d", "preferences": [{"id": "u", "user": "mary", "topic": "#"}] * 2},
        {"domain": "d", "preferences": [{}] * 257},
    ],
)
def test_data_that_is_none_is_malformed(data: object) -> None:
    with pytest.raises(MalformedPacket):
        Preferences.decode(data)


def test_many_of_one_owner_share_what_they_may_cost() -> None:
    costly = "o.payload.a.exists(x, x > 100)"
    seen = {"o": {"payload": {"a": [*range(30), 101]}}, "s": {}, "e": {}, "p": {}}

    def granted(count: int) -> bool:
        rows = [Preference(id=f"u{at}", user="mary", topic="#", when=compile(costly)) for at in range(count)]
        rows.append(Preference(id="other", user="bob", topic="#", when=compile(costly)))
        when = Preferences(rows).preferences[0].when
        assert when is not None
        try:
            return when(seen)
        except PredicateFailed:
            return False

    assert granted(10)
    assert not granted(1000)
