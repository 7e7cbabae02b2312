"""What the guard itself owes to the broker: in order, once, within a bound at which publishers are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from guard.guarded import restartable
from guard.test_kill import linked
from processes import from_file, on_uvloop, until
from sockets.acts import come, inbox
from tidegate import wire
from tidegate.guard import GuardedScope
from tidegate.guard.abilities import Abilities

BOUND = 3


@on_uvloop
async def test_publishers_of_other_scopes_are_told_at_the_bound(tmp_path: Path) -> None:
    """What was acknowledged reaches the broker when it is back, once and in order; what was refused does not."""
    with restartable(tmp_path) as broker:
        text = linked(broker.port, limits={"queue": {"messages": BOUND}})
        async with from_file(tmp_path, text) as node:
            legacy = node.node.scopes["legacy"]
            assert isinstance(legacy, GuardedScope)
            mary = await come(node, "mary", stays=True)
            await mary.subscribe("open/#", qos=2)
            broker.stop()
            await mary.closed()
            await until(lambda: legacy.service.upstream is None or not legacy.service.upstream.opened)
            bob = await come(node, "bob", port="TOP_PORT")
            taken = []
            for number in range(2 * BOUND):
                qos = number % 2 + 1
                await bob.send(wire.Publish(topic="open/a", payload=b"%d" % number, qos=qos, packet_id=number + 1))
                answer = await bob.receive()
                assert isinstance(answer, wire.Puback | wire.Pubrec)
                if answer.reason < 0x80:
                    taken.append(b"%d" % number)
                else:
                    assert answer.reason == 0x97
                if isinstance(answer, wire.Pubrec) and answer.reason < 0x80:
                    await bob.send(wire.Pubrel(packet_id=number + 1))
                    await bob.expect(wire.Pubcomp)
            assert len(taken) == BOUND
            assert node.node.status()["guards"][0]["waiting"] == BOUND
            broker.start()
            await until(lambda: legacy.service.session.owed == 0)
            mary = await come(node, "mary", stays=True)
            messages = await inbox(mary)
            for qos in (1, 2):  # each in its order
                assert [each.payload for each in messages if each.qos == qos] == taken[qos - 1 :: 2]


@on_uvloop
async def test_a_message_that_the_broker_refuses_by_hanging_up_keeps_no_others_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mosquitto ends the connection of whoever sends a topic of more than 200 levels. The guard knows that; here it is
    made to forget it."""
    deep = "/".join(["open", *"x" * 250])
    will = wire.Will(topic=deep, payload=b"will", qos=1, retain=False)
    with restartable(tmp_path) as broker:
        async with from_file(tmp_path, linked(broker.port)) as node:
            legacy = node.node.scopes["legacy"]
            assert isinstance(legacy, GuardedScope)
            mary = await come(node, "mary")
            await mary.subscribe("open/#", qos=1)
            bob = await come(node, "bob", port="TOP_PORT")
            await bob.publish(deep, b"refused", qos=1)
            eve = await come(node, "mary", client="eve")
            await eve.send(wire.Publish(topic=deep, payload=b"refused", qos=1, packet_id=1))
            assert (await eve.expect(wire.Puback)).reason == 0x90
            await bob.publish("open/a", b"first", qos=1)
            assert (await mary.message()).payload == b"first"

            monkeypatch.setattr(Abilities, "names", lambda *_: True)
            for number in range(5):
                await bob.publish(deep if number == 2 else "open/a", b"%d" % number, qos=1)
            assert [(await mary.message()).payload for _ in range(4)] == [b"0", b"1", b"3", b"4"]
            gone = await come(node, "mary", client="gone", will=will)
            gone.abort()
            await until(lambda: legacy.service.session.owed == 0)
            await bob.publish("open/a", b"last", qos=1)
            assert (await mary.message()).payload == b"last"
