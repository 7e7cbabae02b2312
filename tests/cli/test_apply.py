"""`tidegate apply`: a node gets what a file declares, and the second time nothing happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.administering import Administered, administered

DECLARED = """\
directory:
  roles:
    coach2: {attributes: {shift: morning}}
  users:
    zoe: {password: "plain:secret", roles: [coach2]}
policies:
  - {id: gym2, subject: "role:coach2", topic: "gym2/#", action: read}
  - {id: gym3, subject: "*", topic: "gym3/#", action: read}
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administered]:
    with administered(tmp_path_factory.mktemp("apply")) as found:
        yield found


def test_a_dry_run_makes_nothing(admin: Administered, tmp_path: Path) -> None:
    file = tmp_path / "declared.yaml"
    file.write_text(DECLARED)
    tried = admin.done("apply", file, "--dry-run")
    assert "roles/coach2 would be made" in tried
    assert "secret" not in tried
    assert all(each["id"] == "p1" for each in admin.said("policy", "list")["items"])


def test_twice_changes_nothing(admin: Administered, tmp_path: Path) -> None:
    file = tmp_path / "declared.yaml"
    file.write_text(DECLARED)
    made = admin.said("apply", file)
    assert [(each["document"], each["what"]) for each in made["items"]] == [
        ("roles/coach2", "made"),
        ("users/zoe", "made"),
        ("policies/gym2", "made"),
        ("policies/gym3", "made"),
    ]
    assert "secret" not in str(made)
    again = admin.said("apply", file)
    assert {each["what"] for each in again["items"]} == {"unchanged"}

    file.write_text(DECLARED.replace("gym3/#", "gym3/+").replace("roles: [coach2]", "roles: []"))
    tried = admin.said("apply", file, "--dry-run")
    changed = {each["document"]: each["differences"] for each in tried["items"] if each["what"] == "changed"}
    assert changed["policies/gym3"] == {"topic": ["gym3/#", "gym3/+"]}
    assert admin.said("policy", "show", "gym3")["value"]["topic"] == "gym3/#"
    admin.done("apply", file)
    assert admin.said("policy", "show", "gym3")["value"]["topic"] == "gym3/+"

    file.write_text('policies: [{id: gym2, subject: "role:coach2", topic: "gym2/#", action: read}]')
    pruned = admin.said("apply", file, "--prune")
    assert [each["document"] for each in pruned["items"] if each["what"] == "removed"] == ["policies/gym3"]
    assert admin.said("user", "show", "zoe")["id"] == "zoe"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("listeners: []", "`listeners` cannot be applied"),
        ("policies: [{topic: a}]", "an entry of `policies` has no `id`"),
        ("{}", "declares nothing"),
        ("- a", "the file must be a mapping"),
        ("policies: [{id: x, topic: a}]", "policy/x"),
    ],
)
def test_what_cannot_be_applied(admin: Administered, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "declared.yaml"
    file.write_text(text)
    refused = admin("apply", file)
    assert refused.code == 1
    assert told in refused.err
