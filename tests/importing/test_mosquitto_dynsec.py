"""Mosquitto's dynamic security: the same file, the same clients, the same outcome at the real plugin."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from generated import examples
from importing.decided import allowed, rules
from importing.twins import Outcome, Person, Received, difference, mosquitto, play, tidegate
from policy.people import Person as Subject
from processes import missing
from tidegate.authentication import mosquitto_hashes
from tidegate.config import parse
from tidegate.errors import ConfigError
from tidegate.importing import Imported, dynsec_policies, mosquitto_dynsec, to_yaml

PLUGINS = (*Path("/usr/lib").glob("*/mosquitto_dynamic_security.so"), Path("/usr/lib/mosquitto_dynamic_security.so"))
PEOPLE = (Person("c1"), Person("c2", "mary"), Person("c3", "bob"), Person("c4", "eve"))
TOPICS = ("a", "b", "a/a", "a/b", "b/a", "b/b", "a/a/b", "a/b/a", "$x/a", "$x/b", "$x")
WIDE = ("#", "+", "a/#", "a/+", "+/b", "$x/#", "$x/+")

SEND, RECEIVE, LITERAL, PATTERN = "publishClientSend", "publishClientReceive", "subscribeLiteral", "subscribePattern"


STRICTER = ("wider subscription", "this one filter")
"""What the list says where a rule against subscribing binds more here than there."""


# -- files -----------------------------------------------------------------------------------------------------------


def acl(kind: str, topic: str, allow: bool = True, priority: int = 0) -> dict[str, Any]:
    return {"acltype": kind, "topic": topic, "allow": allow, "priority": priority}


def both(topic: str, *, allow: bool = True, priority: int = 0) -> list[dict[str, Any]]:
    """Reading and writing."""
    return [acl(kind, topic, allow, priority) for kind in (SEND, PATTERN if allow else RECEIVE)]


def client(name: str, *roles: str, **more: Any) -> dict[str, Any]:
    """A client; `role:3` has the priority 3."""
    salt = b"twelve bytes"
    digest = hashlib.pbkdf2_hmac("sha512", b"secret", salt, 1)
    secret = {"password": base64.b64encode(digest).decode(), "salt": base64.b64encode(salt).decode(), "iterations": 1}
    return {"username": name, **secret, "roles": ranked("rolename", roles), **more}


def group(name: str, roles: Iterable[str], members: Iterable[str] = ()) -> dict[str, Any]:
    return {"groupname": name, "roles": ranked("rolename", roles), "clients": ranked("username", members)}


def ranked(key: str, names: Iterable[str]) -> list[dict[str, Any]]:
    made = []
    for name in names:
        plain, colon, priority = name.partition(":")
        made.append({key: plain, **({"priority": int(priority)} if colon else {})})
    return made


def file(
    roles: dict[str, list[dict[str, Any]]],
    clients: Iterable[dict[str, Any]],
    groups: Iterable[dict[str, Any]] = (),
    *,
    send: bool = False,
    receive: bool = True,
    subscribe: bool = False,
    anonymous: str | None = None,
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "defaultACLAccess": {SEND: send, RECEIVE: receive, "subscribe": subscribe, "unsubscribe": True},
        "roles": [{"rolename": name, "acls": acls} for name, acls in roles.items()],
        "clients": list(clients),
        "groups": list(groups),
    }
    if anonymous is not None:
        made["anonymousGroup"] = anonymous
    return made


def read(content: dict[str, Any]) -> Imported:
    return mosquitto_dynsec.read(json.dumps(content, indent=1), "dynsec.json")


# -- both brokers ----------------------------------------------------------------------------------------------------


def plugin() -> Path:
    for path in PLUGINS:
        if path.exists():
            return path
    missing("Mosquitto's dynamic security plugin is not installed")
    raise AssertionError


async def outcomes(content: dict[str, Any]) -> tuple[Outcome, Outcome]:
    """What happens at Mosquitto, and at a node with what was imported.

    Clients subscribe to every topic, and to everything that a rule speaks of: what they can have, they get.
    """
    spoken = {one["topic"] for role in content["roles"] for one in role["acls"]}
    filters = (*TOPICS, *WIDE, *sorted(spoken - {*TOPICS, *WIDE}))
    names = {one["username"] for one in content["clients"] if not one.get("disabled")} | {None}
    people = tuple(person for person in PEOPLE if person.user in names)
    lines = f"allow_anonymous true\nplugin {plugin()}\nplugin_opt_config_file {{dynsec}}"
    with mosquitto(lines, dynsec=json.dumps(content)) as port:
        there = await play(port, people, filters, TOPICS)
    async with tidegate(read(content), people) as port:
        here = await play(port, people, filters, TOPICS)
    return there, here


ALL = {"all": both("#")}
EVERYBODY = (client("mary", "all"), client("bob", "all"), client("eve", "all"))

CASES: dict[str, dict[str, Any]] = {
    "nobody may do anything": file({}, [client("mary")]),
    "a role": file({"a": both("a/#"), "b": both("b/+")}, [client("mary", "a"), client("bob", "b"), client("eve")]),
    "everything": file(ALL, EVERYBODY),
    "everything by default": file({}, [client("mary")], send=True, subscribe=True),
    "nothing is received by default": file(ALL, EVERYBODY, receive=False),
    "receiving is allowed in parts": file(
        {"all": [*both("#"), acl(RECEIVE, "a/#"), acl(RECEIVE, "a/b", False, 1)]}, EVERYBODY, receive=False
    ),
    "receiving is denied in parts": file(
        {"all": [*both("#"), acl(RECEIVE, "a/#", False), acl(RECEIVE, "a/b", True, 1)]}, EVERYBODY
    ),
    "receiving and subscribing overlap": file(
        {"r": [acl(RECEIVE, "a/+")], "s": [acl(PATTERN, "+/b"), acl(SEND, "#")], "t": [acl(PATTERN, "a/#")]},
        [client("mary", "r", "s"), client("bob", "r"), client("eve", "s", "t", "r")],
        receive=False,
    ),
    "priorities of rules": file(
        {
            "p": [acl(SEND, "#", True, 1), acl(SEND, "a/#", False, 2), acl(SEND, "a/b", True, 3), acl(PATTERN, "#")],
            "q": [acl(SEND, "a/b", False, 0), acl(SEND, "a/+", True, 0), acl(PATTERN, "#")],
        },
        [client("mary", "p"), client("bob", "q"), client("eve", "q", "p")],
    ),
    "priorities of roles": file(
        {"yes": [*both("#")], "no": both("a/#", allow=False)},
        [client("mary", "yes:1", "no:2"), client("bob", "yes:2", "no:1"), client("eve", "yes", "no")],
    ),
    "roles in another order for each": file(
        {"x": both("a/#"), "y": [*both("a/b", allow=False), *both("b/#")], "z": both("#", allow=False), **ALL},
        [client("mary", "x:3", "y:2", "z:1"), client("bob", "y:3", "x:2", "z:1"), client("eve", "z:3", "y:2", "x:1")],
        [group("strangers", ["all"])],
        anonymous="strangers",
    ),
    "groups come behind": file(
        {"yes": both("#"), "no": both("a/#", allow=False), "some": both("a/b")},
        [client("mary", "some"), client("bob"), client("eve")],
        [group("g1", ["yes"], ["mary:1", "bob:1", "eve:2"]), group("g2", ["no"], ["mary:2", "bob", "eve:1"])],
    ),
    "a role twice": file(
        {"yes": both("#"), "no": both("a/#", allow=False)},
        [client("mary", "no"), client("bob", "yes")],
        [group("g", ["no:2", "yes:1"], ["mary", "bob"])],
    ),
    "anonymous clients": file(
        {"yes": both("a/#"), "all": both("#")}, EVERYBODY, [group("strangers", ["yes"])], anonymous="strangers"
    ),
    "literal subscriptions": file(
        {"one": [acl(SEND, "#"), acl(LITERAL, "a/#"), acl(LITERAL, "b/b")], "two": [acl(LITERAL, "+/b")]},
        [client("mary", "one"), client("bob", "two", "one"), client("eve", "two")],
    ),
    "a literal wins over patterns of its role": file(
        {"one": [acl(SEND, "#"), acl(LITERAL, "a/b", True, -5), acl(PATTERN, "a/#", False, 5)]}, [client("mary", "one")]
    ),
    "dollar": file(
        {"all": both("#"), "x": [*both("$x/#"), acl(RECEIVE, "#", False)], "plus": [acl(PATTERN, "+/a")]},
        [client("mary", "all", "x"), client("bob", "x"), client("eve", "plus", "all")],
    ),
    "disabled": file(ALL, [client("mary", "all"), client("bob", "all", disabled=True)]),
    "nothing but the file": {"roles": [], "clients": [client("mary")]},
    "other spellings": {
        "DEFAULTaclACCESS": {SEND: True, RECEIVE: 1, "subscribe": "true", "subscribe ": True},
        "roles": [{"RoleName": "r", "acls": [acl("PUBLISHclientRECEIVE", "#"), {"acltype": PATTERN, "topic": "a/#"}]}],
        "clients": [client("mary", "r")],
    },
}


def compare(content: dict[str, Any], there: Outcome, here: Outcome) -> None:
    """Never more, and the same unless it is listed why not."""
    listed = [f"{left.what}: {left.why}" for left in read(content).left]
    assert here <= there, f"{json.dumps(content)}\n{difference(here, there)}"
    if any("begin with `$`" in one for one in listed):
        there = {one for one in there if one in here or not one.topic.startswith("$")}
    if not any(word in one for one in listed for word in STRICTER):
        assert here == there, f"{json.dumps(content)}\n{difference(here, there)}"


@pytest.mark.parametrize("case", CASES)
async def test_the_same_outcome(case: str) -> None:
    assert not any(word in left.why for left in read(CASES[case]).left for word in STRICTER)
    compare(CASES[case], *await outcomes(CASES[case]))


async def test_a_denied_subscription_binds_wider_ones_too() -> None:
    """Mosquitto refuses the filter `a/b` and delivers its topic by `a/#`; here the topic is denied, which is said."""
    rules = [acl(SEND, "#"), acl(PATTERN, "a/b", False, 1), acl(PATTERN, "a/#"), acl(LITERAL, "a/+", False)]
    content = file({"r": rules}, [client("mary", "r")])
    there, here = await outcomes(content)
    assert {one.topic for one in there - here} == {"a/b"}
    assert here < there
    assert {one.topic for one in here if one.publisher == "c2"} == {"a", "a/a", "a/a/b", "a/b/a"}
    whys = {left.what: left.why for left in read(content).left}
    assert "wider subscription" in whys["role r: subscribePattern a/b deny"]
    assert "this one filter" in whys["role r: subscribeLiteral a/+ deny"]


@pytest.mark.parametrize(("eve", "receivers"), [(("no:3", "yes:1"), {"c3"}), (("yes:3", "no:1"), {"c3", "c4"})])
async def test_a_literal_filter_that_a_role_denies_is_not_allowed_by_one_behind_it(
    eve: tuple[str, ...], receivers: set[str]
) -> None:
    """Eve decides whose order of the roles is the one for all, and whose rules are written out."""
    roles = {"no": [acl(LITERAL, "a/#", False)], "yes": [acl(SEND, "#"), acl(LITERAL, "a/#")]}
    people = [client("mary", "no:2", "yes:1"), client("bob", "yes:2", "no:1"), client("eve", *eve)]
    content = file(roles, people)
    there, here = await outcomes(content)
    assert {one.receiver for one in there} == receivers
    assert here == there, difference(here, there)


filters = st.sampled_from(("#", "a/#", "b/#", "a/+", "+/b", "+", "a", "a/b", "b/b", "a/a/#", "$x/#", "$x/a", "+/a/#"))
acls = st.one_of(
    st.builds(acl, st.sampled_from((SEND, RECEIVE)), filters, st.booleans(), st.integers(0, 2)),
    st.builds(
        acl, st.sampled_from((PATTERN, LITERAL)), filters, st.sampled_from((True,) * 7 + (False,)), st.integers(0, 2)
    ),
)


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    names = ("r1", "r2", "r3")
    some_roles = st.lists(st.sampled_from(names), unique=True, max_size=3).flatmap(
        lambda roles: st.tuples(*(st.builds(f"{role}:{{}}".format, st.integers(0, 2)) for role in roles))
    )
    roles = {name: draw(st.lists(acls, max_size=5)) for name in names}
    clients = [client(name, *draw(some_roles)) for name in ("mary", "bob", "eve")]
    members = st.lists(st.sampled_from(("mary", "bob:1", "eve:2")), unique=True)
    groups = [group(name, draw(some_roles), draw(members)) for name in ("g1", "g2")]
    send, receive, subscribe = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    anonymous = draw(st.sampled_from((None, "g1")))
    return file(roles, clients, groups, send=send, receive=receive, subscribe=subscribe, anonymous=anonymous)


@seed(4)
@settings(max_examples=examples(20, 600), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(files())
def test_random_files_have_the_same_outcome_or_one_that_is_listed(content: dict[str, Any]) -> None:
    compare(content, *asyncio.run(outcomes(content)))


# -- what is read, without a broker ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "dynsec.json:1: no JSON"),
        ('{"roles": [\n{"rolename": "a",}]}', "dynsec.json:2: no JSON"),
        ("[]", "dynsec.json:1: no JSON object"),
        ("{}", "dynsec.json:1: has no `roles`"),
        ('{"roles": 1}', "has no `roles`"),
        ('{"clients": [NaN]}', "`NaN` is no number"),
        ('{"clients": [' + "1" * 5000 + "]}", "no JSON"),
        ("[" * 100_000, "dynsec.json:1: nested deeper than 50"),
        ('{"a":' * 100_000, "dynsec.json:1: nested deeper than 50"),
        ('{"clients": [\n{"username": "a"},\n{"username": "a"}]}', "dynsec.json:3: `a` comes twice"),
        ('{"roles": [{"rolename": "a"},\n{"rolename": "a"}]}', "dynsec.json:2: `a` comes twice"),
    ],
)
def test_bad_files_are_refused_with_their_place(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        mosquitto_dynsec.read(text, "dynsec.json")
    assert told in str(wrong.value)
    assert ";" in str(wrong.value)


def test_what_has_no_equivalent_is_listed_with_its_line() -> None:
    content = {
        "defaultACLAccess": {SEND: True},
        "roles": [
            {
                "rolename": "r",
                "acls": [
                    acl(SEND, "$CONTROL/dynamic-security/v1"),
                    acl(SEND, "$SYS/x"),
                    acl(PATTERN, "$share/g/a"),
                    acl(SEND, "a/%u"),
                    acl(SEND, "b/%c/x%u", False),
                    acl("unsubscribePattern", "#", False),
                    acl("unsubscribeLiteral", "#"),
                    acl("publish", "a"),
                    acl(SEND, "a#"),
                    {"acltype": SEND},
                ],
            },
            {"textname": "nobody"},
        ],
        "clients": [
            client("mary", "r", "gone", clientid="c2"),
            client("bob", disabled=True),
            {"username": "a@b"},
            {"username": "eve", "password": "?", "salt": "", "iterations": 1},
            {"username": 7},
        ],
    }
    imported = read(content)
    whats = [left.what for left in imported.left]
    assert whats == [
        "defaultACLAccess: unsubscribe false",
        "publishClientSend by default, on topics that begin with `$`",
        "role r: publishClientSend $CONTROL/dynamic-security/v1 allow",
        "role r: publishClientSend $SYS/x allow",
        "role r: subscribePattern $share/g/a allow",
        "role r: publishClientSend a/%u allow",
        "role r: publishClientSend b/%c/x%u deny",
        "unsubscribePattern # deny",
        "publish a",
        "role r: publishClientSend a# allow",
        "publishClientSend None",
        "an entry without `rolename`",
        "client mary only as clientid c2",
        "role gone",
        "client bob",
        "client a@b",
        "password of eve",
        "an entry without `username`",
    ]
    lines = json.dumps(content, indent=1).splitlines()
    for left in imported.left:
        assert left.place.startswith("dynsec.json:")
    at = {left.what: int(left.place.partition(":")[2]) for left in imported.left}
    assert lines[at["role r: publishClientSend $SYS/x allow"]].strip() == '"acltype": "publishClientSend",'
    assert lines[at["client bob"]].strip() == '"username": "bob",'
    stored = imported.users["mary"]["password"]
    assert mosquitto_hashes.matches(stored, b"secret")
    assert imported.users == {"mary": {"password": stored, "roles": ["r"]}, "eve": {}}
    assert [(taken.topic, taken.effect) for taken in imported.policies if taken.subject == "role:r"] == [
        ("b/+/+", "deny")
    ]


async def test_a_client_that_is_bound_to_its_identifier_is_denied_everything_with_another() -> None:
    content = file(ALL, [client("mary", "all", clientid="c2"), client("bob", "all", clientid="other")])
    async with tidegate(read(content), PEOPLE) as port:
        got = await play(port, (Person("c2", "mary"), Person("c3", "bob")), ("#",), ("a",))
    assert got == {Received("c2", "c2", "a")}


def test_a_role_whose_name_says_something_else_here_gets_another() -> None:
    imported = read(file({"*": both("a"), "it's": both("b")}, [client("mary", "*", "it's")]))
    assert imported.users["mary"]["roles"][0].startswith("role-")
    assert parses(imported)


@pytest.mark.parametrize(
    "names",
    [
        ("admin ", "guest "),
        ("*", "role-1"),
        ("role-1", "*"),
        ("admin ", "role-1", "role-1-2", "guest "),
    ],
)
def test_no_role_gets_the_name_of_another(names: tuple[str, ...]) -> None:
    """Or its people would have the rights of both. All of it is in line 1."""
    people = [client(f"u{n}", name) for n, name in enumerate(names)]
    content = file({name: both(f"t/{n}") for n, name in enumerate(names)}, people)
    imported = mosquitto_dynsec.read(json.dumps(content), "dynsec.json")
    shown = [role for person in imported.users.values() for role in person["roles"]]
    assert len(set(shown)) == len(names), shown
    policies = rules(imported)
    for n, role in enumerate(shown):
        who = Subject(user=f"u{n}", roles=(role,))
        assert [m for m in range(len(names)) if allowed(policies, who, "write", f"t/{m}")] == [n]


def test_too_many_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynsec_policies, "MAX_POLICIES", 2000)
    received = [acl(RECEIVE, f"a/+/{number}") for number in range(50)]
    subscribed = [acl(PATTERN, f"a/{number}/+") for number in range(50)]
    with pytest.raises(ConfigError, match="more than 2,000 policies; use fewer rules"):
        read(file({"r": [*received, *subscribed]}, [client("mary", "r")]))


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.sampled_from(("a", "a/#", "%c"))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(("roles", "clients", "groups", "rolename", "username", "groupname", "acls", "topic")),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=20,
)


@given(values)
@settings(max_examples=300, database=None)
def test_any_json_is_read_or_refused(value: object) -> None:
    with contextlib.suppress(ConfigError):
        assert parses(mosquitto_dynsec.read(json.dumps({"roles": [], "clients": value}), "f"))


@given(files())
@settings(max_examples=50, deadline=None, database=None)
def test_whatever_is_read_is_a_configuration(content: dict[str, Any]) -> None:
    assert parses(read(content))


def parses(imported: Imported) -> bool:
    """Whether a node accepts it, once it has a name and a listener."""
    text = 'node: {name: x}\nlisteners: [{url: "mqtt://127.0.0.1:1883"}]\n' + to_yaml(imported, "dynsec.json")
    return bool(parse(text, "x.yaml").built)
