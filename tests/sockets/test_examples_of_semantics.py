"""Sentences of the specification that the other modules of this folder do not quote, each held against a real node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from processes import Served, from_file, on_uvloop
from sockets.acts import (
    ALL,
    PEOPLE,
    Section,
    asking,
    come,
    content,
    door,
    go,
    inbox,
    payloads,
    policy,
    say,
    secure,
    setting,
    user,
)
from tidegate import wire
from tidegate.store.journal.rows import AuditRow

BODY = {"a": 1, "b": 1}
READ, WRITE = policy("r", "#", "read"), policy("w", "#", "write")


# -- attributes --------------------------------------------------------------------------------------------------

SUBJECT = [
    "s.client == 'c' && s.user == 'alice' && s.domain == 'house' && s.node == 'test' && s.scope == 'main'",
    "s.role == 'doctor' && s.roles == ['doctor', 'runner'] && s.groups == ['ward']",
    "s.kind == 'client' && s.address == '127.0.0.1' && s.listener.startsWith('mqtt')",
    "s.level == 'plain' ? !has(s.tls) : s.tls.version == 'TLSv1.3' && size(s.tls.cipher) > 5",
    "s.ward == 7 && s.shift.from == '08:00'",
]
MESSAGE = [
    "o.topic == 't/1' && o.levels == ['t', '1'] && o.levels[0] == 't'",
    "o.qos == 1 && !o.retain && o.size == 8 && o.payload.a == 1",
    "o.category == 'sensitive' && o.properties.colour == 'red' && o.properties.twice == ['1', '2']",
    "!has(o.scores) && !has(o.properties.require) && !has(o.properties.floor)",
]
SURROUNDINGS = [
    "e.hour == 13 && e.minute == 0 && e.weekday == 2 && e.date == '2026-02-11'",
    "e.now == timestamp('2026-02-11T12:00:00Z')",
    "e.location == 'milan'",
    "e.purpose == (s.listener.startsWith('mqtts') ? 'care' : 'training')",
]


@pytest.mark.parametrize("when", SUBJECT + MESSAGE + SURROUNDINGS)
@pytest.mark.parametrize("tls", [False, True])
@on_uvloop
async def test_attributes_of_a_writer(
    tmp_path: Path, certificates: Path, when: str, tls: bool, clock: Callable[[str], None]
) -> None:
    """The table of *Attributes*: *in the node's time zone*, *from `environment` of the node or listener*."""
    alice = user("doctor", "runner", groups=["ward"], ward=7, shift={"from": "08:00"})
    text = setting(
        policy("p", "t/+", "write", when=when),
        certificates=certificates,
        directory={"users": {"alice": alice}},
        classify=[{"topic": "t/#", "category": "sensitive"}],
        environment={"location": "milan", "purpose": "training"},
        levels={},
    )
    text = text.replace('"name": "test"', '"name": "test", "domain": "house", "timezone": "Europe/Rome"')
    text = text.replace('"client_cert": "optional"', '"client_cert": "optional", "environment": {"purpose": "care"}')
    async with from_file(tmp_path, text) as node:
        end = await come(node, "alice", client="c", tls=secure(certificates) if tls else None)
        pairs = (("colour", "red"), ("twice", "1"), ("twice", "2"), ("require", "none"), ("floor", "trusted"))
        assert await say(end, "t/1", {"a": 1}, *pairs, qos=1) == 0x10  # nobody is there, and nobody denies it


PUBLISHER = [
    "p.user == 'mary' && p.client == 'm' && p.role == 'nurse' && p.roles == ['nurse'] && p.kind == 'client'",
    "p.topic == 't' && p.node == 'test' && p.level == 'plain' && p.floor == 'plain'",
    "p.qos == 1 && p.size == 8 && p.time == timestamp('2026-02-11T12:00:00Z')",
    "p.e.location == 'milan' && p.e.hour == 12 && p.e.date == '2026-02-11'",
    "p.ward == 7 && s.user == 'alice'",
]


@pytest.mark.parametrize("when", PUBLISHER)
@on_uvloop
async def test_attributes_of_the_publication(tmp_path: Path, when: str, clock: Callable[[str], None]) -> None:
    """`p`: *the publisher's `s` attributes, `p.topic` (original), `p.time`, `p.qos`, `p.size`, `p.node`, `p.floor`,
    `p.e` (its environment then)*: in policies and in preferences, live, queued and retained."""
    people = {**PEOPLE, "mary": user("nurse", ward=7)}
    common: Section = {"directory": {"users": people}, "environment": {"location": "milan"}}
    for kind in ("policy", "preference"):
        folder = tmp_path / kind
        folder.mkdir()
        clock("2026-02-11T12:00:00")
        rules = [WRITE, policy("p", "t", "read", when=when) if kind == "policy" else READ]
        more: Section = (
            {} if kind == "policy" else {"preferences": [{"id": "up", "user": "mary", "topic": "t", "when": when}]}
        )
        async with door(folder, *rules, **common, **more) as node:
            mary, alice = await come(node, "mary", client="m"), await come(node, "alice", stays=True)
            await alice.subscribe("t", qos=1)
            await say(mary, "t", {"a": 1}, qos=1)
            assert await content(alice) == [{"a": 1}]
            await go(node, alice)
            await say(mary, "t", {"a": 1}, qos=1, retain=True)
            clock("2026-02-12T15:00:00")
            alice = await come(node, "alice", stays=True)
            assert await content(alice) == [{"a": 1}]
            await alice.subscribe("t", qos=1)
            assert await content(alice) == [{"a": 1}]


@on_uvloop
async def test_there_is_no_publication_on_the_way_in(tmp_path: Path) -> None:
    """*`p`: in 6 to 11 and on links*: for who writes it is an unknown attribute, which denies; also beside a condition
    that waits for the message."""
    rules = [READ, policy("p", "p", "write", when="p.user == 'mary'")]
    rules += [policy("q", "q", "write", when="o.qos == 1 && p.user == 'mary'")]
    async with door(tmp_path, *rules) as node:
        mary = await come(node, "mary")
        for topic in ("p", "q"):
            assert await say(mary, topic, qos=1) == 0x87


@on_uvloop
async def test_people_belong_to_a_domain(tmp_path: Path) -> None:
    """*a preference or policy that says `alice` means alice of its own domain*; in another they are `name@domain`."""
    rules = [
        policy("here", "here", subject="user:alice"),
        policy("same", "same", subject="user:alice@test"),
        policy("other", "other", subject="user:alice@remotegym"),
    ]
    async with door(tmp_path, *rules) as node:
        alice = await come(node, "alice")
        assert (await alice.subscribe("here", "same", "other")).reasons == (0, 0, 0x87)


@on_uvloop
async def test_a_client_with_a_certificate_is_the_client_of_that_name(tmp_path: Path, certificates: Path) -> None:
    """*An entry `directory.clients.X` applies only to a connection authenticated for X*: by a certificate, too."""
    clients: Section = {"sensor": {"roles": ["machine"]}, "bob": {"user": "mary", "roles": ["machine"]}}
    directory = {"users": PEOPLE, "clients": clients}
    rules = [policy("p", "p", subject="role:machine"), policy("q", "q", subject="user:mary")]
    async with door(tmp_path, *rules, certificates=certificates, directory=directory) as node:
        for client, shown, expected in (
            ("sensor", "sensor", (0, 0x87)),
            ("other", "sensor", (0x87, 0x87)),
            ("sensor", None, (0x87, 0x87)),
            ("sensor", "alice", (0x87, 0x87)),
        ):
            end = await come(node, None, client=client, tls=secure(certificates, shown))
            assert (await end.subscribe("p", "q")).reasons == expected, (client, shown)


# -- conditions --------------------------------------------------------------------------------------------------

CONDITIONS = {
    "1 + 2 * 3 == 7 && 7 / 2 == 3 && 7 % 4 == 3 && -1 < 0 && 'a' + 'b' == 'ab'": True,
    "(o.qos > 0 ? 'x' : 'y') in ['x', 'z']": True,
    "{'k': [1, 2]}.k[1] == 2": True,
    "duration('90m') > duration('1h') && timestamp('2026-01-01T00:00:00Z') < e.now": True,
    "has(o.payload.a) && !has(o.payload.z)": True,
    "[1, 2, 3].exists(x, x == 2) && [1, 2].all(x, x > 0) && [1, 2].exists_one(x, x > 1)": True,
    "[1, 2, 3].filter(x, x > 1) == [2, 3] && [1, 2].map(x, x * 2) == [2, 4]": True,
    "'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo') && size('hello') == 5": True,
    "'sensor-17'.matches('^sensor-[0-9]+$')": True,
    "sets.contains([1, 2], [1]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 2], [2, 1])": True,
    "union([1], [2]) == [1, 2] && intersection([1, 2], [2]) == [2] && difference([1, 2], [2]) == [1]": True,
    "matchesFilter(o.topic, '+/#') && !matchesFilter('$SYS/x', '#')": True,
    "within(e.now, '11:00-13:00') && !within(e.now, '22:00-06:00')": True,
    "within(timestamp('2026-02-11T23:30:00Z'), '22:00-06:00')": True,
    "age(timestamp('2026-02-11T11:00:00Z')) == duration('1h')": True,
    "cidr('10.1.2.3', '10.0.0.0/8') && !cidr(s.address, '10.0.0.0/8')": True,
    "even(4) && !even(3)": True,
    "false && s.nothing == 1": False,
    "true || s.nothing == 1": True,
    "s.nothing == 1 || true": True,
    "o.payload.a": False,  # no bool
    "[1, 2][5] == 1": False,
    "9223372036854775807 + o.payload.a > 0": False,  # overflow
    "o.payload.text.matches('^(a|a)*$')": False,  # an evil pattern on what does not match
    "o.payload.many.all(x, o.payload.many.exists(y, y == -x))": False,  # too much work
    "size(o.payload.many.map(x, o.payload.many)) > 0": False,
}


@on_uvloop
async def test_conditions(tmp_path: Path, clock: Callable[[str], None]) -> None:
    """*Predicates*: the language and its functions; *work is bounded*: what takes too much fails, and denies."""
    rules = [policy(f"p{n}", f"t/{n}", "write", when=text) for n, text in enumerate(CONDITIONS)]
    body = {"a": 1, "text": "a" * 2000 + "!", "many": list(range(3000))}
    async with door(tmp_path, *rules, functions=["sockets.wild:even"]) as node:
        mary = await come(node, "mary")
        answers = {text: await say(mary, f"t/{n}", body, qos=1) == 0x10 for n, text in enumerate(CONDITIONS)}
        assert answers == CONDITIONS


# -- access policies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "who"),
    [
        ("*", ["alice", "bob", None]),
        ("user:alice", ["alice"]),
        ("role:doctor", ["alice"]),
        ("group:ward", ["bob"]),
        ("client:x", ["bob"]),
        (["user:alice", "group:ward"], ["alice", "bob"]),
        ("service:sys", []),
        ("scope:main", []),
    ],
)
@on_uvloop
async def test_subjects(tmp_path: Path, subject: Any, who: list[str | None]) -> None:
    """*`subject`: `*`, `user:…`, `role:…`, `group:…`, `client:…`, `scope:…`, … or a list*"""
    users = {"alice": user("doctor"), "bob": user(groups=["ward"])}
    async with door(tmp_path, policy("p", subject=subject), directory={"users": users}) as node:
        for name, client in (("alice", "a"), ("bob", "x"), (None, "n")):
            end = await come(node, name, client=client)
            granted = (await end.subscribe("t")).reasons == (0,)
            assert granted == (name in who)


@pytest.mark.parametrize(
    ("combining", "order", "allowed"),
    [
        ("deny-overrides", ("allow", "deny"), False),
        ("deny-overrides", ("deny", "allow"), False),
        ("permit-overrides", ("allow", "deny"), True),
        ("permit-overrides", ("deny", "allow"), True),
        ("first-applicable", ("allow", "deny"), True),
        ("first-applicable", ("deny", "allow"), False),
    ],
)
@pytest.mark.parametrize("when", ["true", "o.payload.a == 1"])
@on_uvloop
async def test_combining(tmp_path: Path, combining: str, order: tuple[str, str], allowed: bool, when: str) -> None:
    """*combining: `deny-overrides` (default), `permit-overrides` or `first-applicable`, for the whole set*"""
    rules = [policy(f"p-{effect}", "#", effect=effect, when=when) for effect in order]
    rules += [policy("never", "#", effect="deny", when="o.payload.a == 2"), policy("open", "open")]
    async with door(tmp_path, *rules, combining=combining) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#")
        assert await say(mary, "t", BODY, qos=1) == (0 if allowed else 0x87)
        assert await content(alice) == ([BODY] if allowed else [])


@pytest.mark.parametrize(("text", "allowed"), [("", False), ('"policies": [],', False), ('"policies": "open",', True)])
@on_uvloop
async def test_open_must_be_written_out(tmp_path: Path, text: str, allowed: bool) -> None:
    """*nothing matches → deny. `policies: open` must be written out to switch that off*"""
    written = setting().replace(f'"policies": {setting_of_policies()},', text)
    assert ("policies" in written) == bool(text)
    async with from_file(tmp_path, written) as node:
        mary = await come(node, "mary")
        assert (await mary.subscribe("t")).reasons == ((0,) if allowed else (0x87,))
        assert await say(mary, "u", qos=1) == (0x10 if allowed else 0x87)


def setting_of_policies() -> str:
    """How `setting` writes its policies."""
    text = setting()
    start = text.index('"policies": ') + len('"policies": ')
    return text[start : text.index('"sys"')].rstrip().rstrip(",")


@pytest.mark.parametrize("when", ["!o.retain", "o.qos < 2", "o.size < 5", "!has(o.properties.bad)", "o.topic != 'x'"])
@on_uvloop
async def test_writing_is_decided_by_the_message(tmp_path: Path, when: str) -> None:
    """*write: may the subject write this topic*, asked for each message, whichever way it takes."""
    async with door(tmp_path, READ, policy("w", "#", "write", when=when)) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#")
        for _ in range(2):
            await say(mary, "t", b"ok")
            wrong: dict[str, Section] = {
                "!o.retain": {"retain": True},
                "o.qos < 2": {"qos": 2},
                "o.size < 5": {"payload": b"too long"},
                "!has(o.properties.bad)": {"properties": asking(("bad", "1"))},
                "o.topic != 'x'": {"topic": "x"},
            }
            await say(mary, **{"topic": "t", "payload": b"bad", **wrong[when]})
            await say(mary, "t", b"ok")
        assert await payloads(alice) == [b"ok"] * 4


# -- preferences -------------------------------------------------------------------------------------------------

ALICE, BOB, NOBODY = "s.user == 'alice'", "s.user == 'bob'", "false"


@pytest.mark.parametrize(
    ("policies", "said", "readers"),
    [
        ([ALL], {}, ["alice", "bob"]),
        ([ALL], {"t": ALICE}, ["alice"]),
        ([ALL], {"+": ALICE, "t": BOB}, ["alice", "bob"]),
        ([ALL], {"#": NOBODY, "t": BOB}, ["bob"]),
        ([ALL], {"t": NOBODY}, []),
        ([ALL], {"other": NOBODY}, ["alice", "bob"]),
        ([ALL], {"t": "o.payload.a == 1 && s.user == 'alice'"}, ["alice"]),
        ([ALL, policy("no", "t", "read", effect="deny", subject="user:alice")], {"t": ALICE}, []),
        ([WRITE, policy("one", "t", "read", subject="user:bob")], {"t": "true"}, ["bob"]),
    ],
)
@on_uvloop
async def test_who_may_receive_a_message(
    tmp_path: Path, policies: list[Section], said: dict[str, str], readers: list[str]
) -> None:
    """*A receiver may read a message of user u iff a policy allows it AND (some preference of u without `to` that
    matches the original topic is true for it, OR u has none that matches).*"""
    preferences = [
        {"id": f"up{n}", "user": "mary", "topic": topic, "when": when} for n, (topic, when) in enumerate(said.items())
    ]
    async with door(tmp_path, *policies, policy("open", "open"), preferences=preferences) as node:
        ends = {name: await come(node, name) for name in ("mary", "alice", "bob")}
        nobody = await come(node, None)
        for name in ("alice", "bob"):
            await ends[name].subscribe("#")
        await say(ends["mary"], "t", BODY)
        assert [name for name in ("alice", "bob") if await inbox(ends[name])] == readers
        await say(nobody, "t", BODY)  # of no owner: only policies speak of it
        allowed = [name for name in ("alice", "bob") if await inbox(ends[name])]
        assert set(readers) <= set(allowed) or not allowed


@on_uvloop
async def test_an_owner_keeps_parts(tmp_path: Path) -> None:
    """*with `keep` the receiver gets only those parts*; those of the preferences that are true unite."""
    preferences = [
        {"id": "whole", "user": "mary", "topic": "t", "when": BOB},
        {"id": "some", "user": "mary", "topic": "t", "when": "s.user in ['alice', 'carol']", "keep": ["/a"]},
        {"id": "more", "user": "mary", "topic": "t", "when": "s.user == 'carol' && o.payload.b == 1", "keep": ["/b"]},
        {"id": "fails", "user": "mary", "topic": "t", "when": "s.nothing == 1", "keep": "all"},
    ]
    async with door(tmp_path, preferences=preferences) as node:
        ends = {name: await come(node, name) for name in ("mary", "alice", "bob", "carol")}
        for end in ends.values():
            await end.subscribe("t", no_local=True)
        await say(ends["mary"], "t", {**BODY, "c": 1})
        assert await content(ends["alice"]) == [{"a": 1}]
        assert await content(ends["bob"]) == [{**BODY, "c": 1}]
        assert await content(ends["carol"]) == [BODY]


# -- views -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("default", "shown"), [("nothing", []), ("all", [BODY])])
@on_uvloop
async def test_the_administrators_default(tmp_path: Path, default: str, shown: list[Section]) -> None:
    """*A table without an applicable row shows nothing (administrator's default configurable).* The publisher's has no
    such default."""
    views = [{"id": "v", "topic": "t", "for": "user:alice", "keep": ["/a"]}]
    async with door(tmp_path, views=views, view_default=default) as node:
        mary, alice, bob = await come(node, "mary"), await come(node, "alice"), await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("#")
        await say(mary, "t", BODY)
        assert await content(alice) == [{"a": 1}]
        assert await content(bob) == shown
        await say(mary, "t", BODY, ("view", '{"user:alice": "all"}'))
        assert await content(alice) == [{"a": 1}]
        assert await content(bob) == []
        await say(mary, "untold", BODY)  # without a table everything is seen
        assert await content(alice) == await content(bob) == [BODY]


@on_uvloop
async def test_the_table_of_the_specification(tmp_path: Path) -> None:
    """`{"group:cardiologists": ["/illness"], "user:andrew": "all"}`, and who is in neither row."""
    users = {name: user() for name in ("patient", "andrew", "eve")}
    users["mark"] = user(groups=["cardiologists"])
    table = ("view", '{"group:cardiologists": ["/illness"], "user:andrew": "all"}')
    body = {"name": "Paul", "illness": "angina", "therapy": {"drug": "x"}}
    async with door(tmp_path, directory={"users": users}) as node:
        ends = {name: await come(node, name) for name in users}
        for end in ends.values():
            await end.subscribe("angina", no_local=True)
        await say(ends["patient"], "angina", body, table)
        assert await content(ends["mark"]) == [{"illness": "angina"}]
        assert await content(ends["andrew"]) == [body]
        assert await content(ends["eve"]) == []


# -- the audit ---------------------------------------------------------------------------------------------------


async def denials(node: Served) -> list[tuple[str | None, ...]]:
    """Rows of the audit that deny, without when and where, and the policy version compared."""
    rows = [AuditRow(*row) async for piece in node.node.audit.stream() for row in piece]
    found = [row for row in rows if row.kind == "deny"]
    version = node.node.scopes["main"].gate.rules.version
    assert all(row.policy_version == version and row.at > 0 and row.node == "test" for row in found)
    return [(row.link, row.user, row.action, row.topic, row.stage, row.rule) for row in found]


IN, OUT = "client:mary->scope:main", "scope:main->client:alice"


@pytest.mark.parametrize("asks", [(), (("view", '{"*": "all"}'),)], ids=["plain", "with a wish"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("by_message", [False, True])
@on_uvloop
async def test_every_denial_is_in_the_audit(
    tmp_path: Path, qos: int, asks: tuple[tuple[str, str], ...], by_message: bool
) -> None:
    """*In the audit: time, link, subject, action, topic, stage, rule id, policy version.*"""
    when = "o.payload.a == 1" if by_message else "true"
    rules = [ALL, policy("no-w", "w", "write", effect="deny", when=when)]
    rules += [policy("no-r", "r", "read", effect="deny", when=when, subject="user:alice")]
    async with door(tmp_path, *rules) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#", qos=qos)
        await say(mary, "w", BODY, *asks, qos=qos)
        await say(mary, "r", BODY, *asks, qos=qos)
        assert await inbox(alice) == []
        assert sorted(map(str, await denials(node))) == sorted(
            map(str, [(IN, "mary", "write", "w", "write", "no-w"), (OUT, "alice", "read", "r", "read", "no-r")])
        )


@on_uvloop
async def test_denials_of_other_events_are_in_the_audit(tmp_path: Path) -> None:
    """The same for SUBSCRIBE, wills at CONNECT and when they fire, retained, queued and resumed messages."""
    rules = [policy("all", "t"), policy("x", "x/#")]
    async with door(tmp_path, *rules) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        await alice.subscribe("t", qos=1)
        await say(mary, "t", BODY, qos=1, retain=True)  # sent, and not acknowledged
        await alice.expect(wire.Publish)
        await go(node, alice)
        await say(mary, "t", BODY, qos=1)  # queued
        left = wire.Will(topic="t", payload=b"", qos=0, retain=False)
        bob = await come(node, "bob", will=left)
        await node.reload(setting(*rules, policy("no", "t", effect="deny")))
        alice = await come(node, "alice", stays=True)
        assert (await alice.subscribe("t", "y")).reasons == (0, 0x87)  # with the retained one denied
        await come(node, "carol", will=left, expect=0x87)
        await go(node, bob)
        assert await inbox(alice) == []
        found = await denials(node)
        assert (OUT, "alice", "subscribe", "y", "read", "default") in found
        assert ("client:carol->scope:main", "carol", "write", "t", "write", "no") in found
        assert ("client:bob->scope:main", "bob", "write", "t", "write", "no") in found
        rows = [AuditRow(*row) async for piece in node.node.audit.stream(rule="no", user="alice") for row in piece]
        assert sum(row.count for row in rows) == 3  # resumed, queued, retained


@on_uvloop
async def test_the_steps_have_an_order(tmp_path: Path, certificates: Path) -> None:
    """*Egress …: 7. levels … 8. read: capability AND policies; then the owner's preferences 9. view … 10. where*: the
    first that objects is named."""
    policies = [ALL, policy("no", "t", "read", effect="deny")]
    preferences = [{"id": "up", "user": "mary", "topic": "t", "when": "false"}]
    views = [{"id": "v", "topic": "t", "for": "user:bob", "keep": "all"}]
    demand = ("require", "tls")
    removed = [
        ((policies, preferences, views), [demand], ("levels", "publisher's demand")),
        ((policies, preferences, views), [], ("read", "no")),
        (([ALL], preferences, views), [], ("read", "up")),
        (([ALL], [], views), [], ("view", "default")),
        (([ALL], [], []), [], None),
    ]
    async with door(tmp_path, certificates=certificates) as node:
        mary, alice = await come(node, "mary", tls=secure(certificates)), await come(node, "alice")
        await alice.subscribe("t", properties=asking(("where", "o.payload.a == 2")))
        seen: list[tuple[str | None, str | None]] = []
        for (written, up, table), asks, expected in removed:
            await node.reload(setting(*written, preferences=up, views=table, certificates=certificates))
            await say(mary, "t", BODY, *asks)
            rows = [AuditRow(*row) async for piece in node.node.audit.stream() for row in piece]
            said = [(row.stage, row.rule) for row in rows if row.kind == "deny"]
            assert said[len(seen) :] == ([] if expected is None else [expected])
            seen = said
        await say(mary, "t", {"a": 2})
        assert await content(alice) == [{"a": 2}]  # and with nothing left to object it passes


@pytest.mark.parametrize("condition", ["s.nothing == 1", "o.payload.nothing == 1"], ids=["known", "by the message"])
@on_uvloop
async def test_errors_in_policies_are_shown_with_their_id(tmp_path: Path, condition: str) -> None:
    """*Each is counted and shown in the audit with the id of the predicate.*"""
    rules = [ALL, policy("bad-w", "w", "write", when=condition), policy("bad-r", "r", "read", when=condition)]
    async with door(tmp_path, *rules) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#")
        for topic in ("w", "r"):
            await say(mary, topic, BODY)
        rows = [AuditRow(*row) async for piece in node.node.audit.stream() for row in piece]
        told = {row.rule: row.detail or "" for row in rows if row.kind == "deny"}
        assert set(told) == {"bad-r", "bad-w"}
        assert all("nothing" in detail for detail in told.values())


@pytest.mark.parametrize("keep", ["all", ["/a", "/b"]])
@pytest.mark.parametrize("condition", ["s.nothing == 1", "o.payload.nothing == 1"], ids=["known", "by the message"])
@on_uvloop
async def test_errors_in_preferences_are_shown_with_their_id(tmp_path: Path, condition: str, keep: Any) -> None:
    """The same where it *counts as false*: another preference may still allow the message."""
    preferences = [
        {"id": "bad", "user": "mary", "topic": "t", "when": condition},
        {"id": "good", "user": "mary", "topic": "t", "when": "o.payload.a == 1", "keep": keep},
    ]
    async with door(tmp_path, preferences=preferences) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t")
        await say(mary, "t", BODY)
        assert await content(alice) == [BODY]
        rows = [AuditRow(*row) async for piece in node.node.audit.stream() for row in piece]
        assert [(row.kind, "nothing" in (row.detail or "")) for row in rows if row.rule == "bad"] == [("error", True)]


@on_uvloop
async def test_errors_in_preferences_are_shown_for_stored_messages(tmp_path: Path) -> None:
    """The same for a retained message, which no plan decides."""
    preferences = [
        {"id": "bad", "user": "mary", "topic": "t", "when": "o.payload.nothing == 1"},
        {"id": "good", "user": "mary", "topic": "t", "keep": ["/a", "/b"]},
    ]
    async with door(tmp_path, preferences=preferences) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await say(mary, "t", BODY, retain=True)
        await alice.subscribe("t")
        assert await content(alice) == [BODY]
        rows = [AuditRow(*row) async for piece in node.node.audit.stream() for row in piece]
        assert [(row.kind, "nothing" in (row.detail or "")) for row in rows if row.rule == "bad"] == [("error", True)]


@on_uvloop
async def test_an_error_in_a_preference_is_shown_though_another_allows_everything(tmp_path: Path) -> None:
    """The same where nothing is left to ask of a message, so that it takes the fast way."""
    preferences = [
        {"id": "bad", "user": "mary", "topic": "t", "when": "s.nothing == 1"},
        {"id": "good", "user": "mary", "topic": "t"},
    ]
    async with door(tmp_path, preferences=preferences) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t")
        await say(mary, "t", BODY)
        assert await content(alice) == [BODY]
        rows = [AuditRow(*row) async for piece in node.node.audit.stream() for row in piece]
        assert [(row.kind, "nothing" in (row.detail or "")) for row in rows if row.rule == "bad"] == [("error", True)]


@on_uvloop
async def test_an_error_that_refuses_a_subscription_is_shown(tmp_path: Path) -> None:
    """The same for SUBSCRIBE: it is refused because a condition failed, and which one is said."""
    async with door(tmp_path, WRITE, policy("bad", "t", "read", when="s.nothing == 1")) as node:
        alice = await come(node, "alice")
        assert (await alice.subscribe("t")).reasons == (0x87,)
        rows = [AuditRow(*row) async for piece in node.node.audit.stream() for row in piece]
        assert [(row.rule, "nothing" in (row.detail or "")) for row in rows if row.action == "subscribe"] == [
            ("bad", True)
        ]
