"""Rules of the pipeline of a real node, from the command line: over HTTP, as the processes really run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.administering import CONFIGURATION, Administered, administered

PIPELINE = 'pipeline: {ingest: ["raw/#"], rules: rules.yaml}\n'
RULES = """version: 1
sources:
  - {id: filed, topic: raw/filed, values: [{name: t, at: /t, unit: C}]}
"""
MORE = """
sources:
  - {id: thermo, topic: raw/thermo, values: [{name: t, at: /t, unit: F, to: C}]}
scores:
  - {id: fresh, dimension: timeliness, check: age_under, args: {good: 2s, bad: 60s}}
"""
RULE = ("pipeline", "rule")


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administered]:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "rules.yaml").write_text(RULES)
    with administered(folder, CONFIGURATION + PIPELINE) as found:
        yield found


def test_the_life_of_rules(admin: Administered, tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    file.write_text(MORE)
    tried = admin(*RULE, "set", "--file", file, "--dry-run")
    assert tried.code == 0, tried
    assert re.search(
        r"^✓ rule thermo would be set, and nothing was changed; rules \w{12} → \w{12}: thermo added$",
        tried.out,
        re.MULTILINE,
    )
    assert "Not covered: what becomes of records" in tried.err
    assert [each["id"] for each in admin.said(*RULE, "list")["items"]] == ["filed"]

    made = admin.done(*RULE, "set", "--file", file, "--why", "new sensors")
    assert re.fullmatch(r"✓ rule thermo set, version \d+\n✓ rule fresh set, version \d+\n", made)
    shown = admin.done(*RULE, "list")
    assert re.search(r"^\s*filed\s+source\s+.*file", shown, re.MULTILINE)
    assert re.search(r"^\s*fresh\s+score\s+.*api", shown, re.MULTILINE)
    assert admin.said(*RULE, "show", "thermo")["why"] == "new sensors"

    changed = MORE.replace("raw/thermo", "raw/thermo/+")
    admin.done(*RULE, "set", "--file", "-", stdin=changed)
    assert admin.said(*RULE, "show", "thermo")["value"]["source"]["topic"] == "raw/thermo/+"
    assert len(admin.said(*RULE, "history", "thermo")["items"]) == 2
    assert "rule thermo would be what it was before change" in admin.done(*RULE, "revert", "thermo", "--dry-run")
    assert "is what it was before change" in admin.done(*RULE, "revert", "thermo")
    assert admin.said(*RULE, "show", "thermo")["value"]["source"]["topic"] == "raw/thermo"

    assert "fresh removed" in admin.done(*RULE, "remove", "fresh", "--dry-run")
    assert admin.done(*RULE, "remove", "fresh") == "✓ rule fresh removed\n"
    admin.done(*RULE, "remove", "thermo")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sources: [{id: filed, topic: a, values: [{name: t, at: /t}]}]", "pipeline/filed stands in the rules file"),
        ("sources: [{id: bad, topic: a, values: [{name: t, at: t}]}]", "must be a JSON pointer"),
        ("scores: [{id: bad, dimension: speed, check: x}]", "pipeline/bad: "),
    ],
)
def test_what_the_node_refuses(admin: Administered, text: str, said: str) -> None:
    assert said in admin.refused(*RULE, "set", "--file", "-", stdin=text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policies: []", "standard input: is no rules file; write `sources`, `scores`, `topics`"),
        ("sources: [{topic: a}]", "standard input: an entry of `sources` has no `id`"),
        ("version: 1", "standard input: holds no rules"),
        ("sources: [", "standard input:2: not valid YAML"),
        ("- 5", "standard input"),
    ],
)
def test_files_that_are_none(admin: Administered, text: str, said: str) -> None:
    ran = admin(*RULE, "set", "--file", "-", stdin=text)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(said)


def test_of_many_one_is_refused(admin: Administered) -> None:
    many = {"sources": [{"id": "good", "topic": "a", "values": [{"name": "t", "at": "/t"}]}, {"id": "bad"}]}
    ran = admin(*RULE, "set", "--file", "-", stdin=json.dumps(many))
    assert ran.code == 1
    assert "rule good set" in ran.out
    assert "entry 2 of 2 was refused, and those after it were not tried" in ran.err
    admin.done(*RULE, "remove", "good")


def test_how_it_is_doing(admin: Administered) -> None:
    """The process that speaks HTTP knows that there is a pipeline."""
    import urllib.request

    request = urllib.request.Request(f"{admin.url}/pipeline", headers={"Authorization": f"Bearer {admin.token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        found = json.loads(answer.read())
    assert (found["state"], found["lag"]) == ("never", 0)
    assert found["readers"]["pipeline"] == {"next": 0, "lag": 0}
