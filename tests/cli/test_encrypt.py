"""`tidegate pub --encrypt` and `tidegate sub --private-key` on protected topics of a real node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.driving import Tidegate, running, subscriber
from harness import PATIENCE, free_port
from keys.making import entropy
from processes import TIDEGATE
from tidegate.client import PrivateKey, key_id

MARY, BOB, STATION = (PrivateKey.generate(entropy(name)) for name in ("mary", "bob", "station"))
CONFIGURATION = f"""
version: 1
node: {{name: test}}
listeners: [{{url: "mqtt://127.0.0.1:PORT"}}]
explain: true
keys: {{protect: ["campodenno/#"], end_to_end: ["vault/#"]}}
directory:
  users:
    station: {{password: "plain:pw", public_key: "{STATION.public}"}}
    mary: {{password: "plain:pw", public_key: "{MARY.public}"}}
    bob: {{password: "plain:pw", public_key: "{BOB.public}"}}
policies:
  - {{id: send, subject: "user:station", topic: "#", action: write}}
  - {{id: farmer, subject: "user:mary", topic: "#", action: read}}
  - {{id: open, subject: "*", topic: "open/#", action: [read, write]}}
  - {{id: not-bob, subject: "user:bob", topic: "campodenno/#", action: read, effect: deny}}
sys: {{interval: 0s}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("town")
    for name, key in (("mary", MARY), ("bob", BOB), ("station", STATION)):
        (made / f"{name}.key").write_text(key.text())
    return made


@pytest.fixture(scope="module")
def town(folder: Path) -> Iterator[int]:
    port = free_port()
    file = folder / "tidegate.yaml"
    file.write_text(CONFIGURATION.replace("PORT", str(port)))
    with running([TIDEGATE, "run", "-c", str(file)], port, folder / "log"):
        yield port


def as_user(folder: Path, user: str, *, key: bool = True) -> tuple[object, ...]:
    held = ("--private-key", folder / f"{user}.key") if key else ()
    return ("-u", user, "-P", "pw", *held)


async def ended(process: asyncio.subprocess.Process) -> tuple[str, str]:
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode == 0, err
    return out.decode(), err.decode()


async def test_what_is_protected_is_opened(town: int, folder: Path, tidegate: Tidegate) -> None:
    shown = ("-t", "campodenno/#", "-C", 1)
    async with (
        subscriber(town, *shown, *as_user(folder, "mary"), "--encrypt") as verbose,
        subscriber(town, *shown, *as_user(folder, "mary"), "--json") as lines,
        subscriber(town, *shown, *as_user(folder, "mary", key=False), "--json") as raw,
    ):
        done = await asyncio.to_thread(
            *(tidegate, "pub", "-p", town, *as_user(folder, "station", key=False)),
            *("-t", "campodenno/soil", "-m", "wet", "-q", 1),
        )
        assert done.returncode == 0, done.stderr
        closed = json.loads((await ended(raw))[0])
        id = key_id(closed["payload"].encode())
        assert id is not None
        assert "key" not in closed
        assert "not_opened" not in closed
        assert (await ended(verbose))[0].strip() == f"campodenno/soil wet  (QoS 0, key {id})"
        found = json.loads((await ended(lines))[0])
        assert (found["payload"], found["key"]) == ("wet", id)
        assert "not_opened" not in found


async def test_end_to_end(town: int, folder: Path, tidegate: Tidegate) -> None:
    async with subscriber(town, "-t", "vault/#", "-C", 2, *as_user(folder, "mary"), "--json") as process:
        for options, stdin in ((("-m", "one"), ""), (("-l",), "two\n")):
            done = await asyncio.to_thread(
                *(tidegate, "pub", "-p", town, *as_user(folder, "station"), "--encrypt", "-t", "vault/1", "-q", 1),
                *options,
                stdin=stdin,
            )
            assert done.returncode == 0, done.stderr
        out, _ = await ended(process)
    assert [json.loads(line)["payload"] for line in out.splitlines()] == ["one", "two"]
    clear = tidegate("pub", "-p", town, *as_user(folder, "station"), "-t", "vault/1", "-m", "x", "-q", 1)
    assert clear.returncode == 1
    assert "sealed" in clear.stderr


async def test_what_cannot_be_opened_is_shown_as_such(town: int, folder: Path, tidegate: Tidegate) -> None:
    closed = ("-t", "campodenno/soil", "-C", 1, *as_user(folder, "mary", key=False), "--json")
    async with subscriber(town, *closed) as process:
        sent = ("pub", "-p", town, *as_user(folder, "station", key=False), "-t", "campodenno/soil", "-m", "x", "-q", 1)
        assert (await asyncio.to_thread(tidegate, *sent)).returncode == 0
        leaked = json.loads((await ended(process))[0])["payload"]
    wanted = ("-t", "open/#", "-C", 1, *as_user(folder, "bob"))
    async with (
        subscriber(town, *wanted) as verbose,
        subscriber(town, *wanted, "--json") as lines,
    ):
        leak = ("pub", "-p", town, *as_user(folder, "mary", key=False), "-t", "open/x", "-m", leaked, "-q", 1, "-r")
        assert (await asyncio.to_thread(tidegate, *leak)).returncode == 0
        out, _ = await ended(verbose)
        assert leaked in out
        assert f"key {key_id(leaked.encode())}, not opened: " in out
        assert "not-bob" in out
        found = json.loads((await ended(lines))[0])
        assert (found["payload"], found["rule"]) == (leaked, "not-bob")
        assert "not-bob" in found["not_opened"]
    plain = tidegate("sub", "-p", town, *wanted)
    assert (plain.returncode, plain.stdout) == (0, leaked + "\n")
    assert plain.stderr.startswith("error: open/x: not opened: ")


async def test_no_key_to_seal_with(town: int, folder: Path, tidegate: Tidegate) -> None:
    done = tidegate("pub", "-p", town, *as_user(folder, "bob"), "--encrypt", "-t", "vault/1", "-m", "x")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--encrypt",), "--encrypt needs --private-key"),
        (("--keys-url", "http://h"), "add --private-key"),
        (("--reader", "user:mary"), "add --private-key"),
        (("--private-key", "KEY", "--keys-url", "http://h"), "needs --token"),
        (("--private-key", "KEY", "--keys-url", "h:80", "--token", "t"), "not an HTTP address"),
    ],
)
def test_wrong_usage(folder: Path, tidegate: Tidegate, options: tuple[str, ...], why: str) -> None:
    given = [str(folder / "mary.key") if each == "KEY" else each for each in options]
    for command in (("pub", "-t", "a", "-m", "x"), ("sub", "-t", "a")):
        done = tidegate(*command, *given)
        assert done.returncode == 2
        assert why in done.stderr


def test_a_file_that_is_no_key(town: int, folder: Path, tidegate: Tidegate) -> None:
    (folder / "no.key").write_text("nothing")
    done = tidegate("sub", "-p", town, "-t", "a", "-u", "mary", "-P", "pw", "--private-key", folder / "no.key")
    assert done.returncode == 1
    assert "no.key: it is no private key" in done.stderr


def test_keys_over_http_that_is_not_there(town: int, folder: Path, tidegate: Tidegate) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    given = (*as_user(folder, "station"), "--keys-url", url, "--encrypt", "-t", "vault/1", "-m", "x")
    done = tidegate("pub", "-p", town, *given, TIDEGATE_TOKEN="tg_x")
    assert done.returncode == 1
    assert f"{url} cannot be reached" in done.stderr
