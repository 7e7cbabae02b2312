"""`tidegate audit`, with nodes as a user runs them."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from typer.testing import CliRunner

from cli.driving import ENVIRONMENT, TIDEGATE, Tidegate, command, running
from harness import PATIENCE, Client, free_port
from tidegate import wire
from tidegate.cli.commands import app

CONFIG = """
version: 1
node: {{name: watched{data}, timezone: Europe/Rome}}
listeners: [{{url: "mqtt://127.0.0.1:{port}", anonymous: true}}]
directory: {{users: {{mary: {{password: "plain:lamb"}}}}}}
policies:
  - {{id: writes, subject: "user:mary", topic: "a/#", action: write}}
  - {{id: shut, subject: "*", topic: "a/shut/#", action: [read, write], effect: deny}}
"""


class Watched:
    """A configuration whose node may run."""

    def __init__(self, folder: Path, *, data: bool = True) -> None:
        self.port = free_port()
        self.file = folder / "watched.yaml"
        self.file.write_text(CONFIG.format(port=self.port, data=", data: data" if data else ""))
        self.log = folder / "log"

    @contextmanager
    def running(self) -> Iterator[None]:
        with running([TIDEGATE, "run", "-c", str(self.file)], self.port, self.log):
            yield

    def stop(self) -> None:
        said = [TIDEGATE, "stop", "-c", str(self.file)]
        subprocess.run(said, env=ENVIRONMENT, capture_output=True, timeout=60, check=True)

    def publish(self, *topics: str) -> None:
        """As mary, one after the other over one connection."""
        asyncio.run(self.published(*topics))

    async def published(self, *topics: str) -> None:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        said = {"version": wire.V5, "client_id": "m", "clean_start": True, "keep_alive": 0}
        await client.send(wire.Connect(**said, username="mary", password=b"lamb"))
        assert (await client.expect(wire.Connack)).reason == 0
        for topic in topics:
            await client.publish(topic, qos=1)
        await client.disconnect()
        assert await client.closed() == b""


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def asked(*arguments: object) -> Any:
    """The same command in this process, which is faster."""
    return CliRunner().invoke(app, ["audit", *map(str, arguments)], env=ENVIRONMENT, prog_name="tidegate")


def lines(done: Any) -> list[dict[str, Any]]:
    code = done.returncode if isinstance(done, subprocess.CompletedProcess) else done.exit_code
    assert code == 0, (done, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_before_during_and_after(tidegate: Tidegate, watched: Watched) -> None:
    """The journal is read also while the node writes it, and when it does not run."""
    c = ("-c", watched.file)
    done = tidegate("audit", *c)
    assert done.returncode == 1
    assert "start it with `tidegate run" in done.stderr
    with watched.running():
        watched.publish("a/shut/1", "b")
        found = lines(tidegate("audit", *c, "--json", "--kind", "deny"))
        assert [(row["topic"], row["user"], row["client"], row["stage"], row["count"]) for row in found] == [
            ("a/shut/1", "mary", "m", "write", 1),
            ("b", "mary", "m", "write", 1),
        ]
        assert found[0]["rule"] == "shut"
        assert found[0]["at"].endswith("Z")
        assert found[0]["link"] == "client:m->scope:main"
        watched.publish("b")
        again = lines(asked(*c, "--json", "--topic", "b"))
        assert sum(row["count"] for row in again) == 2  # what was only counted so far is there, too
    rows = lines(tidegate("audit", *c, "--json"))
    assert rows[0]["kind"] == "change"
    assert {row["kind"] for row in rows} == {"change", "connect", "deny", "disconnect"}
    assert lines(asked(*c, "--json", "--limit", "2")) == rows[-2:]
    with watched.running():  # another life; the first is not forgotten
        longer = lines(asked(*c, "--json"))
        assert longer[: len(rows)] == rows
        assert [row["action"] for row in longer if row["kind"] == "change"] == ["start", "start"]


def test_what_is_told_of_a_delivery(tidegate: Tidegate, watched: Watched) -> None:
    """Its publisher, and for levels the demand and the floor."""
    watched.file.write_text(watched.file.read_text().partition("policies:")[0] + "policies: open\n")

    async def spoken() -> None:
        reader = Client(*await asyncio.open_connection("127.0.0.1", watched.port))
        await reader.send(wire.Connect(version=wire.V5, client_id="r", clean_start=True, keep_alive=0))
        await reader.expect(wire.Connack)
        await reader.subscribe("#")
        writer = Client(*await asyncio.open_connection("127.0.0.1", watched.port))
        said = {"version": wire.V5, "client_id": "m", "clean_start": True, "keep_alive": 0}
        await writer.send(wire.Connect(**said, username="mary", password=b"lamb"))
        await writer.expect(wire.Connack)
        await writer.publish("a", properties=wire.Properties(user_properties=(("require", "tls"),)))
        await writer.silent()
        for client in (reader, writer):
            await client.disconnect()
            await client.closed()

    with watched.running():
        asyncio.run(spoken())
        shown = tidegate("audit", "-c", watched.file, "--kind", "deny").stdout.splitlines()
        (row,) = [line for line in shown if " levels " in line]
        assert re.search(r"publisher's demand +user:mary/client:m +demand tls; floor plain$", row.rstrip())
        (found,) = lines(asked("-c", watched.file, "--json", "--kind", "deny"))
        assert (found["publisher"], found["detail"]) == ("user:mary/client:m", "demand tls; floor plain")


def test_what_people_see(tidegate: Tidegate, watched: Watched) -> None:
    c = ("-c", watched.file)
    with watched.running():
        watched.publish("a/shut/1", *["b/" + "long/" * 60] * 2)
        shown = tidegate("audit", *c)
        assert shown.returncode == 0
        head, _, *rest = [line for line in shown.stdout.splitlines() if line.strip()]
        titles = ("time", "kind", "count", "client", "user", "action", "topic", "stage", "rule", "publisher", "detail")
        assert tuple(head.split()) == titles
        column = head.index("topic")
        (row,) = [line for line in rest if "shut" in line]
        assert row[head.index("publisher") :].startswith("user:mary/client:m")
        assert row[column:].startswith("a/shut/1 ")
        assert "b/" + "long/" * 60 in shown.stdout  # nobody's terminal: nothing is cut
        utc = lines(asked(*c, "--json", "--rule", "shut"))[0]["at"]
        local = datetime.fromisoformat(utc).astimezone(ZoneInfo("Europe/Rome"))
        assert row.startswith(f"{local:%Y-%m-%d %H:%M:%S}  deny ")

        summed = asked(*c, "--summary", "--kind", "deny")
        table = [line.split() for line in summed.stdout.splitlines() if line.strip()]
        assert table[0] == ["rule", "kind", "stage", "count", "users", "last", "seen", "detail"]
        assert " deny  write      2  mary " in summed.stdout
        assert table[3][:5] == ["shut", "deny", "write", "1", "mary"]
        added = lines(asked(*c, "--summary", "--json"))
        by_rule = {(each["kind"], each["rule"]): each for each in added}
        assert by_rule["deny", "shut"]["count"] == 1
        assert by_rule["deny", "shut"]["users"] == ["mary"]
        nothing = asked(*c, "--user", "nobody")
        assert (nothing.exit_code, nothing.stdout) == (0, "")
        assert "Nothing was recorded" in nothing.stderr


def test_a_terminal_is_not_wider_than_it_is(watched: Watched) -> None:
    with watched.running():
        watched.publish("b/" + "long/" * 60)
        ours, theirs = pty.openpty()
        environment = {**ENVIRONMENT, "COLUMNS": "120", "TERM": "xterm"}
        done = subprocess.Popen(
            [TIDEGATE, "audit", "-c", str(watched.file), "--kind", "deny"], stdout=theirs, env=environment
        )
        assert done.wait(60) == 0
        os.close(theirs)
        shown = re.sub(r"\x1b\[[0-9;]*m", "", os.read(ours, 65536).decode())
        os.close(ours)
        assert "b/long" in shown
        assert "…" in shown
        assert all(len(line.rstrip()) <= 120 for line in shown.splitlines())


def test_times(watched: Watched) -> None:
    c = ("-c", watched.file, "--json", "--kind", "deny")
    with watched.running():
        watched.publish("b")
        (row,) = lines(asked(*c, "--since", "1h"))
        assert lines(asked(*c, "--until", "1h")) == []
        assert lines(asked(*c, "--since", row["at"])) == [row]
        assert lines(asked(*c, "--until", row["at"])) == []
        assert lines(asked(*c, "--since", "2020-01-01", "--until", "2020-01-02")) == []
        assert lines(asked(*c, "--since", "2020-01-01T08:00")) == [row]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kind", "denied"), "there is no kind 'denied'; there is allowed, change"),
        (("--since", "yesterday"), "--since is a time such as"),
        (("--topic", "a/#/b"), "is no topic filter"),
        (("--follow", "--summary"), "--follow has no end"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_wrong_usage(watched: Watched, arguments: tuple[str, ...], said: str) -> None:
    done = asked("-c", watched.file, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_without_a_journal_the_node_is_asked(tidegate: Tidegate, tmp_path: Path) -> None:
    watched = Watched(tmp_path, data=False)
    c = ("-c", watched.file)
    with watched.running():
        watched.publish("b", "b")
        found = lines(asked(*c, "--json", "--kind", "deny", "--topic", "b"))
        assert sum(row["count"] for row in found) == 2
        (total,) = lines(asked(*c, "--json", "--kind", "deny", "--summary"))
        assert total["count"] == 2
        status = json.loads(tidegate("status", *c, "--json").stdout)["audit"]
        assert (status["dropped"], status["trouble"]) == (0, None)
        assert status["rows"] >= 3
    done = tidegate("audit", *c)
    assert done.returncode == 1
    assert "is the node running?" in done.stderr


def test_an_ephemeral_node_is_found_by_its_port(tidegate: Tidegate, node: int) -> None:
    found = lines(tidegate("audit", "--port", node, "--json", "--kind", "change"))
    assert [row["action"] for row in found] == ["start"]


@pytest.mark.parametrize("form", ["--json", ""])
async def test_following(watched: Watched, form: str) -> None:
    with watched.running():
        await watched.published("b")
        arguments = [one for one in ("audit", "-c", watched.file, "-f", "--kind", "deny", form) if one]
        async with command(*arguments) as follower:
            assert follower.stdout is not None

            async def line_with(text: bytes) -> bytes:
                assert follower.stdout is not None
                async with asyncio.timeout(PATIENCE):
                    while text not in (line := await follower.stdout.readline()):
                        assert line
                return line

            await line_with(b" b " if not form else b'"b"')
            await watched.published("a/shut/now")
            line = await line_with(b"a/shut/now")
            if form:
                assert json.loads(line)["rule"] == "shut"
            follower.send_signal(signal.SIGINT)
            async with asyncio.timeout(PATIENCE):
                assert await follower.wait() == 0
        async with command(*arguments) as follower:
            assert follower.stdout is not None
            async with asyncio.timeout(PATIENCE):
                await follower.stdout.readline()
            subprocess.run(
                [TIDEGATE, "stop", "-c", str(watched.file)], env=ENVIRONMENT, capture_output=True, timeout=60
            )
            async with asyncio.timeout(PATIENCE):
                _, err = await follower.communicate()
            assert follower.returncode == 0
            assert b"the node has stopped" in err


def test_following_nobody(tidegate: Tidegate, watched: Watched) -> None:
    done = tidegate("audit", "-c", watched.file, "--follow")
    assert done.returncode == 1
    assert "is the node running?" in done.stderr
