"""Documents laid over the file: one configuration, and what is wrong with a document is told by its name."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tidegate.config import (
    Config,
    ConfigErrors,
    OverlayDocument,
    Source,
    build_config,
    parse,
    read_source,
    with_documents,
)
from tidegate.config.overlay import KINDS, document_body, entries_in_file

FILE = """\
version: 1
node: {name: n}
listeners: [{url: "mqtt://127.0.0.1:1883", anonymous: true}]
directory:
  users:
    mary: {password: "plain:lamb"}
policies:
  - {id: p1, subject: "*", topic: "a/#", action: read}
  - {subject: "*", topic: "b/#", action: read}
flows: {forbid: ["client:a -> client:b"]}
"""
POLICY = {"subject": "*", "topic": "c/#", "action": "read"}


def source(text: str = FILE) -> Source:
    found = parse(text, "f.yaml").source
    assert found is not None
    return found


def piece(kind: str, name: str, /, **said: Any) -> OverlayDocument:
    return OverlayDocument(kind=kind, id=name, body=said)


def laid(*pieces: OverlayDocument, text: str = FILE) -> Config:
    return build_config(with_documents(source(text), pieces))


def problems(*pieces: OverlayDocument, text: str = FILE) -> list[str]:
    with pytest.raises(ConfigErrors) as wrong:
        laid(*pieces, text=text)
    return str(wrong.value).splitlines()


def test_rules_of_the_file_come_first_and_documents_in_their_order() -> None:
    config = laid(piece("policy", "z", **POLICY), piece("policy", "a", **POLICY))
    assert isinstance(config.policies, tuple)
    assert [each.id for each in config.policies] == ["p1", None, "z", "a"]
    assert config.built.rules.policies is not None
    assert [each.id for each in config.built.rules.policies.policies[1:]] == ["p1", "policies[1]", "z", "a"]


def test_every_kind_has_its_place() -> None:
    config = laid(
        piece("preference", "pr", user="mary", topic="#", when="false"),
        piece("view", "v", topic="a/#", **{"for": "*"}, keep="all"),
        piece("monitor", "m", scope="main", direction="im_pub", rate="5/s"),
        piece("user", "bob", roles=["coach"]),
        piece("client", "tr1", user="bob"),
        piece("role", "coach", attributes={"rank": 3}),
        piece("group", "g"),
        piece("flow", "f", require="client:tr1 -> scope:main"),
        piece("rule", "r", allow="open/#"),
    )
    assert [each.id for each in (*config.preferences, *config.views, *config.monitors)] == ["pr", "v", "m"]
    assert set(config.directory.users) == {"mary", "bob"}
    assert config.directory.clients["tr1"].user == "bob"
    assert config.directory.roles["coach"].attributes == {"rank": 3}
    assert "g" in config.directory.groups
    assert config.flows.forbid == ("client:a -> client:b",)
    assert config.flows.require == ("client:tr1 -> scope:main",)
    assert config.rules is not None
    assert config.rules.allow == ("open/#",)


def test_links_between_scopes() -> None:
    text = FILE.replace("directory:", "scopes: {main: {}, other: {}}\ndirectory:").replace(
        "anonymous", "scope: main, anonymous"
    )
    config = laid(piece("link", "l", **{"from": "main", "to": "other"}), text=text)
    assert [link.name for link in config.built.rules.space.links] == ["main->other", "other->main"]


def test_the_file_itself_is_not_changed_and_can_be_laid_under_again() -> None:
    file = source()
    once = with_documents(file, [piece("policy", "x", **POLICY)])
    twice = with_documents(once, [piece("policy", "y", **POLICY)])
    for made, id in ((once, "x"), (twice, "y")):
        config = build_config(made)
        assert isinstance(config.policies, tuple)
        assert [each.id for each in config.policies] == ["p1", None, id]
        assert made.alone is file
        assert config.source is made
    assert file.tree.data() == parse(FILE, "f.yaml").source.tree.data()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (piece("policy", "x", subject="*", topic="#/a", action="read"), "policy/x: `topic` "),
        (piece("policy", "x", subject="*", topic="a", action="raed"), "policy/x: `action` must be "),
        (piece("policy", "x", **POLICY, whenn="1"), "policy/x: unknown key `whenn`; did you mean `when`?"),
        (piece("policy", "x", subject="*", action="read"), "policy/x: `topic` is missing; add it"),
        (piece("policy", "x", **POLICY, when="s.a =="), "policy/x: `when` is no condition, at column "),
        (piece("policy", "p1", **POLICY), "policy/p1: `id` is `p1`, and so is that of `policies[0]`; give each rule"),
        (piece("policy", "x", **POLICY, id="y"), "policy/x: `id` is not `x`; leave it out, or write that"),
        (piece("view", "p1", topic="a", **{"for": "*"}, keep="all"), "view/p1: `id` is `p1`, and so is that of"),
        (piece("user", "mary"), "user/mary: the document stands in the file as well; remove one of the two"),
        (piece("user", "bob", password="plain:x"), "user/bob: `password` is written in plain; send what"),
        (piece("user", "bob", pasword="x"), "user/bob: unknown key `pasword`; did you mean `password`?"),
        (piece("client", "c", user="nobody"), "client/c: `user` names the unknown user `nobody`; add it under"),
        (piece("monitor", "m", scope="main", direction="im_pub", python="os:abort"), "monitor/m: `python` runs code"),
        (piece("flow", "f", forbid="x", require="y"), "flow/f: the document must have one key; write `forbid` or"),
        (piece("flow", "f", forbid="nonsense"), "flow/f: the document "),
        (piece("rule", "r", allow="#/x"), "rule/r: the document "),
        (piece("flow", "f", require="scope:main -> client:nobody"), "flow/f: the document does not hold"),
    ],
)
def test_what_is_wrong_is_told_by_the_name_of_the_document(wrong: OverlayDocument, said: str) -> None:
    [told] = problems(wrong)
    assert told.startswith(said), told


def test_problems_of_file_and_documents_are_told_together() -> None:
    text = FILE + "views: [{topic: a, for: '*', keep: all, x: 1}]\n"
    with pytest.raises(ConfigErrors) as wrong:
        build_config(with_documents(_unchecked(text), [piece("policy", "x", subject="*")]))
    places = {(each.file, each.line) for each in wrong.value.problems}
    assert places == {("f.yaml", 11), ("policy/x", 0)}


def _unchecked(text: str) -> Source:
    from tidegate.config.tree import compose

    tree, _ = compose(text, "f.yaml", {})
    return Source(file="f.yaml", text=text, tree=tree)


def test_policies_cannot_count_where_the_file_is_open() -> None:
    text = FILE[: FILE.index("policies:")] + "policies: open\n"
    [told] = problems(piece("policy", "x", **POLICY), text=text)
    assert told.startswith("policy/x: the document cannot count while the file says `policies: open`; make")


def test_nothing_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    config = laid(piece("user", "bob", attributes={"a": "${SECRET}"}))
    assert config.directory.users["bob"].attributes == {"a": "${SECRET}"}


def test_nesting_is_bounded() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    [told] = problems(piece("user", "bob", attributes={"a": deep}))
    assert told == "user/bob: the document is nested deeper than 50 levels; flatten it"


def test_warnings_name_the_document() -> None:
    config = laid(piece("user", "bob"))
    assert any(
        line == 0 and text.startswith("user/bob: the document has no password") for line, text in config.warnings()
    )


def test_what_stands_in_the_file() -> None:
    file = source()
    assert list(entries_in_file(file, "policy")) == ["p1", "policies[1]"]
    assert list(entries_in_file(file, "user")) == ["mary"]
    assert list(entries_in_file(file, "flow")) == ["flows.forbid[0]"]
    assert entries_in_file(file, "view") == {}
    node = entries_in_file(file, "flow")["flows.forbid[0]"]
    assert document_body(node, "flow", "flows.forbid[0]") == {"forbid": "client:a -> client:b"}
    assert all(entries_in_file(file, kind) is not None for kind in KINDS)


# -- the sections of administration --------------------------------------------------------------------------------


MASTER = hashlib.sha256(b"a key for tests").hexdigest()
BASE = """\
version: 1
node: {name: n, data: d}
listeners: [{url: "mqtt://127.0.0.1:1883", anonymous: true}]
policies: open
"""


def test_defaults_of_administration() -> None:
    config = parse(BASE, "f.yaml")
    assert (config.store, config.http, config.master_key) == ("sqlite", None, None)
    assert not config.administered
    config = parse(BASE + "http: {}\n", "f.yaml")
    assert config.http is not None
    assert str(config.http.url) == "http://127.0.0.1:8080"
    assert config.administered


def test_the_password_of_the_database_is_not_shown() -> None:
    config = parse(BASE + 'store: "postgresql://n:${PW}@127.0.0.1/t"\n', "f.yaml", variables={"PW": "hush"})
    assert config.store == "postgresql://n:hush@127.0.0.1/t"
    assert "hush" not in repr(config)


def test_a_store_that_was_used_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(BASE)
    assert not build_config(read_source(file)).administered
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "admin.db").touch()
    assert build_config(read_source(file)).administered


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("store: mysql://x\n", "`store` must be `sqlite` or `postgresql://…`"),
        ("http: {url: 'ftp://x'}\n", "`http.url` must begin with http:// or https://"),
        ("http: {url: 'http://1.2.3'}\n", "`http.url` has no valid IPv4 address"),
        ("http: {url: 'http://127.0.0.1:1/x'}\n", "`http.url` has a path, query or fragment; end it after the port"),
        ("http: {url: 'http://a:b@127.0.0.1'}\n", "`http.url` must not contain a user name or password"),
        ("http: {url: 'https://127.0.0.1'}\n", "`http.cert` is missing, which https:// needs"),
        ("http: {cert: x.pem}\n", "`http.cert` has no effect on http://"),
        ("http: {crl: x.crl}\n", "`http.crl` has no effect on http://"),
        (
            "http: {url: 'https://127.0.0.1', cert: x.pem, crl: x.crl}\n",
            "`http.crl` has no effect while no certificate",
        ),
        ("http: {url: 'http://127.0.0.1:1883'}\n", "`http.url` takes the same address as listener 0"),
        ("master_key: {}\n", "`master_key` needs either `file` or `environment`"),
        ("master_key: {file: a, environment: B}\n", "`master_key` needs either `file` or `environment`"),
        ("master_key: {environment: $B}\n", "`master_key.environment` must be the name of"),
        ("tokens: {valid: 1s}\n", "`tokens.valid` must be at least 60"),
    ],
)
def test_wrong_administration(more: str, said: str) -> None:
    with pytest.raises(ConfigErrors) as wrong:
        parse(BASE + more, "f.yaml")
    [told] = wrong.value.problems
    assert str(told).startswith("f.yaml:5: " + said), told


def test_administration_needs_a_place() -> None:
    text = BASE.replace(", data: d", "")
    for more in ("http: {}\n", "store: sqlite\n"):
        with pytest.raises(ConfigErrors, match=r"set `node\.data`"):
            parse(text + more, "f.yaml")


def test_master_keys_are_read_and_never_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, key = tmp_path / "f.yaml", tmp_path / "master"
    file.write_text(BASE + "master_key: {file: master}\n")
    with pytest.raises(ConfigErrors, match="cannot be read"):
        build_config(read_source(file))
    key.write_text("hush")
    key.chmod(0o644)
    with pytest.raises(ConfigErrors, match="chmod 600"):
        build_config(read_source(file))
    key.chmod(0o600)
    with pytest.raises(ConfigErrors) as wrong:
        build_config(read_source(file))
    assert "hush" not in str(wrong.value)
    key.write_text(MASTER)
    assert build_config(read_source(file)).master_key is not None
    file.write_text(BASE + "master_key: {environment: MASTER}\n")
    with pytest.raises(ConfigErrors, match="`MASTER` of `master_key` is not set"):
        build_config(read_source(file))
    monkeypatch.setenv("MASTER", MASTER)
    assert build_config(read_source(file)).master_key is not None


def test_tokens_over_the_network_are_warned_about() -> None:
    config = parse(BASE + "http: {url: 'http://0.0.0.0:8080'}\n", "f.yaml")
    assert (5, "`http.url` carries tokens unencrypted over the network; use https://") in config.warnings()


def test_levels_in_conditions_of_documents_are_those_of_the_file() -> None:
    """A preference or policy over HTTP compares levels by rank, and cannot name one that there is not."""
    for kind, body in (
        ("policy", POLICY),
        ("preference", {"user": "mary", "topic": "c/#"}),
    ):
        wrong = problems(piece(kind, "x", **body, when="s.level >= 'mtsl'"))
        assert "'mtsl' is no level; there is plain, tls, mtls, trusted" in wrong[0]
    own = FILE + "levels: {order: [plain, b, a], define: {b: 'true', a: 'true'}}\n"
    assert "there is plain, b, a" in problems(piece("policy", "x", **POLICY, when="s.level > 'tls'"), text=own)[0]
    policies = laid(piece("policy", "x", **POLICY, when="s.level > 'b'"), text=own).built.rules.policies
    assert policies is not None
    when = policies.policies[-1].when
    assert when is not None
    assert [when({"s": {"level": level}}) for level in ("plain", "b", "a")] == [False, False, True]
