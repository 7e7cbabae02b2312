"""Publisher rules through real sockets: what they open and close, for whom, how long, and what they cannot do.

*A publisher may send rules at run time that say who may read its own messages, within what the administrator lets
publishers grant. Administrators' policies are combined first and their deny is final; then rules can allow or deny.*
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Client
from processes import Served, from_file, on_uvloop, until
from sockets.acts import (
    BOTH,
    PEOPLE,
    Section,
    asking,
    come,
    content,
    door,
    go,
    inbox,
    marked,
    payloads,
    policy,
    say,
    secure,
    setting,
    user,
)
from tidegate import wire
from tidegate.gate import Lane

RULES = "$tidegate/rules"
WRITERS = policy("w", "#", "write")
MARK = policy("mark", "mark")
CEILING: Section = {"allow": ["t/#", "angina"]}
BODY = {"a": 1}


def rule(id: str = "r", topic: str = "t/#", subject: Any = "user:alice", **more: Any) -> Section:
    return {"id": id, "topic": topic, "subject": subject, **more}


async def send(end: Client, *rules: Section, sequence: int | None = None, qos: int = 1, **fields: Any) -> int:
    """Sends rules; the reason code of the answer, 0 if there is none."""
    body: Any = list(rules) if sequence is None else {"sequence": sequence, "rules": list(rules)}
    return await say(end, RULES, json.dumps(body).encode(), qos=qos, **fields)


async def told(end: Client, payload: bytes | list[Any] | Section, **fields: Any) -> tuple[int, str | None]:
    """Sends it with QoS 1: reason code and reason string."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    await end.send(wire.Publish(topic=RULES, payload=body, qos=1, packet_id=77, **fields))
    answer = await end.expect(wire.Puback)
    return answer.reason, answer.properties.reason_string


def audited(node: Served, **wanted: Any) -> list[Any]:
    return [
        row
        for row in node.node.audit.sink.recent()
        if all(getattr(row, name) == value for name, value in wanted.items())
    ]


# -- opening and closing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
@on_uvloop
async def test_a_rule_opens_its_publishers_messages_and_taken_back_closes_them(
    tmp_path: Path, version: int, qos: int
) -> None:
    async with door(tmp_path, WRITERS, policy("r", "t/other", "read"), rules=CEILING) as node:
        mary = await come(node, "mary", version=version)
        alice = await come(node, "alice", version=version)
        assert (await alice.subscribe("t/#", qos=1)).reasons[0] == 1
        await say(mary, "t/x", BODY)
        assert await inbox(alice) == []
        assert await send(mary, rule(), qos=qos) == 0
        await say(mary, "t/x", BODY)
        await say(mary, "t/x", BODY, qos=2)
        assert await content(alice) == [BODY, BODY]
        assert await send(mary, {"id": "r", "remove": True}, qos=qos) == 0
        await say(mary, "t/x", BODY)
        assert await inbox(alice) == []


@on_uvloop
async def test_what_is_published_in_the_same_breath_is_decided_by_the_new_rules(tmp_path: Path) -> None:
    """Also over connections that share their plans with others until then."""
    async with door(tmp_path, rules=CEILING) as node:
        mary, bob, alice = [await come(node, name) for name in ("mary", "bob", "alice")]
        other = await come(node, "mary", client="other")
        await alice.subscribe("t/#")
        for end in (mary, bob, other):
            await say(end, "t/x")
        assert await send(bob, rule("b", "angina", effect="deny")) == 0
        await inbox(alice)
        closing = json.dumps([rule(effect="deny")]).encode()
        opening = json.dumps([rule(effect="allow")]).encode()
        frames: list[wire.Publish] = []
        for number, body in enumerate((closing, opening, closing), 1):
            frames.append(wire.Publish(topic=RULES, payload=body, qos=1, packet_id=number))
            frames += [wire.Publish(topic="t/x", payload=b"%d" % number)] * 2
        await mary.raw(b"".join(wire.encode(frame, wire.V5) for frame in frames))
        assert [(await mary.expect(wire.Puback)).reason for _ in range(3)] == [0, 0, 0]
        await mary.silent()
        await say(other, "t/x", b"other")
        await say(bob, "t/x", b"bob")
        assert await payloads(alice) == [b"2", b"2", b"bob"]


@on_uvloop
async def test_nobody_elses_messages_are_opened_or_closed(tmp_path: Path) -> None:
    """They concern only messages whose publisher is the same, whatever the topic says."""
    async with door(tmp_path, WRITERS, policy("r", "t/open", "read"), rules=CEILING) as node:
        mary, bob, alice = [await come(node, name) for name in ("mary", "bob", "alice")]
        nobody = await come(node, None, client="mary")
        await alice.subscribe("t/#")
        assert await send(mary, rule("a", "t/shut"), rule("d", "t/open", effect="deny")) == 0
        for end, name in ((bob, b"bob"), (nobody, b"nobody"), (mary, b"mary")):
            await say(end, "t/shut", name)
            await say(end, "t/open", name + b" open")
        assert await payloads(alice) == [b"bob open", b"nobody open", b"mary"]
        again = await come(node, "mary", client="another")
        await say(again, "t/shut", b"of mary too")
        assert await payloads(alice) == [b"of mary too"]


@on_uvloop
async def test_a_rule_opens_to_those_it_names_and_to_no_others(tmp_path: Path) -> None:
    people = {**PEOPLE, "mark": user(groups=["cardiologists"])}
    rules = [WRITERS, policy("r", "t/other", "read")]
    async with door(tmp_path, *rules, rules=CEILING, directory={"users": people}) as node:
        mary, mark, bob = [await come(node, name) for name in ("mary", "mark", "bob")]
        assert await send(mary, rule("all", "angina", ["group:cardiologists", "user:carol"])) == 0
        assert (await mark.subscribe("angina")).reasons == (0,)
        assert (await bob.subscribe("angina")).reasons == (0x87,)
        await say(mary, "angina", b"steady")
        assert await payloads(mark) == [b"steady"]


@pytest.mark.parametrize("combining", ["deny-overrides", "permit-overrides", "first-applicable"])
@pytest.mark.parametrize("when", [None, "o.payload.a == 1", "s.user == 'alice'", "e.hour >= 0", "p.user == 'mary'"])
@on_uvloop
async def test_a_rule_does_not_beat_a_policy_that_denies(tmp_path: Path, combining: str, when: str | None) -> None:
    more = {} if when is None else {"when": when}
    deny = policy("no", "t/shut", "read", subject="user:alice", effect="deny", **more)
    async with door(tmp_path, WRITERS, MARK, deny, rules=CEILING, combining=combining) as node:
        mary, alice, bob = [await come(node, name) for name in ("mary", "alice", "bob")]
        assert await send(mary, rule(subject="*"), rule("more", "t/shut", subject="user:alice")) == 0
        for end in (alice, bob):
            await end.subscribe("t/#")
        await say(mary, "t/shut", BODY)
        await say(mary, "t/free", {"a": 2})
        assert await content(alice) == [{"a": 2}]
        assert await content(bob) == [BODY, {"a": 2}]
        if when == "o.payload.a == 1":
            await say(mary, "t/shut", {"a": 2})
            assert await content(alice) == [{"a": 2}]


@pytest.mark.parametrize("combining", ["deny-overrides", "permit-overrides", "first-applicable"])
@on_uvloop
async def test_an_error_in_a_policy_denies_whatever_a_rule_says(tmp_path: Path, combining: str) -> None:
    """*in an applicable policy denies, whatever the combining algorithm*"""
    wrong = policy("wrong", "t/#", "read", when="o.payload.a > 1", effect="deny")
    async with door(tmp_path, WRITERS, wrong, rules=CEILING, combining=combining) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        assert await send(mary, rule()) == 0
        await alice.subscribe("t/#")
        for body in (b"no JSON", b'{"a":2}', b'{"a":1}'):
            await say(mary, "t/x", body)
        assert await payloads(alice) == [b'{"a":1}']


@on_uvloop
async def test_where_policies_are_open_rules_can_still_close(tmp_path: Path) -> None:
    async with door(tmp_path, rules=CEILING, policies="open") as node:
        mary, alice, bob = [await come(node, name) for name in ("mary", "alice", "bob")]
        for end in (alice, bob):
            await end.subscribe("t/#")
        assert await send(mary, rule("d", subject="*", effect="deny"), rule("a", subject="user:bob")) == 0
        await say(mary, "t/x")
        assert await inbox(alice) == await inbox(bob) == []
        assert await send(mary, rule("d", subject="user:alice", effect="deny")) == 0
        await say(mary, "t/x", b"two")
        assert await inbox(alice) == []
        assert await payloads(bob) == [b"two"]


@on_uvloop
async def test_conditions_of_rules_read_reader_message_clock_and_publisher(tmp_path: Path) -> None:
    """And one that fails counts as false, and is shown in the audit with its id."""
    async with door(tmp_path, WRITERS, rules=CEILING) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        when = "s.user == 'alice' && o.payload.a > 1 && e.hour >= 0 && p.client == 'mary'"
        assert await send(mary, rule(when=when), rule("bad", when="o.payload.b == 1", effect="deny")) == 0
        await alice.subscribe("t/#")
        for body in ({"a": 1, "b": 0}, {"a": 2, "b": 0}, {"a": 3, "b": 1}, {"a": 4}):
            await say(mary, "t/x", body)
        assert [body["a"] for body in await content(alice)] == [2, 4]
        other = await come(node, "mary", client="other")
        await say(other, "t/x", {"a": 5, "b": 0})
        assert await inbox(alice) == []
        [row] = audited(node, kind="error")
        assert row.rule == "rule:user:mary/bad"
        assert any(row.rule == "rule:user:mary/bad" for row in audited(node, kind="deny", action="read"))


@on_uvloop
async def test_preferences_still_restrict_what_a_rule_opens(tmp_path: Path) -> None:
    preference = {"id": "up", "user": "mary", "topic": "t/#", "when": "s.user == 'bob'"}
    async with door(tmp_path, WRITERS, rules=CEILING, preferences=[preference]) as node:
        mary, alice, bob = [await come(node, name) for name in ("mary", "alice", "bob")]
        assert await send(mary, rule(subject="*")) == 0
        for end in (alice, bob):
            await end.subscribe("t/#")
        await say(mary, "t/x")
        assert await inbox(alice) == []
        assert await payloads(bob) == [b"x"]


# -- wills, retained and queued messages -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_rules_concern_wills_retained_and_queued_messages(tmp_path: Path, version: int) -> None:
    async with door(tmp_path, rules=CEILING) as node:
        mary = await come(node, "mary", version=version)
        alice = await come(node, "alice", version=version, stays=True)
        await alice.subscribe("t/#", qos=1)
        await go(node, alice)
        await say(mary, "t/queued", b"queued", qos=1)
        await say(mary, "t/kept", b"kept", qos=1, retain=True)
        assert await send(mary, rule(effect="deny")) == 0
        last = wire.Will(topic="t/will", payload=b"will", qos=1, retain=True)
        await go(node, await come(node, "mary", client="dying", version=version, will=last))
        alice = await come(node, "alice", version=version, stays=True)
        assert await inbox(alice) == []
        await alice.subscribe("t/#", qos=1)
        assert await inbox(alice) == []
        assert await send(mary, {"id": "r", "remove": True}) == 0
        await alice.subscribe("t/#", qos=1)
        assert sorted(await payloads(alice)) == [b"kept", b"will"]


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_held_subscriptions_come_alive_with_their_retained_messages(tmp_path: Path, version: int) -> None:
    """*comes alive (retained messages included) when a later policy or publisher rule allows it*"""
    async with door(tmp_path, WRITERS, rules=CEILING, subscribe="hold") as node:
        mary, bob = await come(node, "mary"), await come(node, "bob")
        alice = await come(node, "alice", version=version)
        for end in (mary, bob):
            await say(end, f"t/{'mary' if end is mary else 'bob'}", b"kept", qos=1, retain=True)
        assert (await alice.subscribe("t/#", qos=1)).reasons == (1,)
        assert (await alice.subscribe("other", qos=1)).reasons == (1,)
        session = node.node.scopes["main"].sessions["user:alice", "alice"]
        assert session.held == 2
        assert await send(mary, rule()) == 0
        got = await alice.message()
        assert (got.topic, got.payload, got.retain) == ("t/mary", b"kept", True)
        await say(mary, "t/live", b"live")
        assert await payloads(alice) == [b"live"]
        assert session.held == 1
        assert await send(mary, {"id": "r", "remove": True}) == 0
        await until(lambda: session.held == 2)
        assert await send(mary, rule("again", expires=3600)) == 0
        assert (await alice.message()).payload == b"kept"


@on_uvloop
async def test_a_held_subscription_gets_the_retained_messages_of_every_publisher_that_opens(tmp_path: Path) -> None:
    """The first one wakes it; each later one brings its own, once."""
    async with door(tmp_path, WRITERS, MARK, rules=CEILING, subscribe="hold") as node:
        mary, bob = await come(node, "mary"), await come(node, "bob")
        alice = await come(node, "alice")
        await say(mary, "t/mary", b"1", qos=1, retain=True)
        for topic in ("t/bob/1", "t/bob/2", "angina"):
            await say(bob, topic, b"2", qos=1, retain=True)
        await alice.subscribe("#", "t/+", qos=1)
        await alice.subscribe("t/bob/1", qos=1, retain_handling=2)  # it wants none
        assert await send(mary, rule("r", "t/mary")) == 0
        assert [(await alice.message()).topic for _ in range(2)] == ["t/mary"] * 2  # by both subscriptions
        assert await send(bob, rule("r", "t/bob/1")) == 0
        assert (await alice.message()).topic == "t/bob/1"
        assert await send(bob, rule("s", "t/#")) == 0  # what was open before does not come again
        assert (await alice.message()).topic == "t/bob/2"
        assert await send(bob, {"id": "s", "remove": True}) == 0
        assert await send(bob, rule("angina", "angina"), rule("r", "t/bob/1")) == 0
        assert (await alice.message()).topic == "angina"
        await until(lambda: not node.node.site.unfinished)
        assert await inbox(alice) == []


# -- the ceiling, and what cannot be said ----------------------------------------------------------------------------


@on_uvloop
async def test_what_the_administrator_does_not_let_publishers_grant_is_refused_whole(tmp_path: Path) -> None:
    async with door(tmp_path, WRITERS, rules=CEILING, explain=True) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        assert await send(mary, rule("fine", "t/fine")) == 0
        for topic in ("#", "+/x", "other", "t", "$SYS/#"):
            reason, why = await told(mary, [rule("one"), rule("two", topic), {"id": "fine", "remove": True}])
            if topic == "t":
                assert reason == 0  # `t/#` holds its parent
                assert await send(mary, {"id": "one", "remove": True}, {"id": "two", "remove": True}, rule("fine")) == 0
                continue
            assert reason == 0x87
            assert why is not None
            assert why.startswith(f"rules: `two`: publishers may not grant or deny `{topic}` here")
        await alice.subscribe("t/#")
        await say(mary, "t/fine")
        assert await payloads(alice) == [b"x"]
        row = audited(node, kind="deny", rule="rules")[0]
        assert (row.action, row.topic, row.stage, row.user) == ("write", RULES, "write", "mary")


@on_uvloop
async def test_a_ceiling_that_is_lowered_and_raised_again_counts_at_once(tmp_path: Path) -> None:
    """They stay stored, and count for nothing while they are not covered."""
    async with door(tmp_path, WRITERS, policy("r", "other", "read"), rules=CEILING) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        assert await send(mary, rule("wide"), rule("narrow", "t/a")) == 0
        await alice.subscribe("t/#")
        for allow, expected in ((["t/a"], [b"a"]), (None, []), (["#"], [b"a", b"b"]), (["t/+"], [b"a"])):
            more: Section = {} if allow is None else {"rules": {"allow": allow}}
            await node.reload(setting(WRITERS, policy("r", "other", "read"), **more))
            await say(mary, "t/a", b"a")
            await say(mary, "t/b", b"b")
            assert await payloads(alice) == expected
            assert (await send(mary, sequence=0)) == 0x87


@on_uvloop
async def test_without_the_section_the_topic_is_refused(tmp_path: Path) -> None:
    async with door(tmp_path, explain=True) as node:
        mary = await come(node, "mary")
        assert await told(mary, [rule()]) == (0x87, "denied by reserved")
        old = await come(node, "bob", version=wire.V311)
        await say(old, RULES, b"[]", qos=1)
        await old.silent()


@on_uvloop
async def test_a_policy_may_forbid_somebody_to_send_rules(tmp_path: Path) -> None:
    """What no policy speaks of is open here; one that denies counts."""
    no_mary = policy("no-mary", RULES, "write", subject="user:mary", effect="deny")
    large = policy("large", RULES, "write", effect="deny", when="o.size > 1000")
    async with door(tmp_path, WRITERS, no_mary, large, rules=CEILING, explain=True) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob")
        assert await told(mary, [rule()]) == (0x87, "denied by no-mary")
        assert await send(bob, rule()) == 0
        assert await told(bob, b" " * 1001) == (0x87, "denied by large")


@on_uvloop
async def test_nobody_in_particular_has_no_rules(tmp_path: Path) -> None:
    async with door(tmp_path, rules=CEILING, explain=True) as node:
        nobody = await come(node, None, client="mary")
        reason, why = await told(nobody, [rule()])
        assert reason == 0x87
        assert why == "rules: nobody in particular has no messages of its own: say who you are"
        assert len(node.node.scopes["main"].publishers) == 0


@on_uvloop
async def test_a_client_without_a_user_has_rules_by_its_certificate(tmp_path: Path, certificates: Path) -> None:
    """And one that only uses its name does not have its messages opened."""
    async with door(tmp_path, WRITERS, rules=CEILING, certificates=certificates) as node:
        sensor = await come(node, None, client="sensor", tls=secure(certificates, "sensor"))
        alice = await come(node, "alice")
        assert await send(sensor, rule()) == 0
        await alice.subscribe("t/#", qos=1)
        await say(sensor, "t/x", b"real", qos=1, retain=True)
        impostor = await come(node, None, client="sensor")
        await say(impostor, "t/y", b"false", qos=1, retain=True)
        assert await payloads(alice) == [b"real"]
        again = await come(node, "alice", client="again")
        await again.subscribe("t/#", qos=1)
        assert await payloads(again) == [b"real"]


@pytest.mark.parametrize(
    ("payload", "reason", "why"),
    [
        (b"{", 0x99, "it is no JSON"),
        (b"\xff", 0x99, "it is no JSON"),
        (b"", 0x99, "it is no JSON"),
        (b"5", 0x87, "it is a list of rules, or `{sequence, rules}`"),
        (b"{}", 0x87, "it is a list of rules, or `{sequence, rules}`"),
        (b'{"rules": [], "more": 1}', 0x87, "it is a list of rules, or `{sequence, rules}`"),
        (b'{"rules": [], "sequence": "1"}', 0x87, "`sequence` is a whole number"),
        (b"[1]", 0x87, "rule 1 has no `id` that can be used"),
        (b'[{"id": "a/b"}]', 0x87, "rule 1 has no `id` that can be used"),
        (b'[{"id": "a"}]', 0x87, "`a`: `topic` is missing"),
        (b'[{"id": "a", "topic": "t/{s.user}", "subject": "*"}]', 0x87, "`a`: `t/{s.user}` has a placeholder"),
        (b'[{"id": "a", "topic": "t/x", "subject": "mary"}]', 0x87, "`a`: `mary` is no subject"),
        (b'[{"id": "a", "topic": "t/x", "subject": "*", "when": "1 +"}]', 0x87, "`a`: `when` is no condition"),
        (b'[{"id": "a", "topic": "t/x", "subject": "*", "effect": "maybe"}]', 0x87, "`a`: `effect` is `allow` or"),
        (b'[{"id": "a", "topic": "t/x", "subject": "*", "expires": -1}]', 0x87, "`a`: `expires` is past"),
        (b'[{"id": "a", "topic": "t/x", "subject": "*", "to": 1}]', 0x87, "`a`: `to` is not known"),
        (b" " * (64 * 1024 + 1), 0x97, "it has more than 64 KiB"),
    ],
)
@on_uvloop
async def test_what_is_wrong_is_refused_with_the_reason(tmp_path: Path, payload: bytes, reason: int, why: str) -> None:
    async with door(tmp_path, rules=CEILING, explain=True) as node:
        mary = await come(node, "mary")
        found, said = await told(mary, payload)
        assert found == reason
        assert said is not None
        assert said.startswith(f"rules: {why}")


@on_uvloop
async def test_a_refusal_is_told_as_any_other(tmp_path: Path) -> None:
    """With QoS 2 at the first PUBLISH; MQTT 3.1.1 cannot be told; without `explain` no reason string."""
    async with door(tmp_path, rules=CEILING) as node:
        mary = await come(node, "mary")
        assert await told(mary, b"{") == (0x99, None)
        await mary.send(wire.Publish(topic=RULES, payload=b"{", qos=2, packet_id=5))
        assert (await mary.expect(wire.Pubrec)).reason == 0x99
        await mary.send(wire.Pubrel(packet_id=5))
        assert (await mary.expect(wire.Pubcomp)).reason == 0x92
        old = await come(node, "bob", version=wire.V311)
        for qos in (0, 1, 2):
            assert await say(old, RULES, b"{", qos=qos) == 0
        assert len(audited(node, kind="deny", rule="rules")) == 2
        counted = node.node.site.counters.denied
        assert counted == 5


@on_uvloop
async def test_with_qos_2_they_are_taken_once_at_the_first_publish(tmp_path: Path) -> None:
    async with door(tmp_path, rules=CEILING) as node:
        mary = await come(node, "mary")
        publishers = node.node.scopes["main"].publishers
        packet = wire.Publish(topic=RULES, payload=json.dumps([rule()]).encode(), qos=2, packet_id=5)
        await mary.send(packet)
        assert (await mary.expect(wire.Pubrec)).reason == 0
        assert len(publishers) == 1
        await mary.send(wire.Publish(topic=RULES, payload=packet.payload, qos=2, packet_id=5, dup=True))
        assert (await mary.expect(wire.Pubrec)).reason == 0
        await mary.send(wire.Pubrel(packet_id=5))
        assert (await mary.expect(wire.Pubcomp)).reason == 0
        assert len(audited(node, kind="change", action="rules")) == 1


@on_uvloop
async def test_they_are_not_retained_not_a_will_and_not_heard(tmp_path: Path) -> None:
    async with door(tmp_path, rules=CEILING, policies="open", explain=True) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        for filter in (RULES, "$tidegate/#", "$tidegate/+", "$share/g/$tidegate/rules"):
            assert (await alice.subscribe(filter)).reasons == (0x87,)
        await alice.subscribe("#")
        reason, why = await told(mary, [rule()], retain=True)
        assert reason == 0x87
        assert why is not None
        assert why.startswith("rules: rules are not retained")
        last = wire.Will(topic=RULES, payload=json.dumps([rule()]).encode(), qos=1, retain=False)
        await come(node, "bob", will=last, expect=0x87)
        assert await send(mary, rule(effect="allow")) == 0
        assert await inbox(alice) == []
        assert len(node.node.scopes["main"].retained) == 0


# -- sequence, expiry, restart -----------------------------------------------------------------------------------------


@on_uvloop
async def test_a_stale_sequence_is_refused(tmp_path: Path) -> None:
    async with door(tmp_path, WRITERS, rules=CEILING, explain=True) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        assert await send(mary, rule(), sequence=7) == 0
        for stale in (7, 6, 0):
            reason, why = await told(mary, {"sequence": stale, "rules": [{"id": "r", "remove": True}]})
            assert reason == 0x87
            assert why == f"rules: sequence {stale} is stale: 7 has been seen, send a higher one"
        assert await send(mary, rule("more")) == 0  # the node gives the next
        assert await send(mary, sequence=8) == 0x87
        await alice.subscribe("t/#")
        await say(mary, "t/x")
        assert await payloads(alice) == [b"x"]
        rows = audited(node, kind="change", action="rules")
        assert [(row.user, row.detail) for row in rows] == [("mary", "sequence 7: r"), ("mary", "sequence 8: more")]


@on_uvloop
async def test_a_rule_expires_and_does_not_come_back_with_the_clock(
    tmp_path: Path, clock: Callable[[str], None]
) -> None:
    async with door(tmp_path, WRITERS, MARK, rules=CEILING) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        assert await send(mary, rule(expires="2026-02-11T13:00:00Z"), rule("two", "t/two", expires="2h")) == 0
        assert (await alice.subscribe("t/#")).reasons == (0,)
        await say(mary, "t/x", b"open")
        clock("2026-02-11T12:59:59")
        await say(mary, "t/x", b"still")
        clock("2026-02-11T13:00:00")
        await say(mary, "t/x", b"over")
        await say(mary, "t/two", b"two")
        clock("2026-02-11T11:00:00")
        for topic in ("t/x", "t/new"):
            await say(mary, topic, b"back")
        await say(mary, "t/two", b"two")
        assert await payloads(alice) == [b"open", b"still", b"two", b"two"]
        publishers = node.node.scopes["main"].publishers
        await until(lambda: len(publishers) == 1)
        clock("2026-02-11T14:00:01")
        await say(mary, "t/two", b"over")
        await until(lambda: len(publishers) == 0)
        assert await inbox(alice) == []
        bob = await come(node, "bob")
        assert (await bob.subscribe("t/#")).reasons == (0x87,)


@on_uvloop
async def test_a_clock_that_is_put_back_does_not_prolong_a_rule(tmp_path: Path, clock: Callable[[str], None]) -> None:
    """What counts then is how long the node has run."""
    async with door(tmp_path, WRITERS, rules=CEILING) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        assert await send(mary, rule(expires=0.3)) == 0
        await alice.subscribe("t/#")
        await say(mary, "t/x", b"open")
        clock("2026-02-10T12:00:00")
        publishers = node.node.scopes["main"].publishers
        await until(lambda: len(publishers) == 0)
        await say(mary, "t/x", b"over")
        assert await payloads(alice) == [b"open"]


@on_uvloop
async def test_a_rule_that_denies_ends_with_its_time(tmp_path: Path, clock: Callable[[str], None]) -> None:
    async with door(tmp_path, rules=CEILING) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t/#")
        assert await send(mary, rule(effect="deny", expires=60)) == 0
        await say(mary, "t/x", b"shut")
        clock("2026-02-11T12:01:01")
        await say(mary, "t/x", b"open")
        assert await payloads(alice) == [b"open"]


@on_uvloop
async def test_a_restart_keeps_them_with_their_sequence(tmp_path: Path) -> None:
    text = setting(WRITERS, MARK, rules=CEILING, subscribe="hold", data=True)
    async with from_file(tmp_path, text) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        assert await send(mary, rule("a"), rule("d", "t/shut", effect="deny"), sequence=41) == 0
        assert await send(mary, rule("b", "angina", expires="1h"), {"id": "d", "remove": True}) == 0
        assert await send(mary, rule("d", "t/shut", when="o.payload.a == 1", effect="deny"), qos=2) == 0
        await alice.subscribe("t/#", "mark", qos=1)
        await go(node, alice)
        await say(mary, "t/x", b"queued", qos=1)
        await say(mary, "t/kept", b"kept", qos=1, retain=True)
    async with from_file(tmp_path, text) as node:
        assert len(node.node.scopes["main"].publishers) == 3
        mary = await come(node, "mary")
        assert await send(mary, sequence=43) == 0x87
        alice = await come(node, "alice", stays=True)
        await say(mary, "t/shut", {"a": 1})
        await say(mary, "t/shut", {"a": 2})
        assert sorted(await marked(alice, node)) == [b"kept", b"queued", b'{"a": 2}']
        assert await send(mary, {"id": "a", "remove": True}, sequence=44) == 0
        await say(mary, "t/x", b"shut")
        assert await marked(alice, node) == []
    async with from_file(tmp_path, text) as node:
        assert len(node.node.scopes["main"].publishers) == 2


@pytest.mark.parametrize("restart", [False, True])
@on_uvloop
async def test_who_is_removed_and_has_no_rules_left_gives_its_place_back(tmp_path: Path, restart: bool) -> None:
    """There are 10,000 places. What somebody said about messages that are kept here still counts."""

    def text(*names: str) -> str:
        users = {name: user() for name in names}
        return setting(WRITERS, rules=CEILING, data=True, directory={"users": users})

    async with from_file(tmp_path, text("mary", "bob")) as node:
        publishers = node.node.scopes["main"].publishers
        for name in ("mary", "bob"):
            end = await come(node, name)
            assert await send(end, rule("a"), sequence=5) == 0
            if name == "mary":
                assert await send(end, {"id": "a", "remove": True}, sequence=6) == 0
            await end.disconnect()
        assert publishers.counted("").publishers == 2
        if not restart:
            node.file.write(text("zoe"))
            await node.node.reload()
            assert publishers.counted("").publishers == 1
            assert len(publishers) == 1
            node.file.write(text("zoe", "mary"))
            await node.node.reload()
            mary = await come(node, "mary")
            assert await send(mary, rule("a"), sequence=1) == 0, "she is another one, with a sequence of her own"
    async with from_file(tmp_path, text("zoe")) as node:
        assert node.node.scopes["main"].publishers.counted("").publishers == (1 if restart else 2)


# -- what they cost others ---------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_flood_of_rules_is_refused_and_leaves_others_their_plans(tmp_path: Path) -> None:
    async with door(tmp_path, rules=CEILING) as node:
        mary, bob, alice = [await come(node, name) for name in ("mary", "bob", "alice")]
        await alice.subscribe("t/#")
        for number in range(50):
            await say(bob, f"t/{number}")
        await say(mary, "t/mine")
        gate = node.node.scopes["main"].gate
        connection = node.node.scopes["main"].sessions["user:bob", "bob"].connection
        assert connection is not None
        assert isinstance(connection.reader.lane, Lane)
        before = dict(connection.reader.lane.plans)
        assert len(before) >= 50
        body = json.dumps([rule(f"r{number}", effect="deny") for number in range(100)]).encode()
        packet = wire.encode(wire.Publish(topic=RULES, payload=body, qos=1, packet_id=9), wire.V5)
        reasons = []
        for _ in range(30):
            await mary.raw(packet)
            reasons.append((await mary.expect(wire.Puback)).reason)
        assert reasons[0] == 0
        assert reasons[-1] == 0x97
        assert 5 <= reasons.count(0) <= 15
        plans = connection.reader.lane.plans
        assert {name: plan for name, plan in plans.items() if before.get(name) is plan} == before
        await inbox(alice)
        await say(mary, "t/mine", b"mary")
        await say(bob, "t/1", b"bob")
        assert await payloads(alice) == [b"bob"]
        await until(lambda: not gate.cache.tidy())
        assert gate.cache.cost == sum(plan.cost for _, plan in gate.cache.plans())


@on_uvloop
async def test_too_many_rules_are_refused_whole(tmp_path: Path) -> None:
    async with door(tmp_path, rules=CEILING, explain=True) as node:
        mary = await come(node, "mary")
        assert await send(mary, *(rule(f"r{number}") for number in range(100))) == 0
        assert await told(mary, [rule("more")]) == (
            0x97,
            "rules: you would have 101 rules, and 100 are allowed: remove some",
        )
        assert await send(mary, rule("more"), {"id": "r7", "remove": True}) == 0
        reason, why = await told(mary, [rule(f"r{number}", when=f"o.size > {number}") for number in range(10, 31)])
        assert reason == 0x97
        assert why is not None
        assert "rules with a condition" in why
        assert len(node.node.scopes["main"].publishers) == 100


@on_uvloop
async def test_instructions_of_the_message_itself_change_nothing(tmp_path: Path) -> None:
    async with door(tmp_path, WRITERS, rules=CEILING) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        ask = asking(("require", "plain"), ("view", "{}"))
        await mary.send(
            wire.Publish(topic=RULES, payload=json.dumps([rule()]).encode(), qos=1, packet_id=3, properties=ask)
        )
        assert (await mary.expect(wire.Puback)).reason == 0
        await alice.subscribe("t/#")
        await say(mary, "t/x", BODY, ("require", "plain"))
        assert await content(alice) == [BODY]
        assert await send(mary, {"id": "r", "remove": True}) == 0
        await say(mary, "t/x", BODY, ("require", "plain"))
        assert await inbox(alice) == []


# -- topics that are renamed -------------------------------------------------------------------------------------------


def linked(local: str, remote: str, **sections: Any) -> str:
    """Two scopes, and a link from `a` to `b` that calls topics otherwise."""
    share = {"topic": "#", "direction": "out", "local_prefix": local, "remote_prefix": remote}
    return setting(
        WRITERS,
        policy("link", subject="link:a->b"),
        rules={"allow": ["#"]},
        scopes={"a": {}, "b": {}},
        links=[{"from": "a", "to": "b", "share": [share]}],
        listeners=[
            {"url": "mqtt://127.0.0.1:PORT", "scope": "a"},
            {"url": "mqtt://127.0.0.1:B_PORT", "scope": "b"},
        ],
        **sections,
    )


@on_uvloop
async def test_a_rule_does_not_open_what_a_link_calls_by_its_topic(tmp_path: Path) -> None:
    async with from_file(tmp_path, linked("secret/", "pub/")) as node:
        mary, there = await come(node, "mary"), await come(node, "mary", client="m2", port="B_PORT")
        bob = await come(node, "bob", port="B_PORT")
        assert await send(mary, rule(topic="pub/#", subject="user:bob")) == 0
        assert (await bob.subscribe("#", qos=1)).reasons == (1,)
        for _ in range(2):  # compiled, and by its plan
            await say(mary, "secret/x", b"hers", qos=1)
            await say(there, "pub/x", b"open", qos=1)
        assert await payloads(bob) == [b"open", b"open"]


@on_uvloop
@pytest.mark.parametrize("filter", ["#", "A/t/#", "A/t/1"])
async def test_a_rule_opens_what_a_link_calls_otherwise(tmp_path: Path, filter: str) -> None:
    async with from_file(tmp_path, linked("", "A/")) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob", port="B_PORT")
        carol = await come(node, "carol", port="B_PORT")
        assert await send(mary, rule(subject="user:bob"), rule("n", "A/#", "user:carol")) == 0
        assert (await bob.subscribe(filter, qos=1)).reasons == (1,)
        await carol.subscribe("#", qos=1)
        for payload in (b"1", b"2"):
            await say(mary, "t/1", payload, qos=1)
            await say(mary, "other", payload, qos=1)
        assert [(each.topic, each.payload) for each in await inbox(bob)] == [("A/t/1", b"1"), ("A/t/1", b"2")]
        assert await inbox(carol) == []


@on_uvloop
async def test_a_rule_closes_what_its_publisher_called_so_and_nothing_that_a_link_calls_so(tmp_path: Path) -> None:
    everything = [policy("all", subject="*")]
    text = json.dumps(json.loads(linked("secret/", "pub/")) | {"policies": everything})
    async with from_file(tmp_path, text) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob", port="B_PORT")
        await bob.subscribe("#", qos=1)
        closed = [rule("d", "pub/#", "user:bob", effect="deny"), rule("e", "secret/hers/#", "user:bob", effect="deny")]
        assert await send(mary, *closed) == 0
        for _ in range(2):  # compiled, and by its plan
            await say(mary, "secret/x", b"open", qos=1)
            await say(mary, "secret/hers/x", b"closed", qos=1)
        assert await payloads(bob) == [b"open", b"open"]


@on_uvloop
async def test_a_rule_about_other_topics_grants_no_subscription(tmp_path: Path) -> None:
    """Where links rename, a SUBSCRIBE is granted by the rules about the names that its topics had before."""
    async with from_file(tmp_path, linked("", "A/")) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob", port="B_PORT")
        assert await send(mary, rule(topic="t/#", subject="user:bob")) == 0
        for filter, reason in (("A/t/+", 0), ("t/1", 0), ("A/other", 0x87), ("other/#", 0x87), ("+/t/1", 0)):
            assert (await bob.subscribe(filter)).reasons == (reason,), filter


@on_uvloop
async def test_a_rule_wakes_a_held_subscription_to_what_a_link_calls_otherwise(tmp_path: Path) -> None:
    async with from_file(tmp_path, linked("", "A/", subscribe="hold")) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob", port="B_PORT")
        assert (await bob.subscribe("A/t/#", qos=1)).reasons == (1,)
        await say(mary, "t/1", b"kept", qos=1, retain=True)
        assert await inbox(bob) == []
        assert await send(mary, rule(subject="user:bob")) == 0
        assert (await bob.message()).payload == b"kept"
        await say(mary, "t/1", b"live", qos=1)
        assert (await bob.message()).payload == b"live"


@on_uvloop
async def test_a_rule_is_about_the_topic_before_a_monitor_maps_it(tmp_path: Path) -> None:
    monitor = {"id": "m", "scope": "main", "direction": "im_pub", "map": {"t/old": "t/new"}}
    writers = policy("w", "#", "write", subject=["*", "monitor:m"])
    async with door(tmp_path, writers, rules=CEILING, monitors=[monitor]) as node:
        mary, alice, bob = [await come(node, name) for name in ("mary", "alice", "bob")]
        assert await send(mary, rule("o", "t/old"), rule("n", "t/new", "user:bob")) == 0
        for reader in (alice, bob):
            assert (await reader.subscribe("t/new", qos=1)).reasons == (1,)
        await say(mary, "t/old", b"1", qos=1)
        await say(mary, "t/old", b"2", qos=1)
        assert (await payloads(alice), await payloads(bob)) == ([b"1", b"2"], [])
