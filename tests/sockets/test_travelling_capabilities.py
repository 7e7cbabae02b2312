"""Capabilities and proofs travel with messages and are verified again at every node: SEC-REDS, 2.5, figure 2.12."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from harness import Client
from processes import Served, on_uvloop, until
from sockets.holding import Holder, denials, issuing
from sockets.linked_pair import FROM_GYM, FROM_REMOTE, Pair, connected, pair
from tidegate import wire
from tidegate.wire import Reason

EACH: dict[str, Any] = {"proof": "per-message"}
FACT = "signed"


def section(folder: Path, **more: Any) -> str:
    return f"\ncapabilities: {json.dumps(issuing(folder, **more))}\n"


def travelling(folder: Path) -> tuple[str, str]:
    said = section(folder, travel=True)
    return FROM_GYM + said, FROM_REMOTE + said


async def say(end: Client, topic: str, payload: bytes, *pairs: tuple[str, str], qos: int = 1, **fields: Any) -> None:
    properties = wire.Properties(user_properties=pairs, message_expiry_interval=fields.pop("expiry", None))
    answer = await end.publish(topic, payload, qos=qos, properties=properties, **fields)
    assert answer is None or answer.reason in (0, Reason.NO_MATCHING_SUBSCRIBERS), answer


async def refused(node: Served) -> list[str]:
    """Why messages that came over the link were refused."""
    return [f"{rule}: {detail}" for _, _, rule, detail in await denials(node) if rule.startswith("capability")]


@pytest.mark.parametrize("qos", [0, 1, 2])
@on_uvloop
async def test_figure_2_12_what_is_proven_is_proven_again_and_the_last_node_removes_it(folder: Path, qos: int) -> None:
    gym, remote = travelling(folder)
    async with pair(folder, gym, remote) as both:
        await connected(both.gym, both.remote)
        holder = Holder(**EACH)
        mary, there = await holder.come(both.gym), await both.remote.connect("there")
        here = await both.gym.connect("here")
        properties = wire.Properties(user_properties=(("require", FACT),))
        await there.subscribe("t/#", qos=2, properties=properties)  # only what its publisher has signed
        await here.subscribe("t/#", qos=2)
        view = ("view", '{"*": "all"}')
        for number in range(3):
            body = b"%d" % number
            proof = holder.write("t/1", body, qos=qos, properties=(view,), expiry=100)
            await say(mary, "t/1", body, view, proof, ("own", "1"), qos=qos, expiry=100)
            for end in (here, there):
                message = await end.message()
                assert message.payload == body
                assert dict(message.properties.user_properties).items() >= {("own", "1")}
                names = {name for name, _ in message.properties.user_properties}
                assert not names & {"proof", "capability", "tidegate-proof", "view"}
        other = await both.gym.connect("unproven")
        await say(other, "t/1", b"other")
        await there.silent()
        assert await refused(both.remote) == []


@on_uvloop
async def test_without_proofs_of_messages_the_capability_travels_alone(folder: Path) -> None:
    gym, remote = travelling(folder)
    async with pair(folder, gym, remote) as both:
        await connected(both.gym, both.remote)
        mary, there = await Holder("write:t/#").come(both.gym), await both.remote.connect("there")
        await there.subscribe("#", qos=1)
        for qos in (0, 0, 1, 2):
            await say(mary, "t/1", b"%d" % qos, qos=qos)
            assert (await there.message()).payload == b"%d" % qos


@on_uvloop
async def test_a_capability_of_an_issuer_that_the_other_node_does_not_know(folder: Path, tmp_path: Path) -> None:
    """Refused there, and audited; what has none crosses."""
    (tmp_path / "other").mkdir()
    strange = section(tmp_path / "other", key=Ed25519PrivateKey.generate())
    for remote in (strange, ""):
        async with pair(folder, FROM_GYM + section(folder, travel=True), FROM_REMOTE + remote) as both:
            await connected(both.gym, both.remote)
            mary, other = await Holder().come(both.gym), await both.gym.connect("other")
            there = await both.remote.connect("there")
            await there.subscribe("#", qos=1)
            for qos in (0, 1, 2):
                await say(mary, "t", b"bad", qos=qos)
            await say(other, "t", b"good")
            assert (await there.message()).payload == b"good"
            [why, *_] = await refused(both.remote)
            assert ("no key of its issuer has signed it" if remote else "this node takes none") in why


@on_uvloop
async def test_rights_and_validity_are_tested_again(folder: Path) -> None:
    gym, remote = travelling(folder)
    async with pair(folder, gym, remote) as both:
        await connected(both.gym, both.remote)
        there = await both.remote.connect("there")
        await there.subscribe("#", qos=1)
        holder = Holder()
        mary = await holder.come(both.gym)
        await say(mary, "t", b"good")
        assert (await there.message()).payload == b"good"
        await both.remote.node.revoke(holder.id)
        await say(mary, "t", b"revoked")
        await until(lambda: both.gym.node.links.rows()[0]["queue"] == 0)
        await there.silent()
        assert "it has been revoked" in (await refused(both.remote))[-1]


class Relay:
    """A neighbour that sends what it likes, with what it has once been given."""

    def __init__(self, both: Pair) -> None:
        self.both = both
        self.sent: list[wire.Publish] = []

    def listen(self) -> None:
        """Keeps what the link sends from now on."""
        exporter = self.both.gym.node.realm.node_links.ends["gym->remotegym"].session.exporter
        parts = exporter.parts

        def kept(message: Any, qos: int, retain: bool, now: float) -> Any:
            found = parts(message, qos, retain, now)
            self.sent.append(message)
            return found

        exporter.parts = kept


@on_uvloop
async def test_what_a_neighbour_changes_or_repeats_is_not_proven(folder: Path) -> None:
    """It has a good certificate, and a message of Mary with her proof."""
    from dataclasses import replace

    from tidegate.session.carried_proof import carried, with_proof

    gym, remote = travelling(folder)
    async with pair(folder, gym, remote) as both:
        await connected(both.gym, both.remote)
        holder = Holder(**EACH)
        mary, there = await holder.come(both.gym), await both.remote.connect("there")
        await there.subscribe("#", qos=1)
        relay = Relay(both)
        relay.listen()
        view = ("view", '{"*": "all"}')
        await say(mary, "t", b"1", view, holder.write("t", b"1", properties=(view,), expiry=50), expiry=50)
        assert (await there.message()).payload == b"1"
        end = both.gym.node.realm.node_links.ends["gym->remotegym"]
        [message] = relay.sent
        gate = end.scope.gate

        def again(**changed: Any) -> Any:
            copy = message.copied()
            both.gym.node.site.open()
            both.gym.node.site.number += 1
            copy.number = both.gym.node.site.number
            for name, value in changed.items():
                setattr(copy, name, value)
            return copy

        context = gate.attributes.decoded(message.context)
        proof = carried(message.properties)
        assert proof is not None
        fresh = holder.write("t", b"2", properties=(view,), expiry=50)[1]
        other = with_proof(wire.NONE, proof.replace(json.loads(proof)[0], fresh))
        attacks = [
            (again(), "was used before"),
            (again(payload=b"2"), "not of this"),
            (again(payload=b"2", properties=other, retain=True), "RETAIN is not what was proven"),
            (again(payload=b"2", properties=other, expires=None), "expiry is not what was proven"),
            (
                again(payload=b"2", properties=other, context=replace(context, view=None).encode()),
                "table of visibility is not what was proven",
            ),
            (again(payload=b"2", properties=wire.NONE), "no proof"),
            (again(payload=b"2", properties=with_proof(wire.NONE, "[]")), "the proof in an envelope is none"),
            (
                again(
                    payload=b"2",
                    properties=other,
                    context=replace(context, subject=replace(context.subject, user="eve")).encode(),
                ),
                "it is for another user",
            ),
        ]
        for attack, why in attacks:
            end.session.deliver(attack, 1, attack.retain, ())
            both.gym.node.site.close()
            await until(lambda: end.owed == 0)
            assert why in (await refused(both.remote))[-1]
        await there.silent()
        end.session.deliver(again(payload=b"2", properties=other), 1, False, ())
        both.gym.node.site.close()
        assert (await there.message()).payload == b"2"  # what was signed counts, once


@on_uvloop
async def test_what_a_monitor_makes_is_not_what_the_publisher_has_signed(folder: Path) -> None:
    gym, remote = travelling(folder)
    shout = '\nmonitors: [{id: names, scope: gym, direction: im_pub, map: {"old/#": "new/#"}}]\n'
    async with pair(folder, gym + shout, remote) as both:
        await connected(both.gym, both.remote)
        holder = Holder(**EACH)
        mary, there, strict = (
            await holder.come(both.gym),
            await both.remote.connect("a"),
            await both.remote.connect("b"),
        )
        await there.subscribe("#", qos=1)
        await strict.subscribe("#", qos=1, properties=wire.Properties(user_properties=(("require", FACT),)))
        await say(mary, "old/1", b"1", holder.write("old/1", b"1"))
        message = await there.message()
        assert (message.topic, message.payload) == ("new/1", b"1")
        await say(mary, "t", b"2", holder.write("t", b"2"))
        assert (await strict.message()).payload == b"2"
        assert await refused(both.remote) == []


@on_uvloop
async def test_what_waits_for_the_other_node_keeps_its_proof_over_a_restart(folder: Path) -> None:
    gym, remote = travelling(folder)
    both = Pair(folder)
    holder = Holder(**EACH)
    stays = {"properties": wire.Properties(session_expiry_interval=1000), "clean_start": False}
    async with both.remotes(remote):
        there = await both.remote.connect("there", **stays)
        terms = wire.Properties(user_properties=(("require", FACT),))
        await there.subscribe("t/#", qos=1, properties=terms)
        await there.disconnect()
    async with both.gyms(gym):
        mary = await holder.come(both.gym)
        for number in range(3):
            body = b"%d" % number
            await say(mary, "t/1", body, holder.write("t/1", body))
            await say(mary, f"t/r{number}", body, holder.write(f"t/r{number}", body, retain=True), retain=True)
    async with both.gyms(gym), both.remotes(remote):
        await connected(both.gym, both.remote)
        await until(lambda: both.gym.node.links.rows()[0]["queue"] == 0)
        there = await both.remote.connect("there", **stays)
        got = [(await there.message()).payload for _ in range(6)]
        assert sorted(got) == [b"0", b"0", b"1", b"1", b"2", b"2"]
        assert await refused(both.remote) == []
