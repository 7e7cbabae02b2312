"""Starts the commands of tests as forks of a process that has imported everything already.

Importing takes a command longer than most of what tests let it do. `install()` makes `subprocess.Popen` ask the fork
server of this pytest process for commands that `_warm` names; everything else is started as always. The child is a
process of its own, with its own arguments, environment, folder and files, and its parent is whoever asked: Linux makes
it a sibling of the server (CLONE_PARENT), so waiting for it, signals and its end are those of any other child.

Commands that somebody else starts (a shell, a node, an example) are started through `STAND_IN`: a small process that
asks the server, passes signals on, and ends as the command does. The Python of Spark's workers is such a stand-in, too:
started cold, each of them compiles PySpark, which Java gives it in an archive of sources.

A command starts cold, without the server, if its environment has another PYTHONPATH or the variable COLD.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

COLD: Final = "FORKSERVER_COLD"
ADDRESS: Final = "FORKSERVER_ADDRESS"
EXTRA: Final = "FORKSERVER_DESCRIPTORS"  # that a stand-in passes on, beside the standard ones
MODULE: Final = "-m"
STAND_IN: Final = str(Path(__file__).with_name("standin.py"))
TIDEGATE: Final = str(Path(sys.executable).with_name("tidegate"))
_API: Final = (sys.executable, "-c", "from tidegate.cli.app import main; main()")
_CLONE_PARENT: Final = 0x8000
_SYS_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_HEAD: Final = struct.Struct("!I")
_PRELOADED: Final = (
    "pyarrow",
    "pyarrow.parquet",
    "pyarrow.compute",
    "uvloop",
    "rich.table",
    "pyspark.sql.functions",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.datasource",
)
_SCRIPTS: Final = ("run.py", "dying.py")  # of examples, and a driver that dies
_DESCRIPTORS: Final = 16
_PATH: Final = os.environ.get("PYTHONPATH", "")  # of the server, too
_original: Final = subprocess.Popen._execute_child  # type: ignore[attr-defined]


def _warm(command: Any, environment: Mapping[str, str]) -> list[str] | None:
    """The words of a command that the server can run: `tidegate` or a Python file, with its arguments."""
    if isinstance(command, str | bytes | os.PathLike) or COLD in environment:
        return None
    if environment.get("PYTHONPATH", "") != _PATH:
        return None
    words = [os.fspath(word) for word in command]
    if words[0] == TIDEGATE:
        return words
    if words[0] == sys.executable and len(words) > 1 and words[1].endswith(_SCRIPTS):
        return words[1:]
    if tuple(words[:3]) == _API:
        return [TIDEGATE, *words[3:]]
    return None


_servers: Final[list[Server]] = []


# -- for whoever starts a command --------------------------------------------------------------------------------------


class Server:
    """The fork server of this process, started when the first command is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self.folder = tempfile.mkdtemp(prefix="tidegate-fork-")
        self.address = f"{self.folder}/socket"
        self.python = f"{self.folder}/python"

    def write_python(self) -> None:
        """The stand-in for a Python that runs a module; without the server it is any other Python."""
        Path(self.python).write_text(f"""\
#!{sys.executable} -IS
import os, runpy, sys
os.environ[{ADDRESS!r}] = {self.address!r}
try:
    runpy.run_path({STAND_IN!r}, run_name="__main__")
except (FileNotFoundError, ConnectionRefusedError):
    os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])
""")
        Path(self.python).chmod(0o700)

    def start(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", __file__, str(theirs.fileno()), self.address],
                    pass_fds=(theirs.fileno(),),
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1", COLD: "1"},
                )
        return self._socket

    def ready(self) -> None:
        """Starts it if need be, and waits until it answers."""
        with self._lock:
            connection = self.start()
            send(connection, {})
            receive(connection)

    def fork(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
        with self._lock:
            connection = self.start()
            send(connection, request, descriptors)
            answer, _ = receive(connection)
            return int(answer["pid"])

    def stop(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()
        for file in (self.address, self.python):
            Path(file).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            Path(self.folder).rmdir()


def install() -> None:
    """From now on `subprocess.Popen` starts warm what can be."""
    server = Server()
    os.environ[ADDRESS] = server.address
    server.write_python()
    atexit.register(server.stop)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, server.python)
    _servers.append(server)

    def execute(
        self: subprocess.Popen[Any], args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *rest: Any
    ) -> None:
        pass_fds, cwd, env, _, _, shell, *pipes = rest
        environment = os.environ if env is None else env
        words = None if shell or preexec_fn or pass_fds or executable else _warm(args, environment)
        if words is None:
            _original(self, args, executable, preexec_fn, close_fds, *rest)
            return
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, _, _, _, _, _, start_new_session, group = pipes
        descriptors = [given if given != -1 else own for given, own in ((p2cread, 0), (c2pwrite, 1), (errwrite, 2))]
        request = {
            "words": words,
            "environment": {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
            "folder": os.fspath(cwd or os.getcwd()),
            "session": bool(start_new_session),
            "group": group,
        }
        self.pid = server.fork(request, descriptors)
        self._child_created = True  # type: ignore[attr-defined]
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]


def started(environment: dict[str, str]) -> dict[str, str]:
    """An environment in which stand-ins work."""
    for server in _servers:
        server.ready()
        environment[ADDRESS] = server.address
    return environment


def send(connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    connection.sendmsg([_HEAD.pack(len(data))], passed)
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """EOFError if the other side is gone."""
    descriptors = array.array("i")
    head, passed, _, _ = connection.recvmsg(_HEAD.size, socket.CMSG_SPACE(_DESCRIPTORS * descriptors.itemsize))
    for level, kind, data in passed:
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    if not head:
        raise EOFError
    (left,) = _HEAD.unpack(head)
    body = bytearray()
    while len(body) < left:
        part = connection.recv(left - len(body))
        if not part:
            raise EOFError
        body += part
    return json.loads(body), list(descriptors)


# -- the server --------------------------------------------------------------------------------------------------------


def serve(owner: socket.socket, address: str) -> None:
    """Until the owner is gone. In a child it returns: never, the command runs and the child ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    _preload()
    wakened, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    for source in (owner, listener, wakened):
        selector.register(source, selectors.EVENT_READ)
    started: dict[int, socket.socket] = {}  # those of stand-ins
    ours = [owner, listener, wakened, waker]
    while True:
        for key, _ in selector.select():
            source = key.fileobj
            assert isinstance(source, socket.socket)
            if source is owner:
                try:
                    request, descriptors = receive(owner)
                except EOFError:
                    for pid in started:
                        _kill(pid)
                    return
                answer = {}
                if request:
                    answer["pid"] = _forked(request, descriptors, [*ours, *started.values()], selector, beside=True)
                send(owner, answer)
            elif source is listener:
                connection, _ = listener.accept()
                try:
                    request, descriptors = receive(connection)
                except (EOFError, OSError):
                    connection.close()
                    continue
                pid = _forked(request, descriptors, [*ours, *started.values(), connection], selector, beside=False)
                started[pid] = connection
                with contextlib.suppress(OSError):
                    send(connection, {"pid": pid})
                selector.register(connection, selectors.EVENT_READ, pid)
            elif source is wakened:
                wakened.recv(4096)
                _reap(started, selector)
            else:  # a stand-in was killed
                _kill(key.data)
                selector.unregister(source)


def _kill(pid: int) -> None:
    """With what it has started: it has a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _reap(started: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    while started:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        connection = started.pop(pid)
        with contextlib.suppress(KeyError):
            selector.unregister(connection)
        with contextlib.suppress(OSError):
            send(connection, {"code": os.waitstatus_to_exitcode(status)})
        connection.close()


def _preload() -> None:
    import tidegate

    for module in pkgutil.walk_packages(tidegate.__path__, "tidegate."):
        importlib.import_module(module.name)
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _forked(
    request: dict[str, Any],
    descriptors: list[int],
    ours: Sequence[socket.socket],
    selector: selectors.BaseSelector,
    *,
    beside: bool,
) -> int:
    begun, begins = os.pipe()
    pid = _clone() if beside else os.fork()
    if pid:
        for descriptor in (*descriptors, begins):
            os.close(descriptor)
        os.read(begun, 1)  # until it has its own session, folder and files, as after Popen's exec
        os.close(begun)
        return pid
    code = 1
    os.close(begun)
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        selector.close()
        for one in ours:
            one.close()
        code = _become(request, descriptors, begins)
    except BaseException:  # noqa: BLE001  the child ends here, whatever happens
        traceback.print_exc()
    finally:
        os._exit(code)


def _clone() -> int:
    """`fork`, but the child's parent is that of this process."""
    api = ctypes.pythonapi
    libc = ctypes.PyDLL(None, use_errno=True)
    number = _SYS_CLONE[os.uname().machine]
    api.PyOS_BeforeFork()
    pid = libc.syscall(number, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        api.PyOS_AfterFork_Child()
    else:
        api.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return int(pid)


def _become(request: dict[str, Any], descriptors: list[int], begins: int) -> int:
    """Is the command from here to its end; its exit code."""
    begins, low = os.dup2(begins, 199, inheritable=False), begins
    os.close(low)
    wanted = [0, 1, 2, *request.get("descriptors", ())]
    above = [os.dup2(one, 200 + at, inheritable=False) for at, one in enumerate(descriptors)]
    for one in descriptors:
        os.close(one)
    for one, number in zip(above, wanted, strict=True):
        os.dup2(one, number)
        os.close(one)
    if request["session"]:
        os.setsid()
    elif request["group"] >= 0:
        os.setpgid(0, request["group"])
    os.chdir(request["folder"])
    os.close(begins)
    sys.path[:0] = [
        os.path.abspath(one) for one in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if one
    ]
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        _put(name, number, mode)
    _started_by_a_child()
    sys.argv = request["words"]
    try:
        if sys.argv[0] == TIDEGATE:
            from tidegate.cli.app import main

            main()
        elif sys.argv[0] == MODULE:
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(sys.argv[0]).parent))
            runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = _code(end)
    except KeyboardInterrupt:
        traceback.print_exc()
        code = -signal.SIGINT
    except BaseException:  # noqa: BLE001  as the interpreter does at its end
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _put(name: str, number: int, mode: str) -> None:
    unbuffered = mode == "w" and bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = os.fdopen(number, f"{mode}b", 0 if unbuffered else -1, closefd=False)
    stream = io.TextIOWrapper(
        raw,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "strict",
        line_buffering=mode == "w" and (number == 2 or os.isatty(number)),
        write_through=unbuffered,
    )
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _code(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    sys.stderr.write(f"{end.code}\n")
    return 1


def _started_by_a_child() -> None:
    """What the command itself starts: the server's children cannot be its own, so through the stand-in."""

    def execute(
        self: subprocess.Popen[Any], args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *rest: Any
    ) -> None:
        pass_fds, cwd, env, *others = rest
        environment = dict(os.environ if env is None else env)
        words = None if others[2] or preexec_fn or executable else _warm(args, os.environ | environment)
        if words is not None and ADDRESS in os.environ:
            args = stand_in(words)
            env = {**environment, ADDRESS: os.environ[ADDRESS], EXTRA: ",".join(map(str, pass_fds))}
        _original(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *others)

    subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]


def stand_in(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-S", STAND_IN, *words]


def main() -> NoReturn:
    os.environ.pop(COLD)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    os._exit(0)


if __name__ == "__main__":
    main()
