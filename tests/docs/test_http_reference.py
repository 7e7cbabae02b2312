"""docs/reference/http.md names every route, what it does, and who may use it."""

from __future__ import annotations

import re

from docs.http_reference import PAGE, page, summaries
from tidegate.admin.roles import Role
from tidegate.api.access import ALLOWED, PUBLIC
from tidegate.api.problems import Kind


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run `python tests/docs/http_reference.py --update`"


def test_the_table_is_what_decides() -> None:
    rows = re.findall(r"^\| `([A-Z]+) (\S+)` \| .+ \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert {(method, path) for method, path, _ in rows} == ALLOWED.keys()
    for method, path, roles in rows:
        for role in Role:
            allowed = roles in ("anybody", "any token") or f"`{role.value}`" in roles
            listed = ALLOWED[method, path]
            assert (listed is PUBLIC or role in listed) == allowed, (method, path, role)


def test_every_described_route_has_a_summary() -> None:
    found = summaries()
    assert found.keys() == ALLOWED.keys()
    assert all(found.values())


def test_every_status_is_explained() -> None:
    explained = set(re.findall(r"\b[245]\d\d\b", PAGE.read_text()))
    assert {str(kind.status) for kind in Kind} - {"405", "500"} <= explained
