"""`tidegate key`: pairs and master keys that are made here, topic keys of a real node, and sources that have keys."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.administering import CONFIGURATION, Administered, administered, tidegate
from tidegate.keys import Kem, PrivateKey, PublicKey
from tidegate.keys.at_rest import parse_masters

PROTECTED = CONFIGURATION + 'keys: {protect: ["vault/#", "safe/#"], rotate: 5m, overlap: 1h}\n'


@pytest.mark.parametrize(("options", "kem"), [((), Kem.X25519), (("--hybrid",), Kem.HYBRID)])
def test_a_pair(tmp_path: Path, options: tuple[str, ...], kem: Kem) -> None:
    file = tmp_path / "mary.key"
    ran = tidegate("key", "pair", "--out", file, *options)
    assert ran.code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    private = PrivateKey.parse(file.read_text())
    assert private.kem is kem
    assert ran.out == f"{private.public}\n"
    assert file.read_text().strip() not in ran.out + ran.err
    assert PublicKey.parse(ran.out) == private.public

    again = tidegate("key", "pair", "--out", file)
    assert (again.code, again.out) == (1, "")
    assert again.err == f"error: {file} is there already: choose another file with --out\n"
    assert PrivateKey.parse(file.read_text()).public == private.public
    nowhere = tidegate("key", "pair", "--out", tmp_path / "no/such/folder")
    assert (nowhere.code, nowhere.out) == (1, "")
    told = tidegate("key", "pair", "--out", tmp_path / "other.key", "--json").json
    assert told == {
        "private": str(tmp_path / "other.key"),
        "public": str(PrivateKey.parse((tmp_path / "other.key").read_text()).public),
    }


def test_a_master_key() -> None:
    made = [tidegate("key", "master").out, tidegate("key", "master", "--json").json["master"]]
    assert len(parse_masters("\n".join(made))) == 2


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administered]:
    with administered(tmp_path_factory.mktemp("keys"), PROTECTED) as found:
        yield found


def sealed(admin: Administered, topic: str) -> str:
    """The id of the key under which a message was sealed that was published just now."""
    before = {each["id"] for each in admin.said("key", "list")["items"]}
    port = admin.node.ports["PORT"]
    admin.done("pub", "-p", port, "-u", "mary", "-P", "secret", "-t", topic, "-m", "x", "-q", "1")
    (made,) = [each["id"] for each in admin.said("key", "list")["items"] if each["id"] not in before]
    return str(made)


def test_topic_keys(admin: Administered, tmp_path: Path) -> None:
    public = admin.done("key", "pair", "--out", tmp_path / "zoe.key").strip()
    zoe = admin.said("user", "add", "zoe", "--public-key", public)["token"]
    for user in ("zoe", "mary"):
        for topic in ("vault", "safe"):
            words = ("--subject", f"user:{user}", "--topic", f"{topic}/#", "--action", "read,write")
            admin.done("policy", "add", f"{user}-{topic}", *words)
    assert admin("key", "list").err == "There are no topic keys.\n"
    key = sealed(admin, "vault/a")
    assert re.search(
        rf"{key}\s+vault/#\s+vault/a\s+\S+ \S+\s+for [45] min.*\s+for 1 h [45] min\s+1\s", admin.done("key", "list")
    )

    # As a reader, who may have it.
    mine = ("key", "get", key, "--private", tmp_path / "zoe.key")
    shown = admin.done(*mine, token=zoe)
    assert re.search(r"reader\s+user:zoe", shown)
    assert re.search(r"valid for\s+1 h [45] min", shown)
    found = admin.said(*mine, "--show", token=zoe)
    assert re.fullmatch("[0-9a-f]{64}", found["secret"])
    assert "secret" not in admin.said(*mine, token=zoe)
    assert found["secret"] not in shown

    # And who may not: another private key, nobody, somebody who may not read it any more.
    admin.done("key", "pair", "--out", tmp_path / "other.key")
    other = admin.refused("key", "get", key, "--private", tmp_path / "other.key", token=zoe)
    assert "it is not for this private key" in other
    assert "readers are users" in admin.refused(*mine)
    assert "no such key" in admin.refused("key", "get", "nothing", "--private", tmp_path / "zoe.key", token=zoe)
    (tmp_path / "public").write_text(public)
    assert "it is no private key" in admin.refused("key", "get", key, "--private", tmp_path / "public", token=zoe)
    admin.done("policy", "set", "zoe-vault", "--effect", "deny")
    assert "(rule zoe-vault)" in admin.refused(*mine, token=zoe)
    admin.done("policy", "set", "zoe-vault", "--effect", "")

    # Rotated: other keys from the next message on.
    sealed(admin, "safe/a")
    tried = admin.done("key", "rotate", "--dry-run")
    assert tried == "✓ 2 groups of topics would be sealed with another key, and nothing was changed\n"
    assert admin.said("key", "rotate", "--filter", "vault/#", "--dry-run") == {"groups": 1, "dry_run": True}
    one = admin.done("key", "rotate", "--filter", "vault/#")
    assert one == "✓ 1 group of topics will be sealed with another key\n"
    assert admin.said("key", "rotate", "--filter", "vault/#", "--why", "again")["groups"] == 0
    newer = sealed(admin, "vault/a")
    assert newer != key
    assert re.search(rf"{key}\s+vault/#\s+vault/a\s+\S+ \S+\s+no more", admin.done("key", "list"))
    assert admin.said("key", "rotate")["groups"] == 2
    assert "protects nothing" in admin.refused("key", "rotate", "--filter", "nothing/#")
    assert admin("key", "rotate", "--filter", "vault/#", "--user", "zoe").code == 2

    tried = admin.done("key", "revoke", key, "--dry-run")
    assert tried == f"✓ key {key} of vault/a would be revoked, and nothing was changed\n"
    assert admin.said("key", "revoke", key, "--dry-run")["key"]["id"] == key
    assert admin.done(*mine, token=zoe)
    assert admin.done("key", "revoke", key, "--why", "stolen") == f"✓ key {key} revoked\n"
    assert "no such key" in admin.refused(*mine, token=zoe)
    assert "there is no key" in admin.refused("key", "revoke", key)
    assert "may not do this" in admin.refused("key", "list", token=zoe)


def test_sources(admin: Administered) -> None:
    words = ("--type", "weather-station", "--scheme", "AES-256-GCM")
    tried = admin.done("source", "register", "station-1", *words, "--dry-run")
    assert "✓ source station-1 would be registered, and nothing was changed" in tried
    assert admin.said("source", "register", "station-1", *words, "--dry-run")["dry_run"] is True
    assert admin("source", "list").err == "There are no sources.\n"
    made = admin("source", "register", "station-1", *words, "--why", "a new roof")
    assert (made.code, made.err) == (0, "This is shown only once: keep it.\n")
    assert made.out.startswith("✓ source station-1 registered\n")
    for name in ("token", "password", "audience", "key", "token expires"):
        assert re.search(rf"^{name}: \S", made.out, re.MULTILINE), name
    renewed = admin.said("source", "register", "station-1", *words)
    assert renewed["password"] not in made.out
    assert re.search(r"station-1\s+weather-station\s+discrete\s+AES-256-GCM", admin.done("source", "list"))
    port = admin.node.ports["PORT"]
    login = ("pub", "-p", port, "-u", "station-1", "-P", renewed["password"], "-t", "x", "-m", "x")
    assert admin(*login).code == 0
    assert "`NodeId`" in admin.refused("source", "register", "not/allowed", "--type", "x")
    assert "would be removed, and nothing" in admin.done("source", "remove", "station-1", "--dry-run")
    assert admin(*login).code == 0
    assert admin.done("source", "remove", "station-1", "--why", "gone") == "✓ source station-1 removed\n"
    assert admin(*login).code == 1
    assert admin("source", "list").err == "There are no sources.\n"
