"""The control socket: how the command line speaks to a running node.

A Unix stream socket that only the user who runs the node may open: mode 0600, made in a private folder and
moved into place, so that there is no moment at which others could open it. Lines of JSON go both ways:

    {"command": "status", "verbose": true}
    {"ok": true, "result": {...}}                    or  {"ok": false, "error": "what is wrong, what to do"}
    ... "error": "...", "problem": "conflict", "details": [{"at": "policy/p1", "error": "..."}]}    for programs
    {"item": ...} {"item": ...} ... {"ok": true}     for a command that returns an asynchronous iterator

- A peer that is silent, slow or talks nonsense takes one of `PEERS` places for at most `IDLE` or `SLOW`
  seconds and disturbs nobody. A request has at most `LINE` bytes.
- A stream ends when the peer goes away or says anything at all.
- While messages flow, everything that is asked shares a small part of the loop (`loop_share`), in short steps.
- A socket left behind by a dead process is replaced; a live one is never taken over.

`Control` is the node's side; `ask` and `follow` are the other side, synchronous, for the command line.
Whoever may open the socket may send every command, unless there is an `authorise`: then a request has the member
`caller`, the credential of whoever asks, and that decides. It is not made for bulk data.
"""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import os
import socket
import stat
import struct
import tempfile
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson
import structlog

from tidegate.errors import ConfigError, Problem, TidegateError
from tidegate.net.loop_share import LoopShare, Sharing

LINE = 1024 * 1024
PEERS = 64
IDLE = 300.0  # seconds for the next request
SLOW = 10.0  # seconds for the peer to take an answer
STARTING = 2.0  # seconds to wait for another node that is making its socket
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
ADDRESS = 107  # bytes in the address of a Unix socket, without the final NUL

log = structlog.get_logger(__name__)

Command = Callable[..., Any | Awaitable[Any]]
Authorise = Callable[[str, str | None, dict[str, Any]], dict[str, Any]]
"""The arguments with which a command counts, by its name, the credential of the caller and those that were sent; a
`Problem` if that caller may not send it."""


class Control:
    """Listens on `path` and answers with `commands`: functions with named arguments, asynchronous or not.

    They return what JSON can say, or an asynchronous iterator of it. A `TidegateError` is told to the peer;
    any other exception is logged, and the peer is told where to look.
    """

    def __init__(
        self,
        path: Path,
        commands: Mapping[str, Command],
        *,
        authorise: Authorise | None = None,
        shunned: Callable[[int], bool] = lambda _: False,
        share: LoopShare | None = None,
    ) -> None:
        """`shunned`: processes, by their ids, that are not answered here. `share`: what of the loop is theirs."""
        self.path = path
        self._commands = commands
        self._authorise = authorise
        self._shunned = shunned
        self._share = share or LoopShare()
        self._signatures = {name: inspect.signature(command) for name, command in commands.items()}
        self._server: asyncio.Server | None = None
        self._inode = 0
        self._peers: set[asyncio.Task[None]] = set()
        self._answering: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises `ConfigError` when another node runs here or the socket cannot be made."""
        listener = _listen(self.path)
        self._inode = self.path.lstat().st_ino
        try:
            self._server = await asyncio.start_unix_server(self._welcome, sock=listener, limit=LINE)
        except BaseException:
            listener.close()
            _remove(self.path, self._inode)
            raise

    async def close(self, patience: float = 1.0) -> None:
        """Stops listening, removes the socket, and gives answers in the making `patience` seconds to leave.

        A command may call it; its own answer leaves, too.
        """
        if self._server is None:
            return
        self._server.close()
        self._server = None
        _remove(self.path, self._inode)
        others = self._peers - {asyncio.current_task()}
        _cancel(others - self._answering)
        if others & self._answering:
            await asyncio.wait(others & self._answering, timeout=patience)
        _cancel(others)
        if others:
            await asyncio.wait(others)

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._talk(reader, writer))
        self._peers.add(task)
        task.add_done_callback(lambda task: self._part(task, writer))

    def _part(self, task: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        self._peers.discard(task)
        self._answering.discard(task)
        if writer.transport.get_write_buffer_size():
            writer.transport.abort()
        writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # drain() means that everything has left
        try:
            if self._shunned(_peer(writer)):
                await _send(writer, _error("this process may not use the control socket"))
            elif len(self._peers) > PEERS:
                await _send(writer, _error("too many connections to the control socket; try again"))
            else:
                await Sharing(self._share, self._serve(reader, writer))
        except (ConnectionError, TimeoutError):
            pass  # the peer went away, says nothing or does not read: there is nobody to tell

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        while self._server is not None:
            try:
                async with asyncio.timeout(IDLE):
                    line = await reader.readline()
            except ValueError:  # longer than LINE: where the next one begins is anybody's guess
                await _send(writer, _error(f"a request has at most {LINE} bytes"))
                return
            if not line.endswith(b"\n"):
                return
            self._answering.add(task)
            answer = await self._answer(line)
            if not isinstance(answer, bytes):
                self._answering.discard(task)  # it may go on for ever; close() does not wait for it
                await _stream(answer, reader, writer)
                return
            await _send(writer, answer)
            self._answering.discard(task)

    async def _answer(self, line: bytes) -> bytes | AsyncIterator[Any]:
        try:
            request = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            return _error(f"not JSON: {error}")
        name = request.pop("command", None) if isinstance(request, dict) else None
        if not isinstance(name, str):
            return _error('a request is a JSON object with a "command"')
        command = self._commands.get(name)
        if command is None:
            return _error(f"no command {name!r}; there is {', '.join(sorted(self._commands))}")
        try:
            if self._authorise is not None:
                caller = request.pop("caller", None)
                request = self._authorise(name, caller if isinstance(caller, str) else None, request)
            self._signatures[name].bind(**request)
        except Problem as error:
            return _problem(error)
        except TypeError as error:
            return _error(f"{name}: {error}")
        try:
            result = command(**request)
            if inspect.isawaitable(result):
                result = await result
            return aiter(result) if isinstance(result, AsyncIterable) else _line({"ok": True, "result": result})
        except Problem as error:
            return _problem(error)
        except TidegateError as error:
            return _error(str(error))
        except Exception as error:
            log.exception("control command failed", command=name)
            return _error(f"{name} failed in the node ({type(error).__name__}); its log says why")


async def _stream(items: AsyncIterator[Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    word = asyncio.ensure_future(reader.read(1))
    try:
        while True:
            item = asyncio.ensure_future(anext(items))
            try:
                await asyncio.wait((word, item), return_when=asyncio.FIRST_COMPLETED)
                if word.done():
                    return
                line, more = _line({"item": item.result()}), True
            except StopAsyncIteration:
                line, more = _line({"ok": True}), False
            except TidegateError as error:
                line, more = _error(str(error)), False
            except Exception as error:
                log.exception("control stream failed")
                line, more = _error(f"failed in the node ({type(error).__name__}); its log says why"), False
            finally:
                await _discard(item)
            await _send(writer, line)
            if not more:
                return
    finally:
        await _discard(word)
        aclose = getattr(items, "aclose", None)
        if aclose is not None:
            await aclose()


async def _discard(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.cancel()
        await asyncio.wait((future,))
    if not future.cancelled():
        future.exception()  # seen; whoever wanted the result has it


def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        if not task.cancelling():  # a second time would interrupt its cleaning up
            task.cancel()


async def _send(writer: asyncio.StreamWriter, line: bytes) -> None:
    writer.write(line)
    async with asyncio.timeout(SLOW):
        await writer.drain()


def _line(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def _error(what: str) -> bytes:
    return _line({"ok": False, "error": what})


def _problem(error: Problem) -> bytes:
    return _line({"ok": False, "error": str(error), "problem": error.problem, "details": error.details})


def _peer(writer: asyncio.StreamWriter) -> int:
    """The id of the process at the other end; 0: it is not known."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    told = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(told)[0])


# Making the socket.


def _listen(path: Path) -> socket.socket:
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        _make_folder(path.parent)
        with _open_folder(path.parent) as folder:
            _lock(folder, path)
            _refuse_if_taken(path)
            return _bind(path)
    except OSError as error:
        raise ConfigError(
            f"cannot make the control socket {path}: {error.strerror or error};"
            " the node's data folder must be writable for the user who runs it"
        ) from error


def _lock(folder: int, path: Path) -> None:
    """Two nodes that start at once must not both find the same dead socket. It is held for a moment only."""
    deadline = time.monotonic() + STARTING
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ConfigError(f"another node is starting in {path.parent}: stop one of them") from None
            time.sleep(0.01)  # nothing else runs yet


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        # The socket's own mode keeps others out, but in a folder of theirs they could put another in its place.
        mode = folder.stat().st_mode
        if mode & 0o002:
            raise ConfigError(
                f"anybody may write to {folder} (mode {stat.S_IMODE(mode):o}):"
                " the control socket needs a folder of its own, with mode 700"
            ) from None
        if folder.parent.stat().st_mode & 0o002 and folder.lstat().st_uid != os.geteuid():
            raise ConfigError(
                f"{folder}, where the control socket belongs, was made by somebody else: remove it"
            ) from None


def _refuse_if_taken(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"{path} is in the way of the control socket and is not one: move it")
        _connect(path, 1.0).close()
    except (FileNotFoundError, ConnectionRefusedError):
        return  # nobody there, or somebody who died
    except (TimeoutError, BlockingIOError):
        pass  # alive, but busy
    raise ConfigError(f"another node runs here, it listens on {path}: stop it, or give this one another data folder")


def _bind(path: Path) -> socket.socket:
    private = Path(tempfile.mkdtemp(prefix=".control-", dir=path.parent))  # mode 0700
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address_of(private / "s") as address:
            listener.bind(address)
        (private / "s").chmod(0o600)
        listener.listen(PEERS)  # before it has its name: who finds it can connect
        (private / "s").rename(path)
    except BaseException:
        listener.close()
        (private / "s").unlink(missing_ok=True)
        raise
    finally:
        private.rmdir()
    return listener


def _remove(path: Path, inode: int) -> None:
    try:
        if path.lstat().st_ino == inode:  # and not that of a node started since
            path.unlink()
    except FileNotFoundError:
        pass  # somebody tidied up


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """An address for `path` that the kernel takes: a long one goes through the folder's descriptor."""
    if len(os.fsencode(path)) <= ADDRESS:
        yield str(path)
        return
    with _open_folder(path.parent) as folder:
        short = f"/proc/self/fd/{folder}/{path.name}"
        if len(os.fsencode(short)) > ADDRESS or not Path("/proc/self/fd").is_dir():
            raise ConfigError(f"{path} is too long for a socket: choose a data folder with a shorter path")
        yield short


# The other side.


def ask(path: Path, command: str, /, timeout: float = 10.0, **arguments: Any) -> Any:
    """The result of a command of the node that listens on `path`.

    `TidegateError` says what to do when there is no node, no answer in `timeout` seconds, or it says no.
    """
    with closing(_Call(path, command, arguments, timeout)) as call:
        answer = call.answer()
        if "item" in answer:
            raise TidegateError(f"{command} answers with a stream: follow it")
        return answer.get("result")


def follow(path: Path, command: str, /, timeout: float = 10.0, **arguments: Any) -> Iterator[Any]:
    """The items of a command that goes on. `timeout` is for reaching the node; items take the time they take.

    Nothing happens before the first item is asked for. Closing the iterator ends the command.
    """
    with closing(_Call(path, command, arguments, timeout)) as call:
        call.wait_for_ever()
        while "item" in (answer := call.answer()):
            yield answer["item"]
        if "result" in answer:
            raise TidegateError(f"{command} answers once: ask it")


class Gone(TidegateError):
    """The node went away while somebody waited for it."""


class _Call:
    """One request and the lines that answer it."""

    def __init__(self, path: Path, command: str, arguments: dict[str, Any], timeout: float) -> None:
        if "command" in arguments:
            raise TypeError("the argument of a command cannot be called command")
        self._path = path
        self._until: float | None = time.monotonic() + timeout
        self._timeout = timeout
        self._unread = bytearray()
        try:
            self._socket = _connect(path, timeout)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            raise TidegateError(f"nobody listens on {path}: is the node running?") from None
        except PermissionError:
            raise TidegateError(f"not allowed to open {path}: be the user who runs the node") from None
        except (TimeoutError, BlockingIOError):
            raise self._late() from None
        except OSError as error:
            raise TidegateError(f"cannot open {path}: {error.strerror or error}") from error
        try:
            self._socket.sendall(_line({"command": command, **arguments}))
        except TimeoutError:
            self.close()
            raise self._late() from None
        except OSError:
            pass  # closed on us; what it said before is still to be read
        except BaseException:
            self.close()
            raise

    def wait_for_ever(self) -> None:
        self._until = None

    def answer(self) -> dict[str, Any]:
        line = self._line()
        try:
            answer = orjson.loads(line)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict) or not ("item" in answer or "ok" in answer):
            raise TidegateError(f"what listens on {self._path} is not a Tidegate node")
        if answer.get("ok") is False and "problem" in answer:
            raise Problem(str(answer.get("error")), problem=answer["problem"], details=answer.get("details", ()))
        if answer.get("ok") is False:
            raise TidegateError(str(answer.get("error")))
        return answer

    def close(self) -> None:
        self._socket.close()

    def _line(self) -> bytes:
        seen = 0
        while (end := self._unread.find(b"\n", seen)) < 0:
            seen = len(self._unread)
            left = None if self._until is None else self._until - time.monotonic()
            if left is not None and left <= 0:
                raise self._late()
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                raise self._late() from None
            except ConnectionError:
                data = b""
            if not data:
                raise Gone("the node went away before it answered: its log says why")
            self._unread += data
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def _late(self) -> TidegateError:
        return TidegateError(f"the node on {self._path} did not answer within {self._timeout:g} s: is it overloaded?")


def _connect(path: Path, timeout: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        with address_of(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection
