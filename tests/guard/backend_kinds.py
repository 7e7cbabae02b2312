"""What brokers do by themselves, tried on each: `python tests/guard/backend_kinds.py --update` writes the table of
docs/reference/guard-backends.md.

Nothing is waited for that does not come, but for one thing: to find out that a broker drops something, a message that
must come is published behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

TESTS = Path(__file__).parents[1]
if str(TESTS) not in sys.path:  # started by itself
    sys.path.insert(0, str(TESTS))

from backends import Mosquitto, mosquitto_of  # noqa: E402
from harness import PATIENCE, Client  # noqa: E402
from other_backends import Server, server_of  # noqa: E402
from tidegate import wire  # noqa: E402
from tidegate.config.scopes import BackendKind  # noqa: E402
from tidegate.errors import PacketError  # noqa: E402
from tidegate.guard.abilities import KINDS  # noqa: E402

PAGE: Final = TESTS.parent / "docs" / "reference" / "guard-backends.md"
NAMES: Final = {"mosquitto": "Mosquitto 2.0.11", "nats": "NATS 2.9.10", "rabbitmq": "RabbitMQ 3.10.8"}
KIND: Final = {"mosquitto": BackendKind.MQTT, "nats": BackendKind.NATS, "rabbitmq": BackendKind.RABBITMQ}
CHARACTERS: Final = " .*>$,;:'\"@!%&()=?~|^\\-_é"
LARGE: Final = 1024 * 1024
MARK: Final = b"mark"
_names = count()
_joined: list[Client] = []

Found = dict[str, str]
"""What was found out of one broker, by the name of the row."""


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[Server | Mosquitto]:
    if name == "mosquitto":
        with mosquitto_of(folder) as broker:
            yield broker
    else:
        with server_of(name, folder) as server:
            yield server


async def joined(
    port: int, client: str = "", version: int = wire.V311, *, clean: bool = True, **fields: wire.Will
) -> Client:
    """A client of the broker itself; a name of its own unless it is given one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    end = Client(reader, writer)
    _joined.append(end)
    end.version = version
    name = client or f"kind{next(_names)}"
    await end.send(wire.Connect(version=version, client_id=name, clean_start=clean, keep_alive=0, **fields))
    end.connack = await end.expect(wire.Connack)
    assert end.connack.reason == 0
    return end


async def left() -> None:
    """All of them go."""
    ends, _joined[:] = list(_joined), []
    for end in ends:
        end.writer.close()
    for end in ends:
        with contextlib.suppress(OSError):
            await end.writer.wait_closed()


async def accepted(end: Client, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> wire.Packet | None:
    """What it answers to a message; None: it has ended the connection."""
    await end.send(wire.Publish(topic=topic, payload=payload, qos=qos, packet_id=qos and 1, retain=retain))
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        return await end.receive()
    return None


async def next_message(end: Client) -> wire.Publish:
    message = await end.expect(wire.Publish)
    if message.qos == 1:
        await end.send(wire.Puback(packet_id=message.packet_id))
    return message


async def probe(port: int) -> Found:
    """All that the table has of one broker."""
    found: Found = {}
    found["MQTT"] = "5, 3.1.1" if (newest := await speaks_5(port)) else "3.1.1"
    found["QoS 2"] = await qos2(port)
    found["retained, for a filter without wildcards"] = await retained(port, "kind/r")
    found["retained, for a filter with wildcards"] = await retained(port, "kind/#")
    found["shared subscriptions"] = await shared(port)
    found["user properties, expiry of messages"] = "yes" if newest else "no: of MQTT 5"
    found["will"] = await will(port)
    found["session that outlives its connection"] = await session(port)
    found["a message of 1 MiB"] = "yes" if await accepted(await joined(port), "kind/large", bytes(LARGE)) else "no"
    found["characters of topics"] = await characters(port)
    return found


async def speaks_5(port: int) -> bool:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, PacketError):
        (await joined(port, version=wire.V5)).abort()
        return True
    return False


async def qos2(port: int) -> str:
    answer = await accepted(await joined(port), "kind/q", b"x", qos=2)
    if answer is None:
        return "no: ends the connection"
    return "yes" if isinstance(answer, wire.Pubrec) else "no: taken as QoS 1"


async def retained(port: int, filter: str) -> str:
    assert await accepted(await joined(port), "kind/r", b"r", retain=True)
    watcher = await joined(port)
    await watcher.subscribe(filter, qos=1)
    # another one of the same topic: some brokers hand out what is retained only after SUBACK
    assert await accepted(await joined(port), "kind/r", MARK)
    first = await next_message(watcher)
    return "yes" if (first.payload, first.retain) == (b"r", True) else "no"


async def shared(port: int) -> str:
    member, watcher = await joined(port), await joined(port)
    granted = (await member.subscribe("$share/group/kind/s", qos=1)).reasons[0]
    await watcher.subscribe("kind/s", qos=1)
    if granted >= 0x80:
        return "no: refused"
    await member.subscribe("kind/mark", qos=1)
    publisher = await joined(port)
    assert await accepted(publisher, "kind/s", b"s")
    assert (await next_message(watcher)).payload == b"s"
    assert await accepted(publisher, "kind/mark", MARK)
    first = await next_message(member)
    return "yes" if first.payload == b"s" else "no: granted, and nothing comes"


async def will(port: int) -> str:
    watcher = await joined(port)
    await watcher.subscribe("kind/will", qos=1)
    left = wire.Will(topic="kind/will", payload=b"w", qos=1, retain=False)
    (await joined(port, will=left)).abort()
    return "yes" if (await next_message(watcher)).payload == b"w" else "no"


async def session(port: int) -> str:
    (await joined(port, "kind-stays", clean=False)).abort()
    end = await joined(port, "kind-stays", clean=False)
    await end.subscribe("kind/k", qos=1)
    await end.send(wire.Disconnect())
    await end.closed()
    assert await accepted(await joined(port), "kind/k", b"k")
    end = await joined(port, "kind-stays", clean=False)
    return "yes" if end.connack.session_present and (await next_message(end)).payload == b"k" else "no"


async def characters(port: int) -> str:
    """Which of `CHARACTERS` it does not take as they are."""
    wrong = []
    for character in CHARACTERS:
        if (what := await _character(port, character)) is not None:
            wrong.append(f"`{character}` {what}")
    return "all" if not wrong else "not " + ", ".join(wrong)


async def _character(port: int, character: str) -> str | None:
    topic = f"kind/c{character}/c"
    watcher = await joined(port)
    await watcher.subscribe("kind/+/c", qos=1)
    await watcher.subscribe("kind/c", qos=1)
    if await accepted(await joined(port), topic, b"c") is None:
        return "ends the connection"
    assert await accepted(await joined(port), "kind/c", MARK)
    try:
        message = await next_message(watcher)
    except PacketError:
        return "becomes a wildcard"
    if message.payload != b"c":
        return "becomes `/`"
    own = await joined(port)
    if (await own.subscribe(f"kind/w/{character}", qos=1)).reasons[0] >= 0x80:
        return "is refused"
    await own.subscribe("kind/mark", qos=1)
    assert await accepted(await joined(port), "kind/w/other", b"other")
    assert await accepted(await joined(port), "kind/mark", MARK)
    if (await next_message(own)).payload != MARK:
        return "is a wildcard"
    return None if message.topic == topic else f"becomes `{message.topic[6]}`"


def refused(name: str) -> Found:
    """What the guard refuses there, of its own table."""
    kind = KINDS[KIND[name]]
    characters = ", ".join(f"`{each}`" for each in kind.barred)
    return {
        "`kind`": f"`{KIND[name].value}`",
        "QoS 2": "passes" if kind.qos == 2 else "refused: 0x9B",
        "retained": "passes" if kind.retain else "refused: 0x9A",
        "shared subscriptions": "pass" if kind.shared else "refused: 0x9E",
        "characters of topics": "all" if not characters else f"refused: {characters} (0x90, 0x8F)",
    }


def consistent(name: str, found: Found) -> list[str]:
    """What a broker makes less of, and the guard does not refuse; or the other way round."""
    kind, wrong = KINDS[KIND[name]], []
    for row, able in (
        ("QoS 2", kind.qos == 2),
        ("retained, for a filter with wildcards", kind.retain),
        ("shared subscriptions", kind.shared),
    ):
        if able is not (found[row] == "yes"):
            wrong.append(f"{row}: {found[row]}")
    wrong += [
        f"{each!r} in topics"
        for each in CHARACTERS
        if (f"`{each}` " in found["characters of topics"]) is kind.names(each)
    ]
    return wrong


TEXT: Final = """# Brokers behind a guard

Written by `python tests/guard/backend_kinds.py --update`, from what the brokers of Debian 12 do; a test finds out
again. `kind` is a key of [a scope with a backend](configuration.md#scopesname).

## What they do by themselves

{found}

## What the guard refuses there

{refused}

- What is refused is refused as MQTT has it. MQTT 5 clients learn from CONNACK what there is not (`Maximum QoS`,
  `Retain Available`, `Shared Subscription Available`), and are disconnected with 0x9B or 0x9A if they use it; those of
  3.1.1 are disconnected. Shared subscriptions and filters are refused in SUBACK, topics in PUBACK.
- Messages from other scopes, links and services go there with at most the QoS of the table, as to a subscriber who was
  granted no more, and without retain where that is refused.
- A subscription with QoS 2 is granted with QoS 1, which SUBACK says.
- Clients may speak MQTT 5 to the guard of a broker of 3.1.1; [the guard](../scopes/guard.md#what-is-promised) says what
  it does itself then.
- A broker of MQTT 3.1.1 cannot say what it does not do. The guard asks it for QoS 2 when it connects. If less is
  granted and `kind` does not say why, clients are refused with 0x88, and `tidegate status` says so. NATS from 2.10 on
  takes QoS 2 and would not be found out: say `kind: nats`.
- NATS shows clients that subscribe to `#` what it tells itself (`$MQTT/…`, `$JS/…`); behind the guard nobody gets that.
- NATS sends QoS 1 again that was on its way to a connection which is gone, after its `ack_wait` (30 s unless
  configured). It refuses who comes back with the same client identifier while it still has the old connection.
- RabbitMQ keeps what is retained by node, and hands it out for filters without wildcards only. So it is refused whole.
"""


def table(columns: list[str], rows: dict[str, list[str]]) -> str:
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    return "\n".join([*lines, *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items())])


def page(found: dict[str, Found]) -> str:
    """The page."""
    names = list(found)

    def rows(of: Callable[[str], Found]) -> dict[str, list[str]]:
        return {row: [of(name)[row].replace("|", "\\|") for name in names] for row in of(names[0])}

    columns = [NAMES[name] for name in names]
    return TEXT.format(found=table(columns, rows(found.__getitem__)), refused=table(columns, rows(refused)))


async def find_all() -> dict[str, Found]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[2:] or NAMES:
            with running(name, Path(folder) / name) as broker:
                async with asyncio.timeout(20 * PATIENCE):
                    found[name] = await probe(broker.port)
                await left()
    return found


if __name__ == "__main__":
    found = asyncio.run(find_all())
    for name, known in found.items():
        print(name, known, consistent(name, known), file=sys.stderr)
    if sys.argv[1:] == ["--update"]:
        PAGE.write_text(page(found))
