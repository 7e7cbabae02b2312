"""Users, clients, policies, preferences, tokens and applications of a real node, from the command line."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.administering import Administered, administered, tidegate
from cli.driving import Tidegate
from harness import PATIENCE
from tidegate.admin.roles import Role
from tidegate.api.schemas import TokenRequest
from tidegate.net.control_socket import ask


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administered]:
    with administered(tmp_path_factory.mktemp("administration")) as found:
        yield found


def policy(admin: Administered, id: str, topic: str = "b/#") -> None:
    admin.done("policy", "add", id, "--subject", "user:mary", "--topic", topic, "--action", "read,write")


def refused_at_last(admin: Administered, *arguments: object, token: str) -> str:
    """How a token that was revoked is refused: the interface believes one that it has just seen for a second."""
    deadline = time.monotonic() + PATIENCE
    while admin(*arguments, token=token).code == 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return admin.refused(*arguments, token=token)


# -- documents -------------------------------------------------------------------------------------------------------


def test_the_life_of_a_policy(admin: Administered) -> None:
    words = ("--subject", "user:mary", "--subject", "role:coach", "--topic", "b/#", "--action", "read,write")
    made = admin("policy", "add", "life", *words, "--when", 's.role == "coach"', "--why", "trying")
    assert (made.code, made.err) == (0, "")
    assert re.fullmatch(r"✓ policy life made, version \d+\n", made.out)
    assert admin.said("policy", "show", "life")["value"] == {
        "subject": ["user:mary", "role:coach"],
        "topic": "b/#",
        "action": ["read", "write"],
        "when": 's.role == "coach"',
    }
    assert "exists already" in admin.refused("policy", "add", "life", *words)

    # What is not said stays, and an empty text takes away.
    admin.done("policy", "set", "life", "--effect", "deny", "--when", "", "--action", "read")
    value = admin.said("policy", "show", "life")["value"]
    assert value == {"subject": ["user:mary", "role:coach"], "topic": "b/#", "action": "read", "effect": "deny"}

    first, second = admin.said("policy", "history", "life")["items"]
    assert (first["why"], second["why"]) == ("trying", "")
    shown = admin.done("policy", "history", "life")
    assert all(each in shown for each in (str(first["sequence"]), "trying", first["by"], "deny"))
    tried = admin.done("policy", "revert", "life", "--dry-run")
    assert f"✓ policy life would be what it was before change {second['sequence']}, and nothing was changed" in tried
    assert admin.said("policy", "show", "life")["value"] == value
    assert "is what it was before change" in admin.done("policy", "revert", "life")
    assert admin.said("policy", "show", "life")["value"]["when"] == 's.role == "coach"'
    assert "was changed again since" in admin.refused("policy", "revert", "life", first["sequence"])
    assert "has no change 999999: choose one of its history" in admin.refused("policy", "revert", "life", 999999)

    assert admin.done("policy", "remove", "life", "--why", "enough") == "✓ policy life removed\n"
    assert admin.refused("policy", "show", "life") == "there is no policy 'life'; list what there is"
    assert admin.said("policy", "history", "life")["items"][-1]["value"] is None
    assert "removed" in admin.done("policy", "history", "life")


def test_what_stands_in_the_file_is_shown_and_not_changed(admin: Administered) -> None:
    there = admin.said("policy", "list")["items"]
    assert ("p1", "file") in [(each["id"], each["source"]) for each in there]
    assert re.search(r"^\s*p1\s+user:mary\s+a/#\s+read, write\s+allow", admin.done("policy", "list"), re.MULTILINE)
    for command in (("set", "p1", "--effect", "deny"), ("remove", "p1")):
        assert admin.refused("policy", *command) == "policy/p1 stands in the file of the node: change it there"


def test_a_mistake_is_told_with_its_place(admin: Administered) -> None:
    words = ("--subject", "*", "--topic", "b", "--action", "read", "--when", "s.role ==")
    assert admin.refused("policy", "add", "wrong", *words).startswith("policy/wrong: `when` is no condition")


def test_a_dry_run_shows_what_would_be_different_and_changes_nothing(admin: Administered) -> None:
    admin.done("user", "add", "dry", "--role", "coach", "--password-stdin", stdin="secret\n")
    policy(admin, "there")
    before = admin.rules()
    port = admin.node.ports["PORT"]
    refused = admin("pub", "-p", port, "-u", "mary", "-P", "secret", "-i", "tr1", "-t", "dry/x", "-m", "x", "-q", "1")
    assert refused.code == 1
    words = ("policy", "add", "new", "--subject", "user:mary", "--topic", "dry/#", "--action", "write", "--dry-run")
    deadline = time.monotonic() + PATIENCE
    while not (found := admin.said(*words))["effect"]["different"]:  # it is recorded in a moment
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert found["dry_run"] is True
    told = admin(*words)
    assert told.code == 0
    assert re.search(r"user:mary/client:tr1\s+write\s+dry/x\s+DENY by default .*ALLOW by new", told.out)
    assert "✓ policy new would be made, and nothing was changed; 1 of " in told.out
    assert "Not covered: " in told.err

    for command in (
        "policy set there --effect deny",
        "policy remove there",
        "user add another --role coach",
        "user set dry --role nurse",
        "user remove dry",
        "user credentials dry",
        "client add tr9 --user dry",
        "preference add --user dry --topic x/#",
        "application add app --description text",
    ):
        assert "nothing was changed" in admin.done(*command.split(), "--dry-run"), command
        assert admin.said(*command.split(), "--dry-run")["dry_run"] is True
    assert admin.rules() == before
    assert admin("policy", "show", "new").code == 1


def test_many_at_once_from_a_file(admin: Administered, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(
        "policies:\n"
        "  - {id: f1, subject: 'role:coach', topic: 'f/#', action: read}\n"
        "  - {id: f2, subject: '*', topic: g, action: [read, write]}\n"
    )
    assert [each["id"] for each in admin.said("policy", "add", "--file", file)["items"]] == ["f1", "f2"]
    again = "# a list\n- id: f1\n  subject: '*'\n  topic: f\n  action: read\n"
    assert admin.said("policy", "set", "--file", "-", stdin=again)["id"] == "f1"
    assert admin.said("policy", "show", "f1")["value"] == {"subject": "*", "topic": "f", "action": "read"}
    assert admin.said(
        "policy", "add", "--file", "-", stdin='[{"id": "f3", "subject": "*", "topic": "g", "action": "read"}]'
    )

    # What came before the one that is refused is done, and told.
    mixed = (
        "- {id: f4, subject: '*', topic: g, action: read}\n- {id: f5, subject: '*', topic: g, action: eat}\n- {id: f6}"
    )
    ran = admin("policy", "add", "--file", "-", stdin=mixed)
    assert ran.code == 1
    assert re.fullmatch(r"✓ policy f4 made, version \d+\n", ran.out)
    assert "entry 2 of 3 was refused, and those after it were not tried: policy/f5: `action`" in ran.err
    assert admin("policy", "show", "f5").code == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "standard input: holds no entries as in the section `policies` of a configuration"),
        ("hello", "standard input: holds no entries"),
        ("policies: []", "standard input: holds no entries"),
        ("- 5", "standard input: holds no entries"),
        ("version: 1\npolicies: [{id: x}]", "standard input: holds more than `policies`: remove `version`"),
        ("- id: a\n- id: [\n", "standard input:3: not valid YAML"),
        ("- id: a\n  topic: ${NO_SUCH_VARIABLE}\n", "standard input:2: the environment variable `NO_SUCH_VARIABLE`"),
    ],
)
def test_files_that_are_wrong(admin: Administered, text: str, said: str) -> None:
    ran = admin("policy", "add", "--file", "-", stdin=text)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.err


def test_clients(admin: Administered) -> None:
    admin.done("client", "add", "tr1", "--user", "mary", "--set", "room=3", "--set", "name=front", "--role", "a,b")
    value = {"user": "mary", "roles": ["a", "b"], "attributes": {"room": 3, "name": "front"}}
    assert admin.said("client", "show", "tr1")["value"] == value
    assert re.search(r"tr1\s+mary\s+a, b\s+room=3, name=front\s+api", admin.done("client", "list"))
    admin.done("client", "set", "tr1", "--set", "room=", "--role", "")
    assert admin.said("client", "show", "tr1")["value"] == {"user": "mary", "attributes": {"name": "front"}}
    assert admin("client", "set", "tr1", "--set", "room").code == 2
    assert len(admin.said("client", "history", "tr1")["items"]) == 2
    admin.done("client", "remove", "tr1")
    assert admin("client", "list").err == "There are no clients.\n"


# -- people ----------------------------------------------------------------------------------------------------------


def test_users(admin: Administered, tmp_path: Path) -> None:
    public = admin.done("key", "pair", "--out", tmp_path / "anna.key").strip()
    (tmp_path / "anna.pub").write_text(f"{public}\n")
    words = ("--role", "coach", "--group", "g", "--set", "shift=day", "--public-key", f"@{tmp_path}/anna.pub")
    made = admin.said("user", "add", "anna", *words)
    assert admin.said("user", "show", "anna")["value"] == {
        "roles": ["coach"],
        "groups": ["g"],
        "attributes": {"shift": "day"},
        "public_key": public,
    }
    assert "exists already" in admin.refused("user", "add", "anna")

    # The password and the token count, and are in nothing that is told later.
    port = admin.node.ports["PORT"]
    login = ("pub", "-p", port, "-u", "anna", "-t", "x", "-m", "x", "-P")
    assert admin(*login, made["password"]).code == 0
    assert admin(*login, "wrong").code == 1
    assert admin.said("preference", "list", token=made["token"]) == {"items": []}
    told = admin.done("user", "list") + admin.done("user", "history", "anna") + admin.done("token", "list")
    assert made["password"] not in told
    assert made["token"] not in told

    # Others: those before do not count any more. A user can do it alone.
    renewed = admin.said("user", "credentials", "anna", token=made["token"])
    assert "unknown, expired or revoked" in refused_at_last(admin, "preference", "list", token=made["token"])
    assert admin(*login, made["password"]).code == 1
    assert admin(*login, renewed["password"]).code == 0
    shown = admin("user", "credentials", "anna")
    assert re.search(r"^password: \S{20,}$", shown.out, re.MULTILINE)
    assert re.search(r"token expires: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(in \d+ d", shown.out)
    assert shown.err == "This is shown only once: keep it.\n"

    admin.done("user", "set", "anna", "--role", "nurse", "--set", "shift=", "--password-stdin", stdin="mine\n")
    assert admin(*login, "mine").code == 0
    assert admin.said("user", "show", "anna")["value"]["roles"] == ["nurse"]
    other = admin.done("key", "pair", "--hybrid", "--out", tmp_path / "other.key").strip()
    admin.done("user", "key", "anna", other)
    assert admin.said("user", "show", "anna")["value"]["public_key"] == other
    private = (tmp_path / "anna.key").read_text().strip()
    refusal = admin.refused("user", "key", "anna", f"@{tmp_path}/anna.key")
    assert "it is a private key: keep that" in refusal
    assert private not in refusal

    assert admin.done("user", "remove", "anna") == "✓ user anna removed\n"
    assert admin(*login, "mine").code == 1


def test_preferences_of_ones_own(admin: Administered) -> None:
    eve = admin.said("user", "add", "eve")["token"]
    admin.done(
        "preference", "add", "of-mary", "--user", "mary", "--topic", "mary/#", "--keep", "/pulse", "--keep", "/x"
    )
    assert admin.said("preference", "show", "of-mary")["value"]["keep"] == ["/pulse", "/x"]

    made = admin.said("preference", "add", "--topic", "eve/#", "--when", 's.role == "coach"', token=eve)["id"]
    assert [each["id"] for each in admin.said("preference", "list", token=eve)["items"]] == [made]
    admin.done("preference", "set", made, "--keep", "all", "--when", "", token=eve)
    value = admin.said("preference", "show", made, token=eve)["value"]
    assert re.fullmatch("[0-9a-f]{16}", value.pop("owner")), "the identity that it belongs to"
    assert value == {"user": "eve", "topic": "eve/#", "keep": "all"}
    for command in (("show",), ("set", "--keep", "all"), ("remove",)):
        assert "there is no of-mary here" in admin.refused("preference", command[0], "of-mary", *command[1:], token=eve)
    assert "somebody else" in admin.refused("preference", "add", "--user", "mary", "--topic", "x", token=eve)
    assert "for administrators" in admin.refused("preference", "history", made, token=eve)
    assert "may not do this" in admin.refused("policy", "list", token=eve)
    assert [each["id"] for each in admin.said("preference", "list", "--user", "eve")["items"]] == [made]
    admin.done("preference", "remove", made, token=eve)
    assert admin("preference", "add", "--topic", "x").code == 2


def test_applications(admin: Administered) -> None:
    app = admin.said("application", "add", "diary", "--description", "Training diary", "--role", "reader")
    assert re.search(r"diary\s+Training diary", admin.done("application", "list"))
    assert admin.said("application", "show", "diary")["value"] == {"description": "Training diary"}
    refusal = admin.refused("application", "add-user", "diary", "diary.max", "--role", "boss", token=app["token"])
    assert "has not the role `boss` itself" in refusal
    admin.said("application", "add-user", "diary", "diary.max", "--role", "reader", token=app["token"])
    found = admin.said("application", "users", "diary", token=app["token"])["items"]
    attributes = {"application": "diary", "self_registered": True}
    assert [(each["id"], each["value"]["attributes"]) for each in found] == [("diary.max", attributes)]
    admin.said("application", "add-user", "diary", "diary.eva", token=app["token"])
    words = ("application", "remove-user", "diary", "diary.eva")
    assert "✓ user diary.eva would be removed from diary" in admin.done(*words, "--dry-run", token=app["token"])
    assert admin.done(*words, "--why", "left", token=app["token"]) == "✓ user diary.eva removed from diary\n"
    assert admin.said("user", "history", "diary.eva")["items"][-1]["why"] == "left"
    assert "is no user of yours" in admin.refused(*words, token=app["token"])
    assert "has no user 'mary'" in admin.refused("application", "remove-user", "diary", "mary")
    assert admin.done("application", "remove", "diary") == "✓ application diary removed\n"
    assert admin("user", "show", "diary.max").code == 1


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_tokens(admin: Administered, tmp_path: Path) -> None:
    ran = admin("token", "make", "--role", "auditor", "--name", "for tests", "--for", "3d")
    token = ran.out.strip()
    assert ran.code == 0
    assert re.fullmatch(r"Token [0-9a-f]{16}, auditor, ends .* \(in 3 d\)\. It is shown once\.\n", ran.err)
    found = [each for each in admin.said("token", "list")["items"] if each["name"] == "for tests"]
    assert [each["role"] for each in found] == ["auditor"]
    assert found[0]["id"] in admin.done("token", "list")

    (tmp_path / "token").write_text(f"{token}\n")
    assert admin("policy", "list", "--token-file", tmp_path / "token", token="wrong").code == 0
    assert "the role auditor may not do this" in admin.refused("policy", "remove", "p1", token=token)
    id = found[0]["id"]
    tried = admin.done("token", "revoke", id, "--dry-run")
    assert tried == f"✓ token {id}, auditor, would be revoked, and nothing was changed\n"
    assert admin("policy", "list", token=token).code == 0
    assert not re.search(rf"{id}.* by token:", admin.done("token", "list"))
    assert admin.done("token", "revoke", id, "--why", "the visit is over") == f"✓ token {id} revoked\n"
    assert re.search(rf"{id}\s.*\d\d:\d\d:\d\d by token:[0-9a-f]{{16}}", admin.done("token", "list"))
    refusal = refused_at_last(admin, "policy", "list", token=token)
    assert refusal == (
        "this token is unknown, expired or revoked: ask for a new one, and use --token-file FILE, or set TIDEGATE_TOKEN"
    )
    before = admin.said("token", "list")
    tried = admin.done("token", "make", "--role", "auditor", "--for", "3d", "--dry-run")
    assert re.fullmatch(r"✓ a token, auditor, that ends .* \(in 3 d\) would be made, and nothing was changed\n", tried)
    assert admin.said("token", "make", "--role", "auditor", "--dry-run")["dry_run"] is True
    assert admin.said("token", "list") == before
    assert "at most" in admin.refused("token", "make", "--role", "auditor", "--for", "400d", "--dry-run")
    assert "at most" in admin.refused("token", "make", "--role", "auditor", "--for", "400d")
    assert "`seconds`: " in admin.refused("token", "make", "--role", "auditor", "--for", "5000d")


def test_a_token_for_who_has_lost_all_of_them(
    admin: Administered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = admin.node.file.path
    words = ("token", "make", "--role", "admin", "--name", "lost", "--for", "2d", "--socket", "-c", file)
    tried = tidegate(*words, "--dry-run", "--json").json
    assert (tried["role"], tried["dry_run"]) == ("admin", True)
    made = tidegate(*words, "--why", "lost my notes")
    assert made.code == 0
    assert re.fullmatch(r"Token [0-9a-f]{16}, admin, ends .* \(in 2 d\)\. It is shown once\.\n", made.err)
    listed = admin.said("token", "list", token=made.out.strip())["items"]
    assert [each["role"] for each in listed if each["name"] == "lost"] == ["admin"]
    told = tidegate(*words, "--json").json
    assert admin.said("user", "list", token=told["token"])["items"]
    assert told["id"] in {each["id"] for each in admin.said("token", "list")["items"]}
    monkeypatch.chdir(tmp_path)
    ran = tidegate(*words[:-2])
    assert (ran.code, ran.out) == (1, "")
    assert "tidegate.yaml" in ran.err, "which is the file that is not named"
    for wrong in ((*words[:-3], "-c", file), ("token", "make", "--for", "2d")):
        ran = tidegate(*wrong)
        assert (ran.code, ran.out) == (2, "")
        assert "--socket" in ran.err
    refused = tidegate("token", "make", "--role", "user", "--user", "nobody", "--socket", "-c", file)
    assert (refused.code, refused.out) == (1, "")
    assert "there is no user 'nobody'" in refused.err


def test_roles_are_those_of_the_node() -> None:
    assert TokenRequest.model_json_schema()["properties"]["role"]["enum"] == list(Role)
    ran = tidegate("token", "make", "--role", "nothing")
    assert (ran.code, ran.out) == (2, "")
    assert all(role in ran.err for role in Role)


# -- the command as it really runs -------------------------------------------------------------------------------------


def test_as_a_process(admin: Administered, tidegate: Tidegate) -> None:
    known = {"TIDEGATE_URL": admin.url, "TIDEGATE_TOKEN": admin.token}
    listed = tidegate("policy", "list", "--json", **known)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert any(each["id"] == "p1" for each in json.loads(listed.stdout)["items"])
    missing = tidegate("policy", "show", "no such", **known)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "error: there is no policy 'no such'; list what there is\n"
    assert tidegate("policy", "add", "x", **known).returncode == 2
    assert ask(admin.node.control, "status")["node"] == "test"


def test_ids_are_never_abridged(admin: Administered) -> None:
    long = "a-policy-with-a-very-long-name-" + "x" * 120
    policy(admin, long, topic="long/" + "y" * 100)
    narrow = admin("policy", "list", COLUMNS="60")
    assert long in narrow.out
    strange = "strange/with a slash, ä and [bold]"
    policy(admin, strange)
    assert admin.said("policy", "show", strange)["id"] == strange
    assert strange in admin.done("policy", "list")
    for id in (long, strange):
        admin.done("policy", "remove", id)
