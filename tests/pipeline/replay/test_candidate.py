"""What is tried: a whole file, or some keys; and errors that name it with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config import ConfigErrors, load
from tidegate.pipeline.replay.candidate import candidate

BASE = """version: 1
node: {name: n}
listeners: [{url: "mqtt://127.0.0.1:1883", anonymous: true}]
policies:
- {id: one, subject: "*", topic: "#", action: read}
preferences:
- {id: mine, user: alice, topic: "a/#"}
directory: {users: {alice: {password: "plain:x"}}}
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    file = tmp_path / "tidegate.yaml"
    file.write_text(BASE)
    return file


def tried(base: Path, text: str) -> Path:
    (base.parent / "other").mkdir(exist_ok=True)
    file = base.parent / "other" / "candidate.yaml"
    file.write_text(text)
    return file


def test_some_keys_replace_those_of_the_base(base: Path) -> None:
    found = candidate(base, tried(base, 'policies:\n- {id: two, subject: "*", topic: "b", action: write}\n'))
    policies = found.built.rules.policies
    assert policies is not None
    assert [each.id for each in policies.policies] == ["builtin:sys", "two"]
    assert [each.id for each in found.built.rules.preferences.preferences] == ["mine"]
    assert found.built.rules.version != load(base).built.rules.version


def test_a_whole_file_stands_for_itself(base: Path) -> None:
    found = candidate(base, tried(base, BASE.replace('preferences:\n- {id: mine, user: alice, topic: "a/#"}\n', "")))
    assert len(found.built.rules.preferences) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n\npolicies:\n- {id: a, subject: nobody, topic: b, action: read}\n", ":4: "),
        ("policies:\n- {id: a, subject: '*', topic: b, action: read, when: '1 +'}\n", ":2: "),
        ("\npolicy: []\n", ":2: `policy` is not among what can be replaced"),
        ("directory: {}\n", "who people are is taken as it was recorded; leave it out"),
        ("monitors: []\n", "monitors are not replayed; leave it out"),
        ("version: 1\n", "says nothing; write some of policies"),
        ("[]\n", ":1: the file must be a mapping"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(base: Path, text: str, said: str) -> None:
    file = tried(base, text)
    with pytest.raises(ConfigErrors) as wrong:
        candidate(base, file)
    assert str(wrong.value).startswith(str(file))
    assert said in str(wrong.value)
