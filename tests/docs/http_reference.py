"""Writes the routes in docs/reference/http.md from the application: `python tests/docs/http_reference.py --update`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tidegate.admin.roles import Role
from tidegate.api.access import ALLOWED, PUBLIC
from tidegate.api.app import Application
from tidegate.node.http import Serving

PAGE: Final = Path(__file__).parents[2] / "docs/reference/http.md"
MARK: Final = "<!-- made by `python tests/docs/http_reference.py --update` -->\n"


def summaries() -> dict[tuple[str, str], str]:
    """What every route does, as `/docs` says it."""
    serving = Serving(control=Path("nowhere"), data=None, rate=1.0, address_rate=1.0, max_body=1024, timeout=1.0)
    made = Application(serving)
    paths = made.fastapi.openapi()["paths"]
    return {(method.upper(), path): said["summary"] for path, ways in paths.items() for method, said in ways.items()}


def who(roles: frozenset[Role]) -> str:
    if roles is PUBLIC:
        return "anybody"
    if roles == frozenset(Role):
        return "any token"
    return ", ".join(f"`{role.value}`" for role in Role if role in roles)


def table() -> str:
    said = summaries()
    lines = ["| route | does | role |", "|---|---|---|"]
    for (method, path), roles in sorted(ALLOWED.items(), key=lambda entry: (entry[0][1], entry[0][0])):
        lines.append(f"| `{method} {path}` | {said[method, path]} | {who(roles)} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page as it should be: what people wrote, and the table."""
    return PAGE.read_text().partition(MARK)[0] + MARK + "\n" + table()


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
