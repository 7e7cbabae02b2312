"""`tidegate import`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cli.driving import Tidegate

ACL = "user mary\ntopic read a/#\nuser a@b\ntopic read b\n"
HEAD = 'node: {name: x}\nlisteners: [{url: "mqtt://127.0.0.1:1883"}]\n'


@pytest.fixture
def acl(tmp_path: Path) -> Path:
    (tmp_path / "acl").write_text(ACL)
    return tmp_path / "acl"


def test_policies_to_standard_output_and_the_rest_to_standard_error(tidegate: Tidegate, acl: Path) -> None:
    done = tidegate("import", "mosquitto-acl", "acl")
    assert done.returncode == 0
    data = yaml.safe_load(done.stdout)
    assert data["policies"] == [{"id": "acl-2", "subject": "user:mary", "topic": "a/#", "action": "read"}]
    assert done.stderr.splitlines()[0] == "without an equivalent (1):"
    assert done.stderr.splitlines()[1].startswith("acl:4  topic read b  no policy can speak of its user")
    (acl.parent / "all.yaml").write_text(HEAD + done.stdout)
    assert tidegate("check", "all.yaml").returncode == 0


def test_a_file(tidegate: Tidegate, acl: Path) -> None:
    done = tidegate("import", "mosquitto-acl", "acl", "--output", "policies.yaml")
    assert (done.returncode, done.stdout) == (0, "")
    assert "user:mary" in (acl.parent / "policies.yaml").read_text()
    again = tidegate("import", "mosquitto-acl", "acl", "-o", "policies.yaml")
    assert again.returncode == 1
    assert again.stderr.startswith("policies.yaml: cannot be written (File exists); ")


def test_json(tidegate: Tidegate, acl: Path) -> None:
    done = tidegate("import", "mosquitto-acl", "acl", "--json")
    data = json.loads(done.stdout)
    assert data["combining"] == "first-applicable"
    assert data["directory"] == {"users": {"mary": {}}}
    assert [left["place"] for left in data["left"]] == ["acl:4"]


def test_strict(tidegate: Tidegate, acl: Path) -> None:
    assert tidegate("import", "mosquitto-acl", "acl", "--strict").returncode == 1
    acl.write_text("user mary\ntopic read a/#\n")
    assert tidegate("import", "mosquitto-acl", "acl", "--strict").returncode == 0


def test_dynamic_security(tidegate: Tidegate, tmp_path: Path) -> None:
    role = {"rolename": "r", "acls": [{"acltype": "publishClientSend", "topic": "a", "allow": True}]}
    content = {"roles": [role], "clients": [{"username": "mary", "roles": [{"rolename": "r"}]}]}
    (tmp_path / "d.json").write_text(json.dumps(content))
    done = tidegate("import", "mosquitto-dynsec", "d.json")
    assert done.returncode == 0
    assert yaml.safe_load(done.stdout)["directory"] == {"users": {"mary": {"roles": ["r"]}}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"topic all a\n", "acl:1: 'all' is no access; "),
        (b"\n\nfoo\n", "acl:3: 'foo' is no word of an ACL file; "),
        (b"# nothing\n", "acl: holds nothing that can be taken over; "),
        (b"topic a\n\xff\n", "acl:2: not UTF-8 text; "),
        (b"#" * (16 << 20) + b"\n", "acl: larger than 16 MiB; "),
    ],
)
def test_bad_files(tidegate: Tidegate, acl: Path, content: bytes, told: str) -> None:
    acl.write_bytes(content)
    done = tidegate("import", "mosquitto-acl", "acl")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(told)
    assert "Traceback" not in done.stderr


def test_no_file(tidegate: Tidegate) -> None:
    done = tidegate("import", "mosquitto-acl", "nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith("nowhere: cannot be read (No such file or directory); ")


def test_usage(tidegate: Tidegate) -> None:
    assert tidegate("import", "mosquitto-acl").returncode == 2
    told = tidegate("import", "--help").stdout
    for command in ("mosquitto-acl", "mosquitto-dynsec", "emqx-acl", "xacml"):
        assert command in told


CONF = """\
# at home
listener PORT 127.0.0.1
password_file FOLDER/passwd
acl_file FOLDER/acl
log_type all
"""
PASSWD = f"mary:$7$101$dHdlbHZlIGJ5dGVz${'A' * 86}==\nbob:plain\n"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "acl").write_text("user mary\ntopic read a/#\n")
    (tmp_path / "passwd").write_text(PASSWD)
    path = tmp_path / "mosquitto.conf"
    path.write_text(CONF.replace("PORT", "11883").replace("FOLDER", str(tmp_path)))
    return path


def test_a_whole_mosquitto(tidegate: Tidegate, conf: Path) -> None:
    done = tidegate("import", "mosquitto", "--conf", "mosquitto.conf", "-o", "tidegate.yaml")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[0] == "without an equivalent (2):"
    assert done.stderr.splitlines()[1].startswith(f"{conf.parent}/passwd:2")
    assert done.stderr.splitlines()[2].startswith("mosquitto.conf:5")
    written = conf.parent / "tidegate.yaml"
    assert written.stat().st_mode & 0o077 == 0
    data = yaml.safe_load(written.read_text())
    assert data["subscribe"] == "hold"
    assert data["directory"]["users"]["mary"]["password"].startswith("$7$101$")
    checked = tidegate("check", "tidegate.yaml")
    assert checked.returncode == 0
    assert "is a hash of Mosquitto's" in checked.stderr
    assert tidegate("import", "mosquitto", "--conf", "mosquitto.conf", "--strict").returncode == 1


def test_a_guarded_mosquitto(tidegate: Tidegate, conf: Path) -> None:
    assert tidegate("import", "mosquitto", "--conf", "mosquitto.conf", "--guard").returncode == 2
    done = tidegate("import", "mosquitto", "--conf", "mosquitto.conf", "-o", "tidegate.yaml", "--guard")
    assert done.returncode == 0
    data = yaml.safe_load((conf.parent / "tidegate.yaml").read_text())
    scope = data["scopes"]["main"]
    assert (scope["backend"], scope["authenticate"]) == ("mqtt://127.0.0.1:1884", "backend")
    assert data["directory"] == {"users": {"mary": {}}}
    behind = (conf.parent / "mosquitto-behind.conf").read_text().splitlines()
    assert behind[1:3] == ["listener 1884 127.0.0.1", "allow_anonymous false"]
    assert (conf.parent / "mosquitto-behind.passwd").read_text().startswith(f"{PASSWD}tidegate-guard:$7$101$")
    assert tidegate("check", "tidegate.yaml").returncode == 0
    shadow = tidegate("import", "mosquitto", "--conf", "mosquitto.conf", "--shadow")
    assert yaml.safe_load(shadow.stdout)["enforce"] is False
