"""The control socket, from both sides, on both event loops; peers that misbehave use plain sockets."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import socket
import stat
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from structlog.testing import capture_logs

from tidegate.errors import ConfigError, TidegateError
from tidegate.net import control_socket as control
from tidegate.net.control_socket import LINE, PEERS, Control, ask, follow

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def runner(work: Coroutine[Any, Any, None]) -> None:
        failures: list[dict[str, Any]] = []

        async def guarded() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
            async with asyncio.timeout(30):
                await work

        with asyncio.Runner(loop_factory=request.param) as it:
            it.run(guarded())
        assert failures == []

    return runner


class Commands:
    def __init__(self) -> None:
        self.streams = 0
        self.ended = asyncio.Event()
        self.started = asyncio.Event()
        self.release = asyncio.Event()

    def mapping(self) -> dict[str, Callable[..., Any]]:
        return {
            "status": lambda: {"state": "running", "clients": 3},
            "add": self.add,
            "wait": self.wait,
            "refuse": self.refuse,
            "break": self.break_,
            "opaque": lambda: {"what": object()},
            "nothing": lambda: None,
            "big": lambda size: "x" * size,
            "count": self.count,
            "idle": self.idle,
            "later": self.later,
            "flood": self.flood,
        }

    async def add(self, a: int, b: int = 1) -> int:
        await asyncio.sleep(0)
        return a + b

    async def wait(self) -> str:
        self.started.set()
        await self.release.wait()
        return "done"

    def refuse(self) -> None:
        raise TidegateError("no: the file is broken at line 3")

    def break_(self) -> None:
        raise KeyError("an internal secret")

    async def count(self, to: int, failing: str = "") -> AsyncIterator[int]:
        for number in range(to):
            yield number
        if failing == "known":
            raise TidegateError("no more")
        if failing:
            raise KeyError("an internal secret")

    async def idle(self) -> AsyncIterator[str]:
        self.streams += 1
        try:
            yield "first"
            await asyncio.Event().wait()
        finally:
            self.streams -= 1
            self.ended.set()

    async def later(self) -> AsyncIterator[int]:
        await asyncio.sleep(0)
        return self.count(2)

    async def flood(self) -> AsyncIterator[str]:
        try:
            while True:
                yield "x" * 100_000
        finally:
            self.ended.set()


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[tuple[Control, Commands]]:
    commands = Commands()
    node = Control(path, commands.mapping())
    await node.start()
    try:
        yield node, commands
    finally:
        await node.close()
    assert not path.exists()


async def aside(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return await asyncio.to_thread(function, *args, **kwargs)


def call(path: Path, data: bytes) -> list[dict[str, Any]]:
    """Sends raw bytes and the end, and reads all answers."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(20)
        peer.connect(str(path))
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # answered and closed before it had all
        answer = b""
        try:
            while piece := peer.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    return [json.loads(line) for line in answer.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node" / "control.sock"


def test_questions_and_answers(run: Run, path: Path) -> None:
    async def scenario() -> None:
        async with running(path):
            assert await aside(ask, path, "status") == {"state": "running", "clients": 3}
            assert await aside(ask, path, "add", a=2) == 3
            assert await aside(ask, path, "add", a=2, b=40) == 42
            assert await aside(ask, path, "nothing") is None
            assert len(await aside(ask, path, "big", size=3_000_000)) == 3_000_000

    run(scenario())


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        ("refuse", {}, "broken at line 3"),
        ("dance", {}, "no command 'dance'; there is add,"),
        ("add", {}, "add: missing a required argument: 'a'"),
        ("add", {"a": 1, "c": 2}, "add: got an unexpected keyword argument 'c'"),
        ("count", {"to": 2}, "stream"),
    ],
)
def test_saying_no(run: Run, path: Path, command: str, arguments: dict[str, Any], says: str) -> None:
    async def scenario() -> None:
        async with running(path):
            with pytest.raises(TidegateError, match=says):
                await aside(ask, path, command, **arguments)

    run(scenario())


@pytest.mark.parametrize("command", ["break", "opaque"])
def test_failures_are_logged_and_not_told(run: Run, path: Path, command: str) -> None:
    async def scenario() -> None:
        async with running(path):
            with (
                capture_logs() as logs,
                pytest.raises(TidegateError, match=f"{command} failed in the node .*log") as error,
            ):
                await aside(ask, path, command)
            assert "secret" not in str(error.value)
            assert [(entry["log_level"], entry["command"]) for entry in logs] == [("error", command)]
            assert await aside(ask, path, "status")

    run(scenario())


def test_several_requests_on_one_connection(run: Run, path: Path) -> None:
    async def scenario() -> None:
        async with running(path):
            lines = [{"command": "add", "a": number} for number in range(20)]
            data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
            answers = await aside(call, path, data)
            assert answers == [{"ok": True, "result": number + 1} for number in range(20)]

    run(scenario())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"42",
        b'"status"',
        b"{}",
        b'{"command": 1}',
        b"{",
        b"\xff\xfe",
        b"[" * 5000,
        b"GET / HTTP/1.1",
    ],
)
def test_nonsense_is_answered_and_survived(run: Run, path: Path, line: bytes) -> None:
    async def scenario() -> None:
        async with running(path):
            first, second = await aside(call, path, line + b'\n{"command": "nothing"}\n')
            assert first["ok"] is False
            assert "JSON" in first["error"]
            assert second == {"ok": True, "result": None}

    run(scenario())


def test_a_line_too_long(run: Run, path: Path) -> None:
    async def scenario() -> None:
        async with running(path):
            answers = await aside(call, path, b"x" * (LINE * 3))
            assert [answer["ok"] for answer in answers] in ([False], [])  # or cut off while it still sends
            assert await aside(call, path, b'{"command": "status"}') == []  # a line that never ends
            assert await aside(ask, path, "status")

    run(scenario())


def test_random_bytes(run: Run, path: Path) -> None:
    async def scenario() -> None:
        seed = random.SystemRandom().getrandbits(32)
        print("seed", seed)
        rng = random.Random(seed)
        good = b'{"command": "add", "a": 1}\n'
        async with running(path):
            for _ in range(100):
                data = bytearray(good * 3)
                for _ in range(rng.randrange(1, 5)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                for answer in await aside(call, path, bytes(data)):
                    assert answer["ok"] in (True, False)
            assert await aside(ask, path, "status")

    run(scenario())


def test_silent_peers_disturb_nobody_and_are_counted(run: Run, path: Path) -> None:
    async def scenario() -> None:
        async with running(path) as (node, _):
            silent = []
            for number in range(PEERS - 1):
                peer = socket.socket(socket.AF_UNIX)
                peer.connect(str(path))
                peer.sendall(b'{"comm'[: number % 7])
                silent.append(peer)
            assert await aside(ask, path, "status")
            while len(node._peers) != PEERS - 1:
                await asyncio.sleep(0.001)
            last = socket.socket(socket.AF_UNIX)
            last.connect(str(path))
            while len(node._peers) != PEERS:
                await asyncio.sleep(0.001)
            with pytest.raises(TidegateError, match="too many"):
                await aside(ask, path, "status")
            last.close()
            while len(node._peers) != PEERS - 1:
                await asyncio.sleep(0.001)
            assert await aside(ask, path, "status")
            for peer in silent:
                peer.close()

    run(scenario())


def test_a_silent_peer_loses_its_place(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "IDLE", 0.05)

    async def scenario() -> None:
        async with running(path):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(path))
                assert await aside(peer.recv, 1) == b""

    run(scenario())


@pytest.mark.parametrize("request_", [b'{"command": "big", "size": 9000000}\n', b'{"command": "flood"}\n'])
def test_a_peer_that_does_not_read(run: Run, path: Path, request_: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "SLOW", 0.1)

    async def scenario() -> None:
        async with running(path) as (node, commands):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(path))
                peer.sendall(request_)
                while not node._peers:
                    await asyncio.sleep(0.001)
                assert await aside(ask, path, "status")
                while node._peers:
                    await asyncio.sleep(0.01)
            if b"flood" in request_:
                assert commands.ended.is_set()

    run(scenario())


# Streams.


def test_a_stream(run: Run, path: Path) -> None:
    async def scenario() -> None:
        async with running(path):
            assert await aside(lambda: list(follow(path, "count", to=500))) == list(range(500))
            assert await aside(lambda: list(follow(path, "count", to=0))) == []
            assert await aside(lambda: list(follow(path, "later"))) == [0, 1]
            with pytest.raises(TidegateError, match="answers once"):
                await aside(lambda: list(follow(path, "status")))
            with pytest.raises(TidegateError, match="no command"):
                await aside(lambda: list(follow(path, "dance")))

    run(scenario())


def test_a_stream_that_fails(run: Run, path: Path) -> None:
    def collect(failing: str) -> tuple[list[int], str]:
        got = []
        try:
            for item in follow(path, "count", to=2, failing=failing):
                got.append(item)
        except TidegateError as error:
            return got, str(error)
        return got, ""

    async def scenario() -> None:
        async with running(path):
            assert await aside(collect, "known") == ([0, 1], "no more")
            with capture_logs() as logs:
                got, said = await aside(collect, "unknown")
            assert got == [0, 1]
            assert "KeyError" in said
            assert "secret" not in said
            assert len(logs) == 1

    run(scenario())


def test_who_follows_may_leave(run: Run, path: Path) -> None:
    def look() -> str:
        items = follow(path, "idle")
        try:
            return str(next(items))
        finally:
            items.close()  # type: ignore[attr-defined]

    async def scenario() -> None:
        async with running(path) as (node, commands):
            assert await aside(look) == "first"
            await commands.ended.wait()
            assert commands.streams == 0
            while node._peers:
                await asyncio.sleep(0.001)

    run(scenario())


def test_close_ends_streams(run: Run, path: Path) -> None:
    async def scenario() -> None:
        items: list[str] = []
        failed: list[str] = []

        def watch() -> None:
            try:
                for item in follow(path, "idle"):
                    items.append(item)
            except TidegateError as error:
                failed.append(str(error))

        async with running(path) as (node, commands):
            watcher = threading.Thread(target=watch)
            watcher.start()
            while not items:
                await asyncio.sleep(0.001)
            await node.close()
            assert commands.ended.is_set()
        await aside(watcher.join, 10)
        assert items == ["first"]
        assert "went away" in failed[0]

    run(scenario())


# Closing.


def test_close_lets_an_answer_leave(run: Run, path: Path) -> None:
    async def scenario() -> None:
        async with running(path) as (node, commands):
            question = asyncio.create_task(aside(ask, path, "wait"))
            await commands.started.wait()
            closing = asyncio.create_task(node.close(patience=20))
            await asyncio.sleep(0)
            commands.release.set()
            await closing
            assert await question == "done"

    run(scenario())


def test_close_does_not_wait_for_ever(run: Run, path: Path) -> None:
    async def scenario() -> None:
        async with running(path) as (node, commands):
            question = asyncio.create_task(aside(ask, path, "wait"))
            await commands.started.wait()
            await node.close(patience=0.05)
            with pytest.raises(TidegateError, match="went away"):
                await question
            await node.close()

    run(scenario())


def test_a_command_may_close(run: Run, path: Path) -> None:
    async def scenario() -> None:
        async def stop() -> str:
            await node.close()
            return "stopped"

        node = Control(path, {"stop": stop})
        await node.start()
        assert await aside(ask, path, "stop") == "stopped"
        with pytest.raises(TidegateError, match="is the node running"):
            ask(path, "stop")
        while node._peers:
            await asyncio.sleep(0.001)

    run(scenario())


# The file.


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_only_its_owner_may_open_it(run: Run, path: Path, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[tuple[int, int, bool]] = []
    rename = Path.rename

    def watched(self: Path, target: Path) -> Path:
        moved.append((self.stat().st_mode, self.parent.stat().st_mode, Path(target).exists()))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", watched)

    async def scenario() -> None:
        async with running(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            assert os.listdir(path.parent) == [path.name]

    run(scenario())
    [(file, folder, exists)] = moved
    assert (stat.S_IMODE(file), stat.S_IMODE(folder), exists) == (0o600, 0o700, False)
    assert stat.S_ISSOCK(file)
    assert os.listdir(path.parent) == []


def test_a_dead_socket_is_replaced(run: Run, path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()

    async def scenario() -> None:
        async with running(path):
            assert await aside(ask, path, "status")

    run(scenario())


def test_a_live_one_is_not(run: Run, path: Path) -> None:
    async def scenario() -> None:
        async with running(path):
            with pytest.raises(ConfigError, match=r"another node runs here.*stop it"):
                await Control(path, {}).start()
            assert await aside(ask, path, "status")
            assert os.listdir(path.parent) == [path.name]

    run(scenario())


def test_a_live_one_that_is_busy_is_not(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as first:
        busy.bind(str(path))
        busy.listen(0)
        first.connect(str(path))
        with pytest.raises(ConfigError, match="another node runs here"):
            asyncio.run(Control(path, {}).start())
        with pytest.raises(TidegateError, match="did not answer within"):
            ask(path, "status", timeout=0.1)


def test_what_is_not_a_socket_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("precious")
    with pytest.raises(ConfigError, match="in the way"):
        asyncio.run(Control(path, {}).start())
    assert path.read_text() == "precious"
    link = path.with_name("link.sock")
    link.symlink_to(path)
    with pytest.raises(ConfigError, match="in the way"):
        asyncio.run(Control(link, {}).start())
    assert sorted(os.listdir(path.parent)) == ["control.sock", "link.sock"]


def test_two_that_start_at_once(path: Path) -> None:
    path.parent.mkdir()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another node is starting"):
            asyncio.run(Control(path, {}).start())
    finally:
        os.close(folder)


def test_a_folder_of_everybody(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)
    with pytest.raises(ConfigError, match=r"mode 777.*folder of its own"):
        asyncio.run(Control(path, {}).start())


def test_a_folder_that_somebody_else_made_in_a_public_place(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()
    path.parent.parent.chmod(0o1777)
    run(open_and_close(path))
    monkeypatch.setattr(os, "geteuid", lambda: path.parent.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="made by somebody else"):
        asyncio.run(Control(path, {}).start())


async def open_and_close(path: Path) -> None:
    async with running(path):
        pass


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot make the control socket"):
        asyncio.run(Control(tmp_path / "file" / "control.sock", {}).start())
    with pytest.raises(ConfigError, match="cannot make the control socket"):
        asyncio.run(Control(tmp_path / "file" / "deeper" / "control.sock", {}).start())


def test_the_socket_of_a_later_node_stays(run: Run, path: Path) -> None:
    async def scenario() -> None:
        first = Control(path, {"who": lambda: 1})
        await first.start()
        path.rename(path.with_name("aside"))
        second = Control(path, {"who": lambda: 2})
        await second.start()
        await first.close()
        assert await aside(ask, path, "who") == 2
        await second.close()
        assert os.listdir(path.parent) == ["aside"]

    run(scenario())


def test_a_long_path(run: Run, tmp_path: Path) -> None:
    path = tmp_path / ("d" * 90) / ("e" * 90) / "control.sock"

    async def scenario() -> None:
        async with running(path):
            assert await aside(ask, path, "status")
            assert await aside(lambda: list(follow(path, "count", to=3))) == [0, 1, 2]
            with pytest.raises(ConfigError, match="another node runs here"):
                await Control(path, {}).start()

    run(scenario())
    too_long = tmp_path / ("n" * 120)
    with pytest.raises(ConfigError, match="too long for a socket"):
        ask(too_long, "status")


# Asking when something is wrong.


def test_nobody_there(path: Path) -> None:
    with pytest.raises(TidegateError, match="is the node running"):
        ask(path, "status")
    with pytest.raises(TidegateError, match="is the node running"):
        next(follow(path, "status"))
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(TidegateError, match="is the node running"):
        ask(path, "status")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "went away"),
        (b'{"ok": tr', "went away"),
        (b"SSH-2.0-OpenSSH\n", "not a Tidegate node"),
        (b"[]\n", "not a Tidegate node"),
        (b'{"hello": 1}\n', "not a Tidegate node"),
        (None, "did not answer within 0.2 s"),
    ],
)
def test_strange_answers(path: Path, answer: bytes | None, says: str) -> None:
    path.parent.mkdir()
    done = threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            if answer is None:
                done.wait(10)
            else:
                peer.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(TidegateError, match=says):
            ask(path, "status", timeout=0.2 if answer is None else 10)
        done.set()
        thread.join()


def test_arguments_that_cannot_be_sent(run: Run, path: Path) -> None:
    async def scenario() -> None:
        async with running(path):
            with pytest.raises(TypeError, match="cannot be called command"):
                ask(path, "add", command="x")
            with pytest.raises(TypeError):
                ask(path, "add", a=object())

    run(scenario())
