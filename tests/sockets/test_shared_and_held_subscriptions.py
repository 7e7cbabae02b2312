"""Shared subscriptions with denied members, and subscriptions that are held.

Each test quotes the sentence of the specification that it holds the node to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Served, from_file, on_uvloop, until
from sockets.acts import (
    ALL,
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

NO_ALICE = policy("no-alice", "t/#", subject="user:alice", effect="deny", action="read")
WITHOUT_ALICE = {name: entry for name, entry in PEOPLE.items() if name != "alice"}
WRITERS = policy("w", "#", "write")


# -- shared subscriptions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
@on_uvloop
async def test_the_receiver_is_chosen_among_the_allowed(tmp_path: Path, version: int, qos: int) -> None:
    """*Shared subscriptions: the receiver is chosen among the members that are allowed this message.*"""
    async with door(tmp_path, ALL, NO_ALICE) as node:
        mary = await come(node, "mary")
        ends = [await come(node, name, version=version) for name in ("alice", "bob", "carol")]
        for end in ends:
            assert (await end.subscribe("$share/g/#", qos=qos)).reasons == (qos,)
        for number in range(6):
            await say(mary, "t/1", b"%d" % number, qos=qos)
        alice, bob, carol = [await payloads(end) for end in ends]
        assert alice == []
        assert len(bob) == len(carol) == 3
        assert sorted(bob + carol) == [b"%d" % number for number in range(6)]


@on_uvloop
async def test_with_all_members_denied_nobody_gets_it(tmp_path: Path) -> None:
    """The same where none is allowed; nor does it wait for one."""
    async with door(tmp_path, ALL, policy("no", "t/#", effect="deny", action="read")) as node:
        mary = await come(node, "mary")
        alice, bob = await come(node, "alice", stays=True), await come(node, "bob", stays=True)
        for end in (alice, bob):
            await end.subscribe("$share/g/#", qos=1)
        assert await say(mary, "t/1", qos=1) == 0x10
        await go(node, bob)
        assert await say(mary, "t/1", qos=1) == 0x10
        await node.reload(setting())
        bob = await come(node, "bob", stays=True)
        assert await inbox(alice) == await inbox(bob) == []


@on_uvloop
async def test_with_the_allowed_away_it_waits_for_them(tmp_path: Path) -> None:
    """A denied member that is there does not get what waits for an allowed one that is away."""
    async with door(tmp_path, ALL, NO_ALICE) as node:
        mary = await come(node, "mary")
        alice, bob = await come(node, "alice"), await come(node, "bob", stays=True)
        for end in (alice, bob):
            await end.subscribe("$share/g/#", qos=1)
        await go(node, bob)
        for number in range(3):
            assert await say(mary, "t/1", b"%d" % number, qos=1) == 0
        assert await inbox(alice) == []
        bob = await come(node, "bob", stays=True)
        assert await payloads(bob) == [b"0", b"1", b"2"]


@on_uvloop
async def test_with_the_denied_away_the_allowed_get_it(tmp_path: Path) -> None:
    """Nor does anything wait for a denied member that is away."""
    async with door(tmp_path, ALL, NO_ALICE) as node:
        mary = await come(node, "mary")
        alice, bob = await come(node, "alice", stays=True), await come(node, "bob", stays=True)
        for end in (alice, bob):
            await end.subscribe("$share/g/#", qos=1)
        await go(node, alice)
        for number in range(4):
            await say(mary, "t/1", b"%d" % number, qos=1)
        assert len(await payloads(bob)) == 4
        await go(node, bob)
        await say(mary, "t/1", b"4", qos=1)
        alice = await come(node, "alice", stays=True)
        assert await inbox(alice) == []
        bob = await come(node, "bob", stays=True)
        assert await payloads(bob) == [b"4"]


@on_uvloop
async def test_the_choice_is_made_by_the_message(tmp_path: Path) -> None:
    """*allowed this message*: by its content, its owner's preference, its publisher's view and demand."""
    rules = [
        WRITERS,
        policy("small", "#", "read", subject="user:alice", when="o.payload.a < 3"),
        policy("bob", subject="user:bob"),
    ]
    preferences = [{"id": "up", "user": "carol", "topic": "#", "when": "s.user == 'alice'", "keep": ["/a"]}]
    async with door(tmp_path, *rules, preferences=preferences) as node:
        mary, carol = await come(node, "mary"), await come(node, "carol")
        alice, bob = await come(node, "alice"), await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("$share/g/#", qos=1)
        for value in (5, 6, 7):
            await say(mary, "t", {"a": value}, qos=1)
        assert await inbox(alice) == []
        assert len(await inbox(bob)) == 3
        for _ in range(3):
            await say(carol, "t", {"a": 1, "b": 2}, qos=1)
        assert await content(alice) == [{"a": 1}] * 3
        for _ in range(3):
            await say(mary, "t", {"a": 1, "b": 2}, ("view", '{"user:bob": ["/b"]}'), qos=1)
        assert await inbox(alice) == []
        assert await content(bob) == [{"b": 2}] * 3


@on_uvloop
async def test_conditions_of_members_are_their_own(tmp_path: Path) -> None:
    """A member that does not want a message leaves it to another."""
    async with door(tmp_path) as node:
        mary, alice, bob = await come(node, "mary"), await come(node, "alice"), await come(node, "bob")
        await alice.subscribe("$share/g/t", properties=asking(("where", "o.payload.a == 1")))
        await bob.subscribe("$share/g/t", properties=asking(("where", "o.payload.a == 2")))
        for value in (1, 1, 2, 2, 3):
            await say(mary, "t", {"a": value})
        assert await content(alice) == [{"a": 1}] * 2
        assert await content(bob) == [{"a": 2}] * 2


@on_uvloop
async def test_what_waits_for_a_member_that_is_denied_now_goes_to_another(tmp_path: Path) -> None:
    """*chosen among the members that are allowed this message*, *decided when it is sent*: it is not lost with the one
    that was chosen when it was queued."""
    async with door(tmp_path) as node:
        mary = await come(node, "mary")
        alice, bob = await come(node, "alice", stays=True), await come(node, "bob", stays=True)
        await alice.subscribe("$share/g/t/1", qos=1)
        await go(node, alice)
        await say(mary, "t/1", b"1", qos=1)
        await bob.subscribe("$share/g/t/1", qos=1)
        await node.reload(setting(ALL, NO_ALICE))
        alice = await come(node, "alice", stays=True)
        assert await inbox(alice) == []
        assert await payloads(bob) == [b"1"]


@on_uvloop
async def test_what_waits_for_a_member_that_comes_back_over_a_worse_connection_goes_to_another(
    tmp_path: Path, certificates: Path
) -> None:
    """The same when it is the publisher's demand that the connection does not meet."""
    async with door(tmp_path, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", tls=secure(certificates), stays=True)
        await alice.subscribe("$share/g/t", qos=1)
        await go(node, alice)
        await say(mary, "t", b"1", ("require", "tls"), qos=1)
        bob = await come(node, "bob", tls=secure(certificates))
        await bob.subscribe("$share/g/t", qos=1)
        alice = await come(node, "alice", stays=True)
        assert await inbox(alice) == []
        assert await payloads(bob) == [b"1"]


@pytest.mark.parametrize("data", [False, True])
@on_uvloop
async def test_what_was_sent_to_a_member_that_is_denied_now_goes_to_another(tmp_path: Path, data: bool) -> None:
    """An acknowledged message that the member has not acknowledged is not lost. QoS 2 goes to nobody else
    [MQTT-4.8.2-5]."""
    async with door(tmp_path, data=data) as node:
        mary = await come(node, "mary")
        alice, bob = await come(node, "alice", stays=True), await come(node, "bob", stays=True)
        await alice.subscribe("$share/g/t/1", qos=2)
        for qos in (1, 2, 1):
            await say(mary, "t/1", b"%d" % qos, qos=qos)
            assert (await alice.expect(wire.Publish)).payload == b"%d" % qos
        await go(node, alice)
        await bob.subscribe("$share/g/t/1", qos=2)
        await node.reload(setting(ALL, NO_ALICE, data=data))
        alice = await come(node, "alice", stays=True)
        assert [(await bob.message()).payload for _ in range(2)] == [b"1", b"1"]
        for end in (alice, bob):
            await end.silent()
        owed = [session for session in node.node.scopes["main"].sessions.values() if session.expiry]
        assert [(session.inflight, session.queued, session.flying) for session in owed] == [(0, 0, 0)] * 2


@on_uvloop
async def test_what_waits_for_the_disk_when_its_member_is_denied_goes_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QoS 2 is sent when its identifier is safe, and decided again if the rules have changed until then: it was not
    sent, so another member may have it."""
    async with door(tmp_path, data=True) as node:
        mary = await come(node, "mary")
        alice, bob = await come(node, "alice", stays=True), await come(node, "bob", stays=True)
        await alice.subscribe("$share/g/t/1", qos=2)
        store = type(node.node.site.store)
        after, held = store.after, []

        def later(self: object, callback: Callable[..., None], *args: object) -> None:
            if callback.__name__ == "_emit_safe":
                held.append((callback, args))
            else:
                after(self, callback, *args)

        with monkeypatch.context() as patched:
            patched.setattr(store, "after", later)
            await say(mary, "t/1", b"1", qos=2)
            await bob.subscribe("$share/g/t/1", qos=2)
            await node.reload(setting(ALL, NO_ALICE, data=True))
        ((callback, args),) = held
        node.node.site.open()
        callback(*args)
        assert (await bob.message()).payload == b"1"
        await alice.silent()


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_what_was_sent_to_a_member_that_comes_back_over_a_worse_connection(
    tmp_path: Path, certificates: Path, others: bool, qos: int
) -> None:
    """QoS 1 goes to another member that may have it, and waits if there is none; QoS 2 waits for the one that it was
    sent to."""
    async with door(tmp_path, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        alice = await come(node, "alice", tls=secure(certificates), stays=True)
        await alice.subscribe("$share/g/t", qos=2)
        for number in (b"1", b"2"):
            await say(mary, "t", number, ("require", "tls"), qos=qos)
            assert (await alice.expect(wire.Publish)).payload == number
        await go(node, alice)
        bob = await come(node, "bob", tls=secure(certificates))
        if others:
            await bob.subscribe("$share/g/t", qos=2)
        alice = await come(node, "alice", stays=True)
        assert await inbox(alice) == []
        assert await payloads(bob) == ([b"1", b"2"] if others and qos == 1 else [])
        await go(node, alice)
        alice = await come(node, "alice", tls=secure(certificates), stays=True)
        assert await payloads(alice) == ([] if others and qos == 1 else [b"1", b"2"])


@on_uvloop
async def test_what_a_member_leaves_behind_waits_for_one_whose_connection_is_not_known_yet(
    tmp_path: Path, certificates: Path
) -> None:
    """*What counts is the connection actually used at the moment of sending*: not the last one of a member away."""
    async with door(tmp_path, certificates=certificates) as node:
        mary = await come(node, "mary", tls=secure(certificates))
        bob = await come(node, "bob", stays=True)
        await bob.subscribe("$share/g/t", qos=1)
        await go(node, bob)
        alice = await come(node, "alice", tls=secure(certificates))
        await alice.subscribe("$share/g/t", qos=1)
        await say(mary, "t", b"1", ("require", "tls"), qos=1)
        assert (await alice.expect(wire.Publish)).payload == b"1"
        await go(node, alice)  # without an acknowledgement, and its session ends
        bob = await come(node, "bob", stays=True, tls=secure(certificates))
        assert await payloads(bob) == [b"1"]


@on_uvloop
async def test_what_a_member_leaves_behind_goes_only_to_the_allowed(tmp_path: Path) -> None:
    """Handing on is sending: it is decided then."""
    async with door(tmp_path, ALL, NO_ALICE) as node:
        mary = await come(node, "mary")
        alice, bob, carol = [await come(node, name) for name in ("alice", "bob", "carol")]
        await bob.subscribe("$share/g/#", qos=1)
        await say(mary, "t/1", b"1", qos=1)
        await bob.expect(wire.Publish)
        for end in (alice, carol):
            await end.subscribe("$share/g/#", qos=1)
        await go(node, bob)
        assert await inbox(alice) == []
        assert await payloads(carol) == [b"1"]


@pytest.mark.parametrize("restart", [False, True])
@on_uvloop
async def test_nothing_waits_for_a_member_that_was_removed(tmp_path: Path, restart: bool) -> None:
    """*Revoking a user …*: a session that nobody can resume takes nothing away from the other members, removed while
    the node ran or while it did not."""
    after = setting(data=True, directory={"users": WITHOUT_ALICE})
    async with door(tmp_path, data=True) as node:
        for name in ("alice", "bob"):
            end = await come(node, name, stays=True)
            await end.subscribe("$share/g/t", qos=1)
            await end.subscribe("mark", qos=1)
            await go(node, end)
        if not restart:
            await node.reload(after)
            mary = await come(node, "mary")
            for number in range(4):
                await say(mary, "t", b"%d" % number, qos=1)
    async with from_file(tmp_path, after) as node:
        if restart:
            mary = await come(node, "mary")
            for number in range(4):
                await say(mary, "t", b"%d" % number, qos=1)
        bob = await come(node, "bob", stays=True)
        assert await marked(bob, node) == [b"0", b"1", b"2", b"3"]


async def reviewed(node: Served) -> None:
    """After a change of the rules all sessions are looked at, soon; returns when they have been."""
    await until(lambda: not node.node.site.unfinished)


# -- held subscriptions ------------------------------------------------------------------------------------------

OPEN = [WRITERS, policy("r", "t/#", "read"), policy("mark", "mark", "read")]
CLOSED = [WRITERS, policy("mark", "mark", "read")]


def held(answer: wire.Suback) -> tuple[str, ...]:
    """The filters that it says are held."""
    return tuple(value for name, value in answer.properties.user_properties if name == "held")


@on_uvloop
async def test_strict_refuses_what_hold_keeps(tmp_path: Path) -> None:
    """*granted when some allowing policy overlaps its filter (`subscribe: strict`, default) and refused with 0x87
    otherwise; with `subscribe: hold` it is granted with the user property `held`, delivers nothing*"""
    async with door(tmp_path, *CLOSED) as node:
        alice = await come(node, "alice")
        assert (await alice.subscribe("t/1", "mark", "#", qos=1)).reasons == (0x87, 1, 1)
        await node.reload(setting(*CLOSED, subscribe="hold"))
        old = await come(node, "bob", version=wire.V311)
        mary = await come(node, "mary")
        answer = await alice.subscribe("t/1", "mark", "$share/g/t/#", qos=1)
        assert (answer.reasons, held(answer)) == ((1, 1, 1), ("t/1", "$share/g/t/#"))
        assert (await old.subscribe("t/1", qos=1)).reasons == (1,)
        assert await say(mary, "t/1", qos=1) == 0x10
        assert await inbox(alice) == await inbox(old) == []


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_a_held_subscription_comes_alive_with_its_retained_messages(tmp_path: Path, version: int) -> None:
    """*and comes alive (retained messages included) when a later policy … allows it*; asleep and alive again."""
    async with door(tmp_path, *CLOSED, subscribe="hold") as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", version=version)
        await say(mary, "t/1", b"kept", qos=1, retain=True)
        await alice.subscribe("t/#", qos=1)
        for _ in range(2):
            await node.reload(setting(*OPEN, subscribe="hold"))
            woken = await alice.message()
            assert (woken.payload, woken.retain) == (b"kept", True)
            await say(mary, "t/1", b"live", qos=1)
            assert await payloads(alice) == [b"live"]
            await node.reload(setting(*CLOSED, subscribe="hold"))
            await say(mary, "t/1", b"asleep", qos=1)
            assert await inbox(alice) == []
            await reviewed(node)


@on_uvloop
async def test_a_held_subscription_comes_alive_by_a_role(tmp_path: Path) -> None:
    """The same when it is the directory that changes, and for somebody away: when it comes back."""
    rules = [WRITERS, policy("r", "t/#", "read", subject="role:reader")]
    after = setting(*rules, subscribe="hold", directory={"users": {**PEOPLE, "alice": user("reader")}})
    async with door(tmp_path, *rules, subscribe="hold") as node:
        mary = await come(node, "mary")
        await say(mary, "t/1", b"kept", qos=1, retain=True)
        alice = await come(node, "alice")
        away = await come(node, "alice", client="away", stays=True)
        for end in (alice, away):
            assert held(await end.subscribe("t/1", qos=1)) == ("t/1",)
        await go(node, away)
        await node.reload(after)
        assert (await alice.message()).payload == b"kept"
        await say(mary, "t/1", b"live", qos=1)
        assert await payloads(alice) == [b"live"]
        away = await come(node, "alice", client="away", stays=True)
        assert sorted(await payloads(away)) == [b"kept", b"live"]


@on_uvloop
async def test_held_ones_are_limited_per_client(tmp_path: Path) -> None:
    """*held ones are limited per client*"""
    async with door(tmp_path, *CLOSED, subscribe="hold", limits={"held": 2}) as node:
        alice, bob = await come(node, "alice"), await come(node, "bob")
        assert (await alice.subscribe("t/1", "t/2", "t/3", "mark")).reasons == (0, 0, 0x97, 0)
        assert (await bob.subscribe("t/1", "t/2", "t/3")).reasons == (0, 0, 0x97)
        assert (await alice.subscribe("t/1", qos=1)).reasons == (1,)  # again is not another
        assert (await alice.unsubscribe("t/1")).reasons == (0,)
        assert (await alice.subscribe("t/3", "t/4")).reasons == (0, 0x97)


@on_uvloop
async def test_held_ones_are_limited_by_default(tmp_path: Path) -> None:
    """The same without a word in the configuration: 100."""
    async with door(tmp_path, *CLOSED, subscribe="hold") as node:
        alice = await come(node, "alice")
        assert (await alice.subscribe(*(f"t/{n}" for n in range(101)))).reasons == (0,) * 100 + (0x97,)


@on_uvloop
async def test_what_is_held_is_counted_and_not_looked_for(tmp_path: Path) -> None:
    """*held ones are limited per client*, and finding out how many there are is no work for each of thousands."""
    async with door(tmp_path, *CLOSED, policy("ok", "ok/#", "read"), subscribe="hold", limits={"held": 2}) as node:
        alice = await come(node, "alice")
        session = next(one for one in node.node.scopes["main"].sessions.values() if one.subject.user == "alice")
        for filters, reasons, held in (
            (("ok/1", "t/1", "t/2", "t/3"), (0, 0, 0, 0x97), 2),
            (("t/1",), (0,), 2),
            (("t/3",), (0x97,), 2),
        ):
            assert (await alice.subscribe(*filters)).reasons == reasons
            assert session.held == held
        await alice.unsubscribe("t/2", "ok/1")
        assert session.held == 1
        await node.reload(setting(*OPEN, subscribe="hold"))
        async with asyncio.timeout(10):
            while session.held:  # sessions are looked at in pieces
                await asyncio.sleep(0.001)


@on_uvloop
async def test_a_held_subscription_that_is_given_up_does_not_come_alive(tmp_path: Path) -> None:
    """UNSUBSCRIBE of a held one is like any other."""
    async with door(tmp_path, *CLOSED, subscribe="hold") as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await say(mary, "t/1", b"kept", qos=1, retain=True)
        assert held(await alice.subscribe("t/1", "t/2")) == ("t/1", "t/2")
        assert (await alice.unsubscribe("t/1", "t/3")).reasons == (0, 0x11)
        await node.reload(setting(*OPEN, subscribe="hold"))
        await say(mary, "t/1", b"live", qos=1)
        await say(mary, "t/2", b"two", qos=1)
        assert await payloads(alice) == [b"two"]


@pytest.mark.parametrize("allowed", ["before", "after", "never"])
@on_uvloop
async def test_a_held_subscription_survives_a_restart(tmp_path: Path, allowed: str) -> None:
    """*comes alive (retained messages included) when a later policy … allows it*: the policy may come with a restart
    of the node, or with a reload after it."""
    async with door(tmp_path, *CLOSED, subscribe="hold", data=True) as node:
        mary = await come(node, "mary")
        await say(mary, "t/1", b"kept", qos=1, retain=True)
        alice = await come(node, "alice", stays=True)
        assert held(await alice.subscribe("t/1", "mark", qos=1)) == ("t/1",)
        await go(node, alice)
    first: list[Section] = OPEN if allowed == "before" else CLOSED
    async with from_file(tmp_path, setting(*first, subscribe="hold", data=True)) as node:
        alice = await come(node, "alice", stays=True)
        assert alice.connack.session_present
        if allowed == "after":
            await node.reload(setting(*OPEN, subscribe="hold", data=True))
            await reviewed(node)
        assert await marked(alice, node) == ([] if allowed == "never" else [b"kept"])


@on_uvloop
async def test_a_subscription_that_was_alive_is_not_sent_everything_again_after_a_restart(tmp_path: Path) -> None:
    """The other side of it: what was never held has had its retained messages."""
    async with door(tmp_path, *OPEN, subscribe="hold", data=True) as node:
        mary = await come(node, "mary")
        await say(mary, "t/1", b"kept", qos=1, retain=True)
        alice = await come(node, "alice", stays=True)
        await alice.subscribe("t/1", "mark", qos=1)
        assert (await alice.message()).payload == b"kept"
        await go(node, alice)
    async with from_file(tmp_path, setting(*OPEN, subscribe="hold", data=True)) as node:
        alice = await come(node, "alice", stays=True)
        assert await marked(alice, node) == []


@on_uvloop
async def test_a_condition_that_cannot_be_true_for_this_subject_holds(tmp_path: Path) -> None:
    """*some allowing policy overlaps its filter*: one whose condition is false or fails for this subject, whatever the
    message, allows nothing; one that depends on the message, the clock or the publisher may."""
    rules = [
        policy("false", "false", "read", when="s.user == 'bob'"),
        policy("error", "error", "read", when="s.nothing == 1"),
        policy("payload", "payload", "read", when="o.payload.a == 1"),
        policy("clock", "clock", "read", when="e.hour > 24"),
        policy("publisher", "publisher", "read", when="p.user == 'nobody'"),
        policy("deny", "deny", "read", effect="deny"),
    ]
    async with door(tmp_path, *rules) as node:
        alice = await come(node, "alice")
        answer = await alice.subscribe("false", "error", "payload", "clock", "publisher", "deny")
        assert answer.reasons == (0x87, 0x87, 0, 0, 0, 0x87)
