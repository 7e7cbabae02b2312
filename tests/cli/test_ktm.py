"""`tidegate ktm` as somebody starts it: what it says of its file, and how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from cli.driving import ENVIRONMENT, TIDEGATE, Tidegate
from harness import free_port
from tidegate.cli import certificates

FILE = """\
ktm:
  listen: "tls://127.0.0.1:PORT"
  cert: ktm.pem
  key: ktm.key
  client_ca: ca.pem
data: keys
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    certificates.make_ca(tmp_path, "CA", 10)
    certificates.issue(tmp_path, "ktm", ["127.0.0.1"], client=False, days=5)
    path = tmp_path / "ktm.yaml"
    path.write_text(FILE.replace("PORT", str(free_port())))
    return path


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_and_ends_when_it_is_told(file: Path, how: signal.Signals) -> None:
    with subprocess.Popen(
        [TIDEGATE, "ktm", "-c", str(file)], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as running:
        assert running.stderr is not None
        said = ""
        deadline = time.monotonic() + 30
        while '"ready"' not in said:
            assert time.monotonic() < deadline, said
            line = running.stderr.readline()
            assert line, said
            said += line
        assert "list them in `accept`" in said
        running.send_signal(how)
        rest = running.stderr.read()
        assert running.wait(15) == 0
    assert '"stopped"' in rest
    assert '"error"' not in said + rest
    assert (file.parent / "keys" / "master.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("tls://", "tcp://", "ktm.yaml:2: `ktm.listen` must begin with tls://"),
        (
            "client_ca: ca.pem",
            "client_cas: ca.pem",
            "ktm.yaml:5: unknown key `client_cas` in `ktm`; did you mean `client_ca`?",
        ),
        ("client_ca: ca.pem\n", "\n", "`ktm.client_ca` is missing; add it"),
        ("ktm.pem", "none.pem", "which cannot be read (No such file or directory)"),
        ("data: keys", "data: keys\nkeys: {rotate: 0s}", "`keys.rotate` must be at least 1; raise it"),
        ("data: keys", "data: keys\nmaster_key: {file: none}", "`master_key` is wrong"),
        ("data: keys", "data: keys\nktn: {}", "unknown key `ktn`; did you mean `ktm`?"),
        ("client_ca: ca.pem", 'client_ca: ca.pem\n  accept: ["node"]', "`ktm.accept[0]` is wrong"),
        (
            "client_ca: ca.pem",
            "client_ca: ca.pem\n  accept: []",
            "`ktm.accept` must not be empty; add at least one entry",
        ),
        ("data: keys", "data: [", "ktm.yaml:"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(file: Path, tidegate: Tidegate, before: str, after: str, told: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after, 1))
    done = tidegate("ktm", "-c", file)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_certificate_that_cannot_be_loaded_is_told(file: Path, tidegate: Tidegate) -> None:
    (file.parent / "ktm.pem").write_text("nothing")
    done = tidegate("ktm", "-c", file)
    assert done.returncode == 1
    assert "cannot load the certificate" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_that_is_taken_is_told(file: Path, tidegate: Tidegate) -> None:
    port = free_port()
    file.write_text(FILE.replace("PORT", str(port)))
    with socket.create_server(("127.0.0.1", port)):
        done = tidegate("ktm", "-c", file)
    assert done.returncode == 1
    assert "cannot listen on" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_has_one_service(file: Path, tidegate: Tidegate) -> None:
    with subprocess.Popen(
        [TIDEGATE, "ktm", "-c", str(file)], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as running:
        assert running.stderr is not None
        while '"ready"' not in (line := running.stderr.readline()):
            assert line
        other = file.with_name("other.yaml")
        other.write_text(FILE.replace("PORT", str(free_port())))
        done = tidegate("ktm", "-c", other)
        running.terminate()
        running.communicate(timeout=15)
    assert done.returncode == 1
    assert "is in use by process" in done.stderr


def test_usage(tidegate: Tidegate, tmp_path: Path) -> None:
    assert tidegate("ktm").returncode == 2
    missing = tidegate("ktm", "-c", tmp_path / "none.yaml")
    assert missing.returncode == 1
    assert "cannot be read" in missing.stderr
    assert "key service" in tidegate("--help").stdout
