"""The published schema and the reference page are what the model says, and cover all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.config import markdown, schema

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
    [("Listener", "connect_timeout", "10s"), ("Listener", "max_packet", "1MiB"), ("Sys", "interval", "10s")],
)
def test_defaults_are_written_as_people_write_them(section: str, key: str, default: str) -> None:
    assert schema()["$defs"][section]["properties"][key]["default"] == default
    assert f"`{default}`" in markdown()
