"""The servers under test: started on loopback with a temporary configuration, pinned to one core, stopped again.

Each start is fresh: new port (below the ephemeral range), new folder, nothing inherited from the round before.
A server that does not come up, or dies, is reported with the last lines it wrote.
"""

from __future__ import annotations

import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

FIRST_PORT, LAST_PORT = 4_000, 10_000  # tests have those above
START_TIMEOUT = 60.0  # ten thousand policies take some time to read
STOP_TIMEOUT = 15.0
LOG_LINES = 12
NODE = "bench"
CONFIGURATION = "tidegate.yaml"


class BenchError(Exception):
    """A measurement that could not be made, in words for the person at the terminal."""


class Peer(Enum):
    """What can be measured."""

    MOSQUITTO = "mosquitto"
    TIDEGATE = "tidegate"
    RELAY = "relay"
    """Forwards bytes without being a broker: the ceiling of the load generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a server is to be configured for a work."""

    durable: bool = False
    """Persistent sessions survive: Mosquitto with persistence, Tidegate with a data folder."""
    nodelay: bool = False
    """Mosquitto only: `set_tcp_nodelay true`, which is not its default."""
    rules: str = ""
    """Tidegate only: what its configuration says of who may do what, in place of `policies: open`."""
    certificates: Path | None = None
    """The folder of a server's certificate (see `certificates`), which gives it a second listener, with TLS."""
    text: Callable[[tuple[int, ...]], str] | None = None
    """The whole configuration of a server with these ports, instead of all that is above."""
    listeners: int = 1
    """Ports of `text`."""
    far: bool = False
    """Subscribers connect to the second listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that listens."""

    peer: Peer
    ports: tuple[int, ...]
    process: subprocess.Popen[bytes]
    log: Path
    setting: Setting = field(default_factory=Setting)

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def tls_port(self) -> int:
        """0 without a listener with TLS."""
        return self.ports[1] if self.setting.certificates else 0

    @property
    def configuration(self) -> Path:
        return self.log.with_name(CONFIGURATION)

    @property
    def control(self) -> Path:
        """Tidegate's control socket."""
        folder = self.log.parent
        if self.setting.durable:
            return folder / "data" / "control.sock"
        return folder / f"tidegate-{os.getuid()}" / f"{NODE}-{self.port}.sock"

    def obituary(self, *, wait: float = 0.0) -> str | None:
        """What to say if the process has ended, or ends within `wait` seconds; None while it lives.

        The kernel closes the sockets of a process before the process counts as ended: a peer that sees a closed
        connection has to wait a moment to learn why.
        """
        try:
            code = self.process.wait(wait)
        except subprocess.TimeoutExpired:
            return None
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"{self.peer.value} {how}{self.last_words()}"

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:]
        return ", saying:\n  " + "\n  ".join(lines) if lines else " without a word"


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Processes started inside inherit the core; the calling thread gets its own set back afterwards. None: all of
    its cores."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running(
    peer: Peer, setting: Setting, *, core: int | None, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A fresh server in a folder of its own, pinned to `core`, from when all its ports answer to the end of the block;
    without a core it may use all.

    `environment`: more variables, as those of another checkout.
    """
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        ports = free_ports(2 if setting.certificates else setting.listeners)
        variables = {**os.environ, "XDG_RUNTIME_DIR": name}  # the control socket is the round's own, too
        variables |= environment or {}
        command = _command(peer, setting, ports, folder)
        with pinned(core):
            process = started(command, folder / "log", variables)
        server = Server(peer=peer, ports=ports, process=process, log=folder / "log", setting=setting)
        try:
            for port in ports:
                await_port(server, port)
            yield server
        finally:
            stop(process)


def started(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A process in the folder of its log."""
    with log.open("wb") as sink:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=log.parent, env=environment
        )


def free_ports(count: int) -> tuple[int, ...]:
    """So many different ports."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return tuple(ports)


def free_port() -> int:
    """A port nobody listens on, below the range that outgoing connections are given."""
    for _ in range(100):
        port = random.randrange(FIRST_PORT, LAST_PORT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise BenchError(f"no free port between {FIRST_PORT} and {LAST_PORT}")


def mosquitto() -> str:
    """Debian installs the broker where only root's PATH looks."""
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise BenchError("mosquitto is not installed (apt-get install mosquitto)")
    return found


def tidegate(*arguments: str) -> list[str]:
    """The command line of this very Tidegate."""
    return [sys.executable, "-c", "from tidegate.cli.app import main; main()", *arguments]


def certificates(folder: Path) -> Path:
    """An authority of our own in `folder`, with the certificate of a server on loopback."""
    for words in (("ca",), ("issue", "server", "--host", "127.0.0.1")):
        done = subprocess.run(
            tidegate("cert", *words, "--folder", str(folder)), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BenchError(f"there is no certificate to measure with: {done.stderr.strip()}")
    return folder


def _command(peer: Peer, setting: Setting, ports: tuple[int, ...], folder: Path) -> list[str]:
    port, tls_port = ports[0], ports[-1] if setting.certificates else 0
    match peer:
        case Peer.MOSQUITTO:
            file = folder / "mosquitto.conf"
            text = setting.text(ports) if setting.text else mosquitto_configuration(setting, port, folder, tls_port)
            file.write_text(text)
            return [mosquitto(), "-c", str(file)]
        case Peer.TIDEGATE:
            file = folder / CONFIGURATION
            file.write_text(setting.text(ports) if setting.text else tidegate_configuration(setting, port, tls_port))
            return tidegate("run", "-c", str(file))
        case Peer.RELAY:
            return [sys.executable, "-m", "bench.load.relay", str(port)]


def mosquitto_configuration(setting: Setting, port: int, folder: Path, tls_port: int = 0) -> str:
    """Debian's defaults, except that nothing is dropped and nobody is asked for a password."""
    lines = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        "max_inflight_messages 0",
        "max_queued_messages 0",
        "log_dest stderr",
        "log_type error",
        f"user {getpass.getuser()}",
        f"set_tcp_nodelay {'true' if setting.nodelay else 'false'}",
        f"persistence {'true' if setting.durable else 'false'}",
    ]
    if setting.durable:
        lines.append(f"persistence_location {folder}/")
    if setting.certificates:
        lines += [
            f"listener {tls_port} 127.0.0.1",
            f"certfile {setting.certificates / 'server.pem'}",
            f"keyfile {setting.certificates / 'server.key'}",
        ]
    return "\n".join(lines) + "\n"


def tidegate_configuration(setting: Setting, port: int, tls_port: int = 0) -> str:
    """As shipped, except that nothing is dropped, and that without users nobody is asked for a password."""
    data = ", data: data" if setting.durable else ""
    anonymous = str("directory:" not in setting.rules).lower()
    listeners = [f'{{url: "mqtt://127.0.0.1:{port}", anonymous: {anonymous}}}']
    if setting.certificates:
        pair = f'cert: "{setting.certificates / "server.pem"}", key: "{setting.certificates / "server.key"}"'
        listeners.append(f'{{url: "mqtts://127.0.0.1:{tls_port}", anonymous: {anonymous}, {pair}}}')
    rules = setting.rules or "policies: open"
    return f"""\
version: 1
node: {{name: {NODE}{data}}}
listeners: [{", ".join(listeners)}]
{rules}
limits: {{inflight: 65535, receive_maximum: 65535, queue: {{messages: 1000000, bytes: 1GiB}}}}
log: {{level: {"error" if setting.rules else "warning"}}}
"""


def await_port(server: Server, port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if words := server.obituary():
            raise BenchError(words)
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise BenchError(f"{server.peer.value} does not listen after {START_TIMEOUT:.0f} s{server.last_words()}")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
