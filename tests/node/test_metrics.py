"""The numbers of a real node: denials by rule, how long messages are in it."""

from __future__ import annotations

import json

from harness import live
from tidegate import wire
from tidegate.audit.decisions import OTHERS, SERIES
from tidegate.node.statistics import StatusCommands

POLICIES = """
  - {id: all, subject: "*", topic: "#", action: [read, write]}
  - {id: no-writing, subject: "*", topic: "secret/#", action: [write], effect: deny}
"""


async def test_denials_are_counted_by_stage_and_rule_and_delivery_is_timed() -> None:
    async with live(policies=POLICIES) as node:
        sub, client = await node.connect("sub"), await node.connect("c")
        await sub.subscribe("#")
        for _ in range(3):
            told = await client.publish("secret/x", qos=1)
            assert isinstance(told, wire.Puback)
            assert told.reason == 0x87
        for _ in range(40):
            await client.publish("t")
            await sub.message()
        said = await StatusCommands(node.node).metrics()
        assert ("write", "no-writing", 3) in said["denials"]
        assert 0 < sum(said["latency"]["counts"]) <= 43
        assert said["latency"]["sum"] > 0
        assert said["numbers"]["cpu/seconds"] > 0
        json.dumps(said)


async def test_series_are_bounded_whatever_rules_are_called() -> None:
    async with live() as node:
        log = node.node.audit.log
        for number in range(SERIES + 50):
            log.refused("127.0.0.1", "c", None, 0x87, "no", f"rule {number}")
        assert len(log.by_rule) == SERIES + 1
        assert log.by_rule["connect", OTHERS] == 50
