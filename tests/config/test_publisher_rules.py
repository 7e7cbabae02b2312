"""`rules` in the configuration: what publishers may say themselves."""

from __future__ import annotations

import pytest

from tidegate.config import parse
from tidegate.config.problems import ConfigErrors

BASE = """version: 1
node: {name: n}
listeners: [{url: "mqtt://127.0.0.1:1883", anonymous: true}]
policies: open
"""


def test_filters_become_the_ceiling_and_without_the_section_there_is_none() -> None:
    assert parse(BASE, "t.yaml").built.rules.ceiling == ()
    config = parse(BASE + 'rules: {allow: ["+/performance/#", angina]}\n', "t.yaml")
    assert config.built.rules.ceiling == ("+/performance/#", "angina")
    assert config.built.policy_version != parse(BASE, "t.yaml").built.policy_version


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("{}", "`rules.allow` is missing"),
        ("{allow: []}", "`rules.allow` must not be empty"),
        ('{allow: ["x/{s.user}"]}', "has a placeholder"),
        ('{allow: ["a/#/b"]}', "is no topic filter"),
        ("{allow: [a], deny: [b]}", "unknown key `deny`"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(written: str, why: str) -> None:
    with pytest.raises(ConfigErrors) as found:
        parse(BASE + f"rules: {written}\n", "t.yaml")
    assert "t.yaml:5" in str(found.value)
    assert why in str(found.value)
