"""What commands warn of: names that nobody has, files that others can read. And secrets that can be copied."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.administering import Administered, administered, tidegate
from processes import File
from tidegate.cli import certificates
from tidegate.config import load
from tidegate.config.load import exposed_files


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administered]:
    with administered(tmp_path_factory.mktemp("warned")) as one:
        yield one


def test_changes_over_http_warn_of_names_nobody_has(node: Administered) -> None:
    policy = ("--subject", "role:coch", "--topic", "b/#", "--action", "read", "--when", "s.usr == 'mary'")
    expected = [
        {"at": "policy/p2", "warning": "`subject` names the unknown role `coch`; did you mean `coach`?"},
        {"at": "policy/p2", "warning": "`when` reads `s.usr`, which nobody has; did you mean `s.user`?"},
    ]
    tried = node.said("policy", "add", "p2", *policy, "--dry-run")
    assert tried["dry_run"]
    assert tried["warnings"] == expected
    shown = node("policy", "add", "p2", *policy)
    assert shown.code == 0
    assert [line for line in shown.err.splitlines() if line.startswith("warning: ")] == [
        f"warning: {each['at']}: {each['warning']}" for each in expected
    ]
    mended = node.said("policy", "set", "p2", "--subject", "role:coach", "--when", "s.user == 'mary'")
    assert mended["warnings"] == []
    preference = node.said("preference", "add", "u2", "--user", "mary", "--topic", "nowhere/+")
    assert [each["at"] for each in preference["warnings"]] == ["preference/u2"]
    assert "no policy allows anything there" in preference["warnings"][0]["warning"]
    assert node.said("policy", "set", "p2", "--why", "again")["warnings"] == [], "those of others are not told"
    taken_back = node.said("preference", "remove", "u2")
    assert taken_back["warnings"] == []


def test_secrets_are_on_lines_of_their_own_and_unbroken(node: Administered) -> None:
    for width in ("40", "120"):
        name = f"bob{width}"
        out = node("user", "add", name, COLUMNS=width).out
        password, token = (re.search(rf"^{word}: (\S+)$", out, re.MULTILINE) for word in ("password", "token"))
        assert password is not None, out
        assert token is not None, out
        assert re.fullmatch(r"tg_[0-9a-f]{16}_[\w-]{43}", token[1])
        assert tidegate("preference", "list", TIDEGATE_URL=node.url, TIDEGATE_TOKEN=token[1]).code == 0
        source = node("source", "register", f"s{width}", "--type", "wind", "--scheme", "AES-256-GCM", COLUMNS=width).out
        assert re.search(r"^key: \S{40,}$", source, re.MULTILINE | re.IGNORECASE), source


# -- files that others can read ----------------------------------------------------------------------------------------

TLS = """
version: 1
node: {name: test}
listeners: [{url: "mqtts://127.0.0.1:PORT", cert: certs/node.pem, key: certs/node.key}]
policies: open
"""


def warned(file: Path) -> list[str]:
    ran = tidegate("check", file)
    assert ran.code == 0, ran
    return [line for line in ran.err.splitlines() if "chmod" in line]


def test_check_warns_of_keys_and_passwords_that_others_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates.make_ca(tmp_path / "certs", "CA", days=2)
    _, key = certificates.issue(tmp_path / "certs", "node", ["127.0.0.1"], client=False, days=2)
    file = File(tmp_path, TLS).path
    file.chmod(0o644)
    assert key.stat().st_mode & 0o777 == 0o600
    assert warned(file) == [], "there is no secret in the file"
    key.chmod(0o640)
    assert warned(file) == [], "a group is somebody's choice"
    key.chmod(0o644)
    [text] = warned(file)
    assert (
        f"listeners[0].key` is in `{key}`, which every user of this machine can read; run `chmod o-rwx {key}`" in text
    )
    assert text.startswith(f"{file}:4: warning: ")
    key.chmod(0o600)

    monkeypatch.setenv("SECRET", "plain:apple")
    file.write_text(file.read_text() + 'directory: {users: {mary: {password: "${SECRET}"}}}\n')
    assert warned(file) == [], "it is in a variable"
    file.write_text(file.read_text().replace("${SECRET}", "plain:pear"))
    [text] = warned(file)
    assert text == (
        f"{file}: warning: the file holds passwords, and every user of this machine can read it; "
        f"run `chmod o-rwx {file}`"
    )
    file.chmod(0o600)
    assert warned(file) == []


def test_the_start_warns_of_them_too(node: Administered) -> None:
    assert exposed_files(load(node.node.file.path))
    [line] = [each for each in node.node.lines() if "every user of this machine can read it" in each["event"]]
    assert line["level"] == "warning"
