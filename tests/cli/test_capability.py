"""`tidegate capability …`, and `pub` and `sub` with one, against a node of their own."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.driving import TIDEGATE, Tidegate, command, running, subscriber
from harness import PATIENCE, free_port
from tidegate.cli import certificates
from tidegate.cli.commands import app
from tidegate.cli.tokens import make_keys
from tidegate.errors import TidegateError

CONFIGURATION = """\
version: 1
node: {{name: ward, data: data}}
listeners:
  - {{url: "mqtt://127.0.0.1:{port}"}}
  - {{url: "mqtts://127.0.0.1:{tls}", cert: node.pem, key: node.key}}
capabilities: {{issuers: [{{name: ward, keys: issuer.pub}}], revoked: [gone]}}
policies: open
sys: {{interval: 0s}}
"""


def quickly(*arguments: object, stdin: str = "") -> tuple[int, str, str]:
    """The command without a process of its own: exit code, output, errors."""
    done = CliRunner().invoke(app, [*map(str, arguments)], input=stdin)
    if isinstance(done.exception, TidegateError):
        return 1, done.stdout, str(done.exception)  # as `main` does
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with keys of an issuer and of a device."""
    make_keys(tmp_path, "issuer", p256=True, force=False)
    make_keys(tmp_path, "device", p256=False, force=False)
    return tmp_path


@pytest.fixture
def ports(keys: Path) -> Iterator[tuple[int, int]]:
    """A node that takes nothing but capabilities of the issuer: its ports without and with TLS."""
    certificates.make_ca(keys, "Test CA", days=2)
    certificates.issue(keys, "node", ["127.0.0.1"], client=False, days=2)
    port, tls = free_port(), free_port()
    (keys / "tidegate.yaml").write_text(CONFIGURATION.format(port=port, tls=tls))
    with running([TIDEGATE, "run", "-c", str(keys / "tidegate.yaml")], port, keys / "log"):
        yield port, tls


def issued(folder: Path, *more: str, file: str = "mary.cap") -> Path:
    """A token in a file."""
    code, out, err = quickly(
        *("capability", "issue", "--issuer", "ward", "--key", "issuer.key", "--subject", "user:mary"),
        *("--confirm", "device.pub", "--right", "read,write:angina/#", *more),
    )
    assert code == 0, err
    (folder / file).write_text(out)
    return folder / file


@pytest.mark.parametrize("kind", ["ed25519", "p256"])
def test_keys(tmp_path: Path, kind: str) -> None:
    _, out, _ = quickly("capability", "key", "mine", "--kind", kind, "--json")
    assert json.loads(out) == {"key": "mine.key", "public": "mine.pub"}
    assert stat.S_IMODE((tmp_path / "mine.key").stat().st_mode) == 0o600
    code, _, err = quickly("capability", "key", "mine")
    assert (code, "--force" in err) == (1, True)
    before = (tmp_path / "mine.key").read_bytes()
    assert quickly("capability", "key", "mine", "--force")[0] == 0
    assert (tmp_path / "mine.key").read_bytes() != before


def test_what_it_says(keys: Path) -> None:
    issued(keys, "--attribute", "ward=3", "--attribute", "name=mary b", "--valid", "30m", "--id", "c1")
    said = json.loads(quickly("capability", "show", "mary.cap", "--json")[1])
    assert (said["id"], said["issuer"], said["subject"], said["proof"]) == ("c1", "ward", "user:mary", "none")
    assert said["rights"] == ["read, write angina/#"]
    assert said["attributes"] == {"ward": 3, "name": "mary b"}
    assert said["signed_with"] == "ES256"
    text = (keys / "mary.cap").read_text()
    assert "not verified" in quickly("capability", "show", text.strip())[2].lower()
    assert "c1" in quickly("capability", "show", "-", stdin=text)[1]
    for wrong in ("nowhere.cap", "eyJ.b.c"):
        assert quickly("capability", "show", wrong)[0] == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--right", "angina"], "no right"),
        (["--right", "all:angina"], "read"),
        (["--right", "read:a/#/b"], "filter"),
        (["--attribute", "user=bob"], "only the node itself"),
        (["--attribute", "user"], "NAME=VALUE"),
        (["--valid", "soon"], "8h"),
        (["--subject", "mary"], "user:NAME"),
    ],
)
def test_what_cannot_be_issued(keys: Path, more: list[str], said: str) -> None:
    code, _, err = quickly(
        *("capability", "issue", "--issuer", "ward", "--key", "issuer.key", "--confirm", "device.pub"),
        *("--subject", "user:mary", *more),
    )
    assert (code, said in err) == (2, True), err


def test_keys_are_not_confused(keys: Path) -> None:
    given = ("capability", "issue", "--issuer", "ward", "--subject", "user:mary")
    code, _, err = quickly(*given, "--key", "issuer.key", "--confirm", "device.key")
    assert (code, "private key" in err) == (1, True)
    code, _, err = quickly(*given, "--key", "issuer.pub", "--confirm", "device.pub")
    assert (code, "no private key" in err) == (1, True)


def test_verify(keys: Path) -> None:
    make_keys(keys, "other", p256=False, force=False)
    text = CONFIGURATION.format(port=1883, tls=8883).replace('  - {url: "mqtts', "#")
    (keys / "tidegate.yaml").write_text(text)
    assert quickly("capability", "verify", "tidegate.yaml", issued(keys))[0] == 0
    revoked = issued(keys, "--id", "gone", file="gone.cap")
    forged = issued(keys, "--key", "other.key", file="forged.cap")
    for file, why in ((revoked, "revoked"), (forged, "signed it")):
        code, _, err = quickly("capability", "verify", "tidegate.yaml", file)
        assert (code, why in err) == (1, True), err
        code, out, _ = quickly("capability", "verify", "tidegate.yaml", file, "--json")
        assert code == 1
        assert why in json.loads(out)["why"]


async def test_pub_and_sub_show_and_prove_it(tidegate: Tidegate, ports: tuple[int, int], keys: Path) -> None:
    port, tls = ports
    each = issued(keys, "--proof", "per-message", "--id", "c1", file="each.cap")
    plain = issued(keys, "--id", "c2")
    held = ("--capability", each, "--proof-key", keys / "device.key")
    old = ("--protocol", "311", "--capability", plain)
    async with subscriber(port, "-t", "angina/#", "-C", 4, "--json", *held, "-i", "reader") as process:
        sent = [
            (*("-p", port, "-t", "angina/1", "-l", "-q", "1", "--will-topic", "angina/w"), *held),
            ("-p", tls, "--cafile", keys / "ca.pem", "-t", "angina/2", "-m", "x", "--capability", plain),
            (*("-p", tls, "--cafile", keys / "ca.pem", "-t", "angina/3", "-m", "x"), *old),
        ]
        for arguments in sent:
            done = await asyncio.to_thread(tidegate, "pub", *arguments, stdin="one\ntwo\n")
            assert done.returncode == 0, done.stderr
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
        assert process.returncode == 0, err
    received = [json.loads(line) for line in out.splitlines()]
    assert [one["topic"] for one in received] == ["angina/1", "angina/1", "angina/2", "angina/3"]
    assert all(one["properties"] == {} for one in received)
    refusals = [
        ("-p", port, "-t", "other", "-m", "x", "-q", "1", *held),
        ("-p", port, "-t", "angina/1", "-m", "x", "--capability", plain),  # in clear
        ("-p", port, "-t", "angina/1", "-m", "x"),
    ]
    for arguments in refusals:
        done = await asyncio.to_thread(tidegate, "pub", *arguments)
        assert (done.returncode, "0x87" in done.stderr) == (1, True), done.stderr
    usage = await asyncio.to_thread(tidegate, "pub", "-t", "a", "-m", "x", "--proof-key", keys / "device.key")
    assert usage.returncode == 2


async def test_revoke(tidegate: Tidegate, ports: tuple[int, int], keys: Path) -> None:
    port, _ = ports
    issued(keys, "--id", "c1")
    held = ("--capability", keys / "mary.cap", "--proof-key", keys / "device.key")
    async with subscriber(port, "-t", "angina/#", *held) as process:
        done = await asyncio.to_thread(tidegate, "capability", "revoke", "c1", "-c", "tidegate.yaml")
        assert done.returncode == 0, done.stderr
        assert "1 connection ended" in done.stdout
        async with asyncio.timeout(PATIENCE):
            _, err = await process.communicate()
    assert process.returncode == 1
    assert b"0x87" in err
    async with command("sub", "-p", port, "-t", "angina/#", *held) as again:
        _, err = await again.communicate()
    assert again.returncode == 1
    assert b"revoked" in err
    rows = await asyncio.to_thread(tidegate, "audit", "-c", "tidegate.yaml", "--json")
    assert "capability:c1" in rows.stdout
