"""What was imported is written as YAML that means exactly that, whatever is in it."""

from __future__ import annotations

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.config import parse
from tidegate.config.tree import expand
from tidegate.importing import Imported, ImportedPolicy, NotImported, to_yaml
from tidegate.importing.imported_policies import aligned, plain_topic, quoted, unspeakable
from tidegate.policy import Template
from tidegate.predicate import compile

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@given(texts, texts, texts, texts)
@settings(max_examples=300, database=None)
def test_every_text_survives(one: str, two: str, three: str, four: str) -> None:
    imported = Imported(
        policies=(
            ImportedPolicy(id=one, subject=(two, one), topic=three, action=("read",), when=four, origin=one + two),
        ),
        users={two: {"roles": [three]}},
        notes=(three, four),
        left=(NotImported(place=one, what=two, why=three),),
    )
    data = yaml.safe_load(to_yaml(imported, four))
    [policy] = data["policies"]
    found = [policy["id"], *policy["subject"], policy["topic"], policy["when"]]
    assert [expand(text, {}) for text in found] == [one, two, one, three, four]
    assert policy["action"] == "read"
    assert "effect" not in policy
    [(name, entry)] = data["directory"]["users"].items()
    assert name == two
    assert expand(entry["roles"][0], {}) == three


def test_references_to_the_environment_stay_text() -> None:
    for text in ("${HOME}", "$${HOME}", "${a${b}", "${", "$", "x$${"):
        imported = Imported(policies=(ImportedPolicy(id="p", subject="*", topic=text, action=("read",)),))
        data = yaml.safe_load(to_yaml(imported, "f"))
        assert expand(data["policies"][0]["topic"], {}) == text


def test_words_that_yaml_takes_for_something_else() -> None:
    names = ["yes", "No", "null", "1", "~", "", "a: b", "# x", "- a", "mary", "y", "0x1"]
    imported = Imported(users={name: {} for name in names})
    assert list(yaml.safe_load(to_yaml(imported, "f"))["directory"]["users"]) == names


def test_nothing() -> None:
    assert Imported().nothing
    data = yaml.safe_load(to_yaml(Imported(), "f"))
    assert data == {"version": 1, "combining": "deny-overrides", "policies": []}


def test_the_origin_of_each_policy_stands_above_it() -> None:
    first = ImportedPolicy(
        id="a", subject="*", topic="a", action=("read", "write"), effect="deny", origin="line 1: a\n- b"
    )
    lines = to_yaml(Imported(policies=(first,)), "f").splitlines()
    at = lines.index('  - {id: a, subject: "*", topic: a, action: [read, write], effect: deny}')
    assert lines[at - 1] == "  # line 1: a\\u000a- b"


def test_what_was_left_out_stands_below_each_other() -> None:
    left = (
        NotImported(place="f:1", what="short", why="why"),
        NotImported(place="f:100", what="longer than", why="because"),
    )
    assert aligned(left) == ["f:1    short        why", "f:100  longer than  because"]
    assert aligned(()) == []


@given(texts)
def test_a_text_in_a_condition_is_that_text(text: str) -> None:
    assert compile(f"s.client == {quoted(text)}")({"s": {"client": text}}) is True


@given(st.text(st.sampled_from("ab{}/"), min_size=1, max_size=8))
def test_a_topic_has_no_placeholder_by_chance(text: str) -> None:
    assert Template.parse(plain_topic(text)).fixed == text


def test_names_that_no_policy_can_speak_of() -> None:
    assert unspeakable("user", "mary jane") is None
    assert unspeakable("client", "a@b") is None
    assert unspeakable("role", "a@b")
    for name in ("", " a", "*", "a@b", "a\nb", "x" * 70_000):
        assert unspeakable("user", name)


def test_a_name_that_can_be_spoken_of_is_accepted() -> None:
    name = "it's {a} ${b}: #+/ü"
    assert unspeakable("user", name) is None
    policy = ImportedPolicy(id="p", subject=f"user:{name}", topic="a", action=("read",))
    text = 'node: {name: x}\nlisteners: [{url: "mqtt://127.0.0.1:1883"}]\n'
    config = parse(text + to_yaml(Imported(policies=(policy,), users={name: {}}), "f"), "x.yaml")
    assert list(config.directory.users) == [name]
    assert not any("unknown" in warning for _, warning in config.warnings())
