"""The published schema and the reference page are what the model says, and cover all of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from config.samples import FULL, HEAD, WHOLE
from tidegate.config import ConfigErrors, markdown, parse, schema
from tidegate.config.tree import compose

REFERENCE = Path(__file__).parents[2] / "docs/reference"
STALE = "is not current; run `make reference`"


def test_the_published_schema_is_current() -> None:
    written = (REFERENCE / "tidegate.schema.json").read_text()
    assert json.loads(written) == schema(), STALE


def test_the_reference_page_is_current() -> None:
    assert (REFERENCE / "configuration.md").read_text() == markdown(), STALE


def test_every_key_is_described() -> None:
    made = schema()
    page = markdown()
    for section in (made, *made["$defs"].values()):
        for key, about in section.get("properties", {}).items():
            assert about.get("description") or "$ref" in about, key
            assert f"| `{key}` |" in page


def test_unknown_keys_are_errors_in_the_schema_too() -> None:
    made = schema()
    for name, section in made["$defs"].items():
        if section.get("type") == "object":
            assert section["additionalProperties"] is False, name


@pytest.mark.parametrize(
    ("section", "key", "default"),
    [
        ("Listener", "connect_timeout", "10s"),
        ("Listener", "max_packet", "1MiB"),
        ("Sys", "interval", "10s"),
        ("Audit", "keep", "30d"),
        ("Audit", "size", "1GiB"),
    ],
)
def test_defaults_are_written_as_people_write_them(section: str, key: str, default: str) -> None:
    assert schema()["$defs"][section]["properties"][key]["default"] == default
    assert f"`{default}`" in markdown()


def accepts(root: Any, rule: Any, value: Any) -> bool:
    """Whether a JSON schema accepts a value, as far as our schema uses the language."""
    if rule in (True, {}):
        return True
    if "$ref" in rule and not accepts(root, root["$defs"][rule["$ref"].rpartition("/")[2]], value):
        return False
    if "anyOf" in rule and not any(accepts(root, each, value) for each in rule["anyOf"]):
        return False
    if "oneOf" in rule and sum(accepts(root, each, value) for each in rule["oneOf"]) != 1:
        return False
    if ("enum" in rule and value not in rule["enum"]) or ("const" in rule and value != rule["const"]):
        return False
    if "type" in rule and not isinstance(value, TYPES[rule["type"]]):
        return False
    if isinstance(value, bool):
        return rule.get("type") not in ("integer", "number")
    if isinstance(value, int | float):
        return rule.get("minimum", value) <= value <= rule.get("maximum", value) and (
            value > rule.get("exclusiveMinimum", value - 1)
        )
    if isinstance(value, str):
        return re.search(rule.get("pattern", ""), value) is not None
    if isinstance(value, list):
        fits = rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value))
        return fits and all(accepts(root, rule.get("items", True), each) for each in value)
    if isinstance(value, dict):
        known, other = rule.get("properties", {}), rule.get("additionalProperties", True)
        return set(rule.get("required", ())) <= value.keys() and all(
            accepts(root, known[key], each) if key in known else other is not False and accepts(root, other, each)
            for key, each in value.items()
        )
    return True


TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": type(None),
}


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        FULL.replace("tls_min: 1.3", "tls_min: '1.3'").replace("retain: no", "retain: false"),
        HEAD + "policies: open\n",
        HEAD + "policies: [{subject: ['*'], topic: t, action: read, when: true, effect: deny}]\n",
        HEAD + "preferences: [{user: u, topic: t, keep: []}, {user: u, topic: t, keep: all}]\n",
        HEAD + "levels: {order: [plain, gold], define: {gold: s.trusted}}\n",
        HEAD + "tests: [{as: 'client:c', action: write, topic: t, payload: {a: [1]}, expect: allow,"
        " at: '2026-03-02T09:30:00', set: {s.level: tls}, properties: {a: b}, qos: 1, retain: true}]\n",
        HEAD + "audit: {keep: 5, size: 2000000, rate: 0.5}\nrecord: off\n",
        HEAD.replace("1'}", "1', scope: a}") + "scopes: {a: {}, b: {}}\nlinks: [{from: a, to: b, direction: in}]\n"
        "brokering: {allow: [[x, y]], default: {link: x, in: y}}\n",
        HEAD + "brokering: {preset: rbac, bus: plant, roles: {op: {pub: [a]}}}\nflows: {paths: true}\n",
        HEAD + "directory: {clients: {c: {scopes: [main]}}}\n",
    ],
)
def test_the_schema_accepts_what_the_loader_accepts(text: str) -> None:
    parse(text, "f.yaml", variables={})
    made = schema()
    data = compose(text, "f.yaml", {})[0].data()
    assert accepts(made, made, data)
    assert not accepts(made, made, {**data, "polices": []})


@pytest.mark.parametrize(
    "more",
    [
        "policies: closed\n",
        "policies: [{subject: [], topic: t, action: read}]\n",
        "policies: [{topic: t, action: read}]\n",
        "policies: [{subject: '*', topic: t, action: reed}]\n",
        "views: [{topic: t, for: '*', keep: some}]\n",
        "tests: [{as: 'client:c', action: write, topic: t, expect: allow, qos: 3}]\n",
        "limits: {held: -1}\n",
        "trust: {by: name, accept: []}\n",
        "links: [{from: main}]\n",
        "links: [{from: main, to: x, share: [{topic: t, direction: up}]}]\n",
        "flows: {forbid: 'client:a -> client:b'}\n",
        "directory: {clients: {c: {scopes: []}}}\n",
    ],
)
def test_it_refuses_what_can_be_refused_without_reading_texts(more: str) -> None:
    with pytest.raises(ConfigErrors):
        parse(HEAD + more, "f.yaml", variables={})
    made = schema()
    assert not accepts(made, made, compose(HEAD + more, "f.yaml", {})[0].data())
