"""The terminals of somebody who follows a page: a folder, a node, a command that listens, and a prompt.

Ports that pages name are replaced by free ones, and back again in what is shown. `tidegate` and `make` are small
scripts in front of the real ones: the first adds the port where an example relies on the default, the second only
knows `make run`, and does what the Makefile says with the environment that is there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import forkserver
from docs.pages import ROOT, Block
from harness import free_port
from processes import end_group

PATIENCE: Final = 120.0  # until something is printed; never a measure of anything
LONGEST: Final = 900.0  # for a command to its end, and for `make run`; never a measure of anything
COLUMNS: Final = 110
PORTS: Final = (
    "1883",
    "1884",
    "1885",
    "1886",
    "1887",
    "1888",
    "8883",
    "8884",
    "8885",
    "8083",
    "8084",
    "8080",
    "8081",
    "8443",
    "8450",
)
QUICK_START: Final = "examples/quickstart"

_PORT: Final = re.compile(rf"(?<=[:=\s])({'|'.join(PORTS)})\b")
_DATE: Final = re.compile(r"\b\d{4}\\-\d\d\\-\d\d\\ (?=\d\d:\d\d:\d\d\b)")  # of a pattern, so it is escaped
_TIME: Final = re.compile(r"\b\d\d:\d\d:\d\d\b")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TIDEGATE: Final = """\
#!/bin/bash
words=" $* "
if [[ $words != *" -p "* && $words != *" --port "* && $words != *" --help "* ]]; then
  case "$1" in
    pub|sub)
      tls= ws=
      [[ $words =~ \\ --(tls|cafile|cert|insecure)\\  ]] && tls=1
      [[ $words == *" --ws "* ]] && ws=1
      case "$tls$ws" in
        11) port=$DOCS_8084 ;;
        *) if [ $tls ]; then port=$DOCS_8883; elif [ $ws ]; then port=$DOCS_8083; else port=$DOCS_1883; fi ;;
      esac
      set -- "$@" --port "$port" ;;
    run|status|reload|stop)
      [[ $words == *" -c "* || $words == *" --socket "* ]] || set -- "$@" --port "$DOCS_1883" ;;
  esac
fi
exec $DOCS_TIDEGATE "$@"
"""
_MAKE: Final = """\
#!/bin/bash
[ "$*" = run ] || { echo "make $* is not for examples" >&2; exit 2; }
exec $DOCS_RUN
"""


class Running:
    """A command that goes on, and what it has printed so far."""

    def __init__(self, block: Block, script: str, folder: Path, environment: dict[str, str], *, tty: bool) -> None:
        self.block = block
        self._printed = bytearray()
        ours, theirs = pty.openpty() if tty else os.pipe()
        if tty:
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reader.start()

    def _read(self, source: int) -> None:
        try:
            while data := os.read(source, 65536):
                self._printed += data
        except OSError as error:
            if error.errno != errno.EIO:  # a terminal whose other side is gone
                raise
        finally:
            os.close(source)

    @property
    def printed(self) -> str:
        return _COLOUR.sub("", bytes(self._printed).decode(errors="replace")).replace("\r\n", "\n")

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not re.search(text, self.printed):
            assert self.process.poll() is None, f"{self.block}: it ended before {text!r}:\n{self.printed}"
            assert time.monotonic() < deadline, f"{self.block}: no {text!r} in\n{self.printed}"
            time.sleep(0.01)

    def stop(self, *, by_itself: bool = False) -> int:
        """Ctrl-C, if it still runs and does not end by itself; its exit code."""
        if self.process.poll() is None and not by_itself:
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            code = self.process.wait(LONGEST)
        finally:
            end_group(self.process)
        self._reader.join(PATIENCE)
        return code


class Desk:
    """Runs the blocks of one page, one after the other."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder = folder
        self.ports = {port: str(free_port()) for port in PORTS}
        self.node: Running | None = None
        self.listener: Running | None = None
        self.beside: list[Running] = []
        self.printed = ""
        self.killed = False
        self.environment = _environment(tools, self.ports)
        (folder / QUICK_START).mkdir(parents=True)
        for file in (ROOT / QUICK_START).glob("*.*"):
            (folder / QUICK_START / file.name).write_text(self.translated(file.read_text()))

    def translated(self, text: str) -> str:
        return _PORT.sub(lambda found: self.ports[found[1]], text)

    def as_written(self, text: str) -> str:
        for port, ours in self.ports.items():
            text = re.sub(rf"\b{ours}\b", port, text)
        return text.replace(f"{self.folder}/", "")

    def start_node(self, block: Block) -> None:
        self.stop_listener()
        self.stop_node()
        self.node = self._start(block, tty=True)
        self.node.wait_for(r"\bready\b")

    def start_beside(self, block: Block) -> None:
        """Another process, which runs to the end of the page."""
        self.beside.append(self._start(block, tty=True))
        self.beside[-1].wait_for(r"\b(ready|running)\b")

    def export(self, block: Block) -> None:
        """Runs a block that sets `TIDEGATE_TOKEN`, which later blocks then have."""
        script = f"{self.translated(block.text)}\nprintenv TIDEGATE_TOKEN"
        self._command(block, ["bash", "-euo", "pipefail", "-c", script], 0)
        self.environment["TIDEGATE_TOKEN"] = self.printed.splitlines()[-1]

    def listen(self, block: Block) -> None:
        assert " -v " in block.text, f"{block}: only -v says when it has subscribed"
        self.stop_listener()
        self.listener = self._start(block, tty=False)
        self.listener.wait_for("subscribed to ")

    def run(self, block: Block, *, code: int = 0) -> None:
        self.killed = self.killed or "kill -9" in block.text
        self._command(block, ["bash", "-euo", "pipefail", "-c", self.translated(block.text)], code)
        if "tidegate stop" in block.text:
            self.stop_node(by_itself=True)

    def run_python(self, block: Block) -> None:
        file = self.folder / "example.py"
        file.write_text(self.translated(block.text))
        self._command(block, [sys.executable, "-W", "error", str(file)], 0)

    def run_js(self, block: Block, modules: Path) -> None:
        (self.folder / "node_modules").symlink_to(modules)
        file = self.folder / "example.mjs"
        file.write_text(self.translated(block.text))
        self._command(block, ["node", str(file)], 0)

    def compare(self, block: Block) -> None:
        """Sees to it that the last block of the kind that `block.marker` names has printed these lines."""
        source = {"node": self.node, "listen": self.listener}.get(block.marker)
        deadline = time.monotonic() + (LONGEST if source is self.node else PATIENCE)
        while True:
            printed = self.as_written(self.printed if source is None else source.printed)
            missing = first_missing(block.text, printed)
            if missing is None:
                return
            over = source is None or source.process.poll() is not None or time.monotonic() > deadline
            assert not over, f"{block}: {missing!r} is not in\n{printed}"
            time.sleep(0.02)

    def stop_node(self, *, by_itself: bool = False) -> None:
        if self.node is not None:
            node, self.node = self.node, None
            self._ended(node, node.stop(by_itself=by_itself))

    def stop_beside(self) -> None:
        while self.beside:
            one = self.beside.pop()
            self._ended(one, one.stop())

    def _ended(self, one: Running, code: int) -> None:
        assert code == 0 or (self.killed and code in (-9, 137)), f"{one.block}: {code}\n{one.printed}"
        assert not re.search(r"\[(error|critical) |Traceback", one.printed), f"{one.block}:\n{one.printed}"

    def stop_listener(self) -> None:
        if self.listener is not None:
            listener, self.listener = self.listener, None
            code = listener.stop()
            assert code == 0, f"{listener.block}: {code}\n{listener.printed}"

    def abandon(self) -> None:
        """After a failure: nothing may stay behind."""
        with ExitStack() as last:  # all of it, whatever fails
            for running in (self.listener, self.node, *self.beside):
                if running is not None:
                    last.callback(running.stop)

    def _start(self, block: Block, *, tty: bool) -> Running:
        return Running(block, self.translated(block.text), self.folder, self.environment, tty=tty)

    def _command(self, block: Block, command: list[str], code: int) -> None:
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            self.printed, _ = process.communicate(timeout=LONGEST)
        finally:
            end_group(process)
        assert process.returncode == code, f"{block}: exit code {process.returncode}\n{self.printed}"


def _environment(tools: Path, ports: dict[str, str]) -> dict[str, str]:
    tools.mkdir()
    for name, script in (("tidegate", _TIDEGATE), ("make", _MAKE)):
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    programs = Path(sys.executable).parent
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "PYTEST_"))}
    return {
        **forkserver.started(kept),
        "PATH": f"{tools}:{programs}:{os.environ['PATH']}:/usr/sbin",
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm",
        "NO_COLOR": "1",
        "XDG_RUNTIME_DIR": str(tools),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TIDEGATE_URL": f"http://127.0.0.1:{ports['8080']}",
        "DOCS_TIDEGATE": " ".join(forkserver.stand_in([str(programs / "tidegate")])),
        "DOCS_RUN": _make_run(),
        **{f"DOCS_{port}": ours for port, ours in ports.items()},
    }


def _make_run() -> str:
    """What `make run` does once the environment is there."""
    found = re.search(r"^run:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    (command,) = (line.strip().removeprefix("@") for line in found[1].splitlines())
    assert command.startswith("$(BIN)/python ")
    return " ".join(forkserver.stand_in(command.split()[1:]))


def first_missing(shown: str, printed: str) -> str | None:
    """The first line of `shown` that `printed` does not have after the ones before it."""
    lines = iter([_plain(line) for line in printed.splitlines()])
    for line in shown.splitlines():
        wanted = _plain(line)
        if not wanted:
            continue
        pattern = re.escape(wanted).replace("…", ".*")
        pattern = _DATE.sub(r"\\d{4}-\\d\\d-\\d\\d\\ ", pattern)
        pattern = _TIME.sub(r"\\d\\d:\\d\\d:\\d\\d", pattern)
        if not any(re.fullmatch(pattern, candidate) for candidate in lines):
            return line
    return None


def _plain(line: str) -> str:
    """Without what depends on the width of things: the number of blanks, and the length of a frame."""
    return re.sub("─+", "─", " ".join(line.split()))
