"""NATS and RabbitMQ as brokers behind a guard, from Debian's packages: plain processes on free loopback ports, with all
that they write in a folder of their own, always ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from harness import PATIENCE, free_port
from processes import missing

STARTING: Final = 60.0  # seconds; RabbitMQ takes some eight when nothing else runs
EPMD: Final = Path("/usr/bin/epmd")
RABBITMQ: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class Server:
    """A process that listens for MQTT at `port`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def command(self) -> tuple[Sequence[str], dict[str, str]]:
        """What starts it, and what it needs in its environment."""
        raise NotImplementedError

    def is_up(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE).close()
            return True
        return False

    def spawn(self) -> None:
        command, environment = self.command()
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    def start(self) -> None:
        self.spawn()
        self.wait()

    def wait(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + STARTING
        while not self.is_up():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        """At once, with nothing saved, and what it has started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE)
        self.kill()


class Nats(Server):
    """A NATS server with JetStream and MQTT; with `routes` to others one of a cluster."""

    def __init__(self, folder: Path, name: str = "nats") -> None:
        super().__init__(folder)
        self.name = name
        self.client_port, self.cluster_port = free_port(), free_port()
        self.routes: list[Nats] = []

    def command(self) -> tuple[Sequence[str], dict[str, str]]:
        program = shutil.which("nats-server") or "/usr/sbin/nats-server"
        if not os.access(program, os.X_OK):
            missing("nats-server is not installed")
        lines = [
            f'server_name: "{self.name}"',
            f'listen: "127.0.0.1:{self.client_port}"',
            f'jetstream {{ store_dir: "{self.folder / "jetstream"}" }}',
            f'mqtt {{ listen: "127.0.0.1:{self.port}", ack_wait: "1s" }}',
        ]
        if self.routes:
            urls = ", ".join(f'"nats://127.0.0.1:{one.cluster_port}"' for one in self.routes)
            lines.append(
                f'cluster {{ name: "tidegate", listen: "127.0.0.1:{self.cluster_port}", routes: [{urls}] }}',
            )
        file = self.folder / "nats.conf"
        file.write_text("\n".join(lines) + "\n")
        return [program, "-c", str(file)], {}


class RabbitMQ(Server):
    """A RabbitMQ with its MQTT plugin, and an epmd of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.epmd_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None

    def command(self) -> tuple[Sequence[str], dict[str, str]]:
        if not RABBITMQ.exists():
            missing("rabbitmq-server is not installed")
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{free_port()}\nmqtt.listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            "mqtt.allow_anonymous = true\nlog.console = true\nlog.file = false\nlog.console.level = warning\n"
        )
        (self.folder / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
        return [str(RABBITMQ)], {
            **self._epmd_environment,
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"tidegate{self.port}@localhost",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.folder / "generated"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    @property
    def _epmd_environment(self) -> dict[str, str]:
        return {"ERL_EPMD_PORT": str(self.epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1"}

    def spawn(self) -> None:
        if not EPMD.exists():
            missing("Erlang is not installed")
        self._epmd = subprocess.Popen(
            [str(EPMD)],
            env={**os.environ, **self._epmd_environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        super().spawn()

    def kill(self) -> None:
        super().kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None


KINDS: Final[dict[str, Callable[[Path], Server]]] = {"nats": Nats, "rabbitmq": RabbitMQ}


@contextlib.contextmanager
def server_of(kind: str, folder: Path) -> Iterator[Server]:
    """A broker of that kind that runs until the end of the block."""
    server = KINDS[kind](folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
