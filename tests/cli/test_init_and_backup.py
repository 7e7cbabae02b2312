"""`tidegate init` and `demo` make something that runs; `backup` and `restore` keep the state of a node that runs."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import sqlite3
import subprocess
import tarfile
from pathlib import Path

import pytest

from cli.driving import TIDEGATE, Tidegate
from harness import Client, free_port
from processes import File, Process, on_uvloop, process
from tidegate import wire
from tidegate.store.backup import MANIFEST

NODE = """
version: 1
node: {name: kept, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
http: {url: "http://127.0.0.1:HTTP_PORT"}
policies: open
"""


@pytest.mark.parametrize(
    "options", [(), ("--user", ""), ("--user", "", "--anonymous"), ("--http", ""), ("--name", "a-b", "--user", "m y")]
)
def test_whatever_is_answered_is_a_configuration(tidegate: Tidegate, tmp_path: Path, options: tuple[str, ...]) -> None:
    done = tidegate("init", *options)
    assert done.returncode == 0, done.stderr
    written = tmp_path / "tidegate.yaml"
    assert written.stat().st_mode & 0o077 == 0
    checked = tidegate("check", "tidegate.yaml")
    assert checked.returncode == 0, checked.stderr
    assert tidegate("init", *options).returncode == 1


def test_the_first_user_can_log_in(tidegate: Tidegate, tmp_path: Path) -> None:
    url = f"mqtt://127.0.0.1:{free_port()}"
    done = tidegate("init", "--listen", url, "--http", "", "--user", "mary")
    found = re.search(r"the password of mary is (\S+);", done.stderr)
    assert found is not None
    assert found[1] not in (tmp_path / "tidegate.yaml").read_text()
    with process(tmp_path, (tmp_path / "tidegate.yaml").read_text()):
        port = url.rpartition(":")[2]
        sent = tidegate("pub", "-p", port, "-u", "mary", "-P", found[1], "-t", "a", "-m", "x", "-q", "1")
        assert sent.returncode == 0, sent.stderr


def test_a_wrong_answer_is_refused_and_nothing_is_written(tidegate: Tidegate, tmp_path: Path) -> None:
    done = tidegate("init", "--listen", "http://127.0.0.1")
    assert done.returncode == 1
    assert "must begin with mqtt://" in done.stderr
    assert not (tmp_path / "tidegate.yaml").exists()


def test_the_demo_is_copied(tidegate: Tidegate, tmp_path: Path) -> None:
    assert tidegate("demo", "here", "--copy").returncode == 0
    assert {path.name for path in (tmp_path / "here").iterdir()} == {
        "run.py", "devices.py", "rules.yaml", "tidegate.yaml"
    }  # fmt: skip
    assert tidegate("check", "here/tidegate.yaml").returncode == 0
    (tmp_path / "other").mkdir()
    assert tidegate("demo", "other").returncode == 1


def test_the_demo_is_in_the_wheel() -> None:
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for name in ("run.py", "devices.py", "rules.yaml", "tidegate.yaml"):
        assert f'"examples/quickstart/{name}" = "tidegate/quickstart/{name}"' in pyproject


# -- backup ----------------------------------------------------------------------------------------------------------


async def come(port: int, name: str, *, clean: bool = False) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    kept = wire.Properties(session_expiry_interval=3600)
    await client.send(wire.Connect(version=wire.V5, client_id=name, clean_start=clean, keep_alive=0, properties=kept))
    client.connack = await client.expect(wire.Connack)
    assert client.connack.reason == 0
    return client


def boot(data: Path) -> int:
    with contextlib.closing(sqlite3.connect(data / "tidegate.db")) as store:
        return int(store.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()[0])


@on_uvloop
async def test_a_node_that_runs_is_backed_up_and_restored(tmp_path: Path) -> None:
    with process(tmp_path, NODE) as node:
        port, data = node.ports["PORT"], tmp_path / "data"
        reader = await come(port, "reader")
        await reader.subscribe("kept/#", qos=1)
        reader.writer.close()
        writer = await come(port, "writer", clean=True)
        await writer.publish("kept/a", b"before", qos=1, retain=True)
        await asyncio.to_thread(run, "backup", "-c", node.file.path, "-o", tmp_path / "b.tgz")
        assert (tmp_path / "b.tgz").stat().st_mode & 0o077 == 0
        refused = await asyncio.to_thread(run, "backup", "-c", node.file.path, "-o", tmp_path / "b.tgz", code=1)
        assert "choose another name" in refused
        await writer.publish("kept/a", b"after", qos=1, retain=True)
        writer.writer.close()
    refused = await asyncio.to_thread(run, "restore", tmp_path / "b.tgz", "-c", node.file.path, code=1)
    assert "holds a state already" in refused
    before = boot(data)
    data.rename(tmp_path / "older")
    await asyncio.to_thread(run, "restore", tmp_path / "b.tgz", "-c", node.file.path)
    assert boot(data) > before + 1_000_000
    again = Process(File(tmp_path, node.file.path.read_text()))
    again.wait_until_it_accepts()
    try:
        reader = await come(port, "reader")
        assert reader.connack.session_present
        assert (await reader.message()).payload == b"before"  # it waited in the queue of the backup
        await reader.subscribe("kept/#", qos=1)
        assert (await reader.message()).payload == b"before"
        reader.writer.close()
        await reader.writer.wait_closed()
    finally:
        assert again.stop() == 0
    await asyncio.to_thread(run, "backup", "-c", node.file.path, "-o", tmp_path / "rests.tgz")  # one that rests


def run(*arguments: object, code: int = 0) -> str:
    """`tidegate …` to its end; what it writes."""
    done = subprocess.run([TIDEGATE, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done
    return done.stdout + done.stderr


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with process(tmp_path, NODE) as node:
        pass
    run("backup", "-c", node.file.path, "-o", tmp_path / "b.tgz")
    (tmp_path / "data").rename(tmp_path / "older")
    return tmp_path / "b.tgz"


def test_a_backup_is_not_written_into_what_is_backed_up(tmp_path: Path) -> None:
    with process(tmp_path, NODE) as node:
        pass
    data = tmp_path / "data"
    (tmp_path / "same").symlink_to(data)
    before = sorted(data.iterdir())
    for place in (data / "b.tgz", data / "journal" / "b.tgz", tmp_path / "same" / "b.tgz"):
        assert "is in the folder that is backed up" in run("backup", "-c", node.file.path, "-o", place, code=1)
    assert sorted(data.iterdir()) == before


def test_what_is_damaged_or_of_another_node_is_refused_whole(backup: Path) -> None:
    folder = backup.parent
    config = folder / "tidegate.yaml"
    other = folder / "other.yaml"
    other.write_text(config.read_text().replace("name: kept", "name: other"))
    assert "is of the node `kept`" in run("restore", backup, "-c", other, code=1)
    with tarfile.open(backup) as archive:
        names = archive.getnames()
        contents = {name: archive.extractfile(name).read() for name in names}  # type: ignore[union-attr]
    assert names[0] == MANIFEST
    assert {"tidegate.db", "admin.db"} <= set(names)
    for wrong in ("changed", "missing", "added", "outside", "no manifest", "cut", "text"):
        bad = folder / f"{wrong}.tgz"
        changed = dict(contents)
        match wrong:
            case "changed":
                changed["admin.db"] += b"x"
            case "missing":
                del changed["admin.db"]
            case "added":
                changed["evil"] = b""
            case "outside":
                changed["../evil"] = b""
            case "no manifest":
                del changed[MANIFEST]
        with tarfile.open(bad, "w:gz") as archive:
            for name, content in changed.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        if wrong == "cut":
            bad.write_bytes(bad.read_bytes()[:-200])
        if wrong == "text":
            bad.write_text("no archive")
        run("restore", bad, "-c", config, code=1)
        assert not list((folder / "data").glob("*")), wrong
    run("restore", backup, "-c", config)
