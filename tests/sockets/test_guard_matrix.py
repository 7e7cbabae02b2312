"""The matrix of `test_matrix` through a guard in front of Mosquitto: the same events, rules and expectations, in MQTT
3.1.1 and 5. `test_matrix` itself is the embedded scope.

What a guard cannot know is in `BY_THE_BROKER`: it acknowledges with the code of the broker, which knows of subscribers,
but not of what they may read. A sample runs each time: every row once in each version; `make soak` runs all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from backends import guarded, mosquitto_of
from harness import Client
from processes import Served, from_file, on_uvloop
from sockets.acts import BOTH, Section, come, go, inbox, payloads, policy, say, secure, setting
from sockets.test_matrix import BODY, CASES, EVENTS, HAPPENS, OPEN, RULED, TABLE, Row, Seen, expected, rules, told
from tidegate import wire

BY_THE_BROKER = {("receive", case): 0 for case in CASES}
"""The code in MQTT 5, where it is another one: the broker has a subscriber."""
SAMPLE = {(wire.V5, False), (wire.V311, True)}


@asynccontextmanager
async def door(folder: Path, *policies: Section, **sections: object) -> AsyncIterator[Served]:
    """A guard with these rules, and its broker."""
    with mosquitto_of(folder / "mosquitto") as backend:
        async with from_file(folder, setting(*policies, scopes=guarded(backend), **sections)) as node:
            node.backend = backend  # type: ignore[attr-defined]
            yield node


def wanted(event: str, case: str, version: int, by_message: bool) -> Row:
    row = expected(event, case, version, by_message)
    return row._replace(code=BY_THE_BROKER.get((event, case), row.code))


async def will(node: Served, version: int, after: str) -> Seen:
    """As in `test_matrix`; but the broker has the will some time after the guard, so that its watcher waits for what
    the guard publishes behind it."""
    watcher = await come(node, "alice", version=version)
    await watcher.subscribe("#", qos=1)
    left = wire.Will(topic="t", payload=BODY, qos=1, retain=False)
    mary = await node.dial(node.ports["PORT"])
    mary.version = version
    await mary.send(
        wire.Connect(
            version=version,
            clean_start=True,
            keep_alive=0,
            will=left,
            client_id="mary",
            username="mary",
            password=b"pw",
        )
    )
    answer = await mary.expect(wire.Connack)
    if answer.reason:
        assert await mary.closed() == b""
        assert await inbox(watcher) == []
        return Seen({answer.reason}, {told(answer)}, False)
    await go(node, mary)
    came = await before_mark(node, watcher, version)
    assert [message.payload for message in came] in ([], [BODY])
    return Seen({answer.reason}, {told(answer)}, bool(came))


async def before_mark(node: Served, watcher: Client, version: int) -> list[wire.Publish]:
    """What the watcher gets before the will of somebody whose will everybody may publish."""
    other = await come(
        node, "bob", version=version, will=wire.Will(topic="ok/mark", payload=b"mark", qos=1, retain=False)
    )
    await go(node, other)
    came: list[wire.Publish] = []
    while not came or came[-1].topic != "ok/mark":
        came.append(await watcher.message())
    return came[:-1]


GUARDED = {**HAPPENS, "will": will}


async def happens(folder: Path, event: str, case: str, version: int, by_message: bool) -> None:
    row = wanted(event, case, version, by_message)
    ruled = rules(case, RULED.get(event, "read"), by_message)
    if event == "subscribe" and case == "error in rule":
        ruled = [each for each in ruled if each["id"] != "yes"]
    before = [*OPEN, policy("all", "t")] if event in ("queued", "resumed") else ruled
    async with door(folder, *before, explain=True) as node:
        scopes = guarded(node.backend)  # type: ignore[attr-defined]
        seen = await GUARDED[event](node, version, setting(*ruled, explain=True, scopes=scopes))
    assert seen.delivered == row.delivered
    if version == wire.V5:
        assert (seen.codes, seen.reasons) == ({row.code}, {row.why})
    else:
        assert (seen.codes, seen.reasons) == ({row.old}, {None})


CELLS = [
    pytest.param(
        event,
        case,
        version,
        by_message,
        id=f"{event}-{case}-{'3.1.1' if version == wire.V311 else '5'}-{'by the message' if by_message else 'known'}",
        marks=() if (version, by_message) in SAMPLE else pytest.mark.soak,
    )
    for event in EVENTS[1:]
    for case in CASES
    for version in BOTH
    for by_message in (False, True)
]


@pytest.mark.parametrize(("event", "case", "version", "by_message"), CELLS)
@on_uvloop
async def test_matrix(tmp_path: Path, event: str, case: str, version: int, by_message: bool) -> None:
    """One row of the table, through the guard."""
    await happens(tmp_path, event, case, version, by_message)


@pytest.mark.parametrize("version", BOTH, ids=["3.1.1", "5"])
@pytest.mark.parametrize("case", CASES)
@on_uvloop
async def test_matrix_of_connect(tmp_path: Path, garbled: Path, case: str, version: int) -> None:
    """The rows of CONNECT: the broker hears nothing of who is not let in."""
    row = TABLE["connect", case]
    shown = {"deny": "bob", "error in rule": "garbled"}.get(case, "sensor")
    sections: Section = {} if case == "no rule" else {"trust": {"accept": ["CN=sensor"], "otherwise": "close"}}
    async with door(tmp_path, certificates=garbled, **sections) as node:
        alice = await come(node, "alice")
        await alice.subscribe("#")
        code = row.code if version == wire.V5 else row.old
        end = await come(node, None, client="x", version=version, tls=secure(garbled, shown), expect=code)
        if row.delivered:
            await say(end, "t", BODY)
            assert await payloads(alice) == [BODY]
        else:
            assert await end.closed() == b""
            assert await inbox(alice) == []
            assert " as x " not in node.backend.log.read_text()  # type: ignore[attr-defined]


def test_the_sample_has_every_row_in_both_versions() -> None:
    kept = [cell.values for cell in CELLS if not cell.marks]
    assert {(event, case, version) for event, case, version, _ in kept} == {
        (event, case, version) for event in EVENTS[1:] for case in CASES for version in BOTH
    }
