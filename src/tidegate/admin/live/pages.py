"""Pages of what there is, made in slices: however much there is, nobody else waits for longer than one slice.

- A page says where the next one begins by what stood last on it, so that what comes and goes in between disturbs
  nothing: what is there all the time is listed exactly once.
- One page is made at a time, and one slice of it in a turn of the loop, however many callers ask.
- A page ends after `LOOKED` looks, also if it is not full.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tidegate.errors import Problem
from tidegate.scope import Scope
from tidegate.scope.sessions import FIRST, Place
from tidegate.session import Session

SLICE: Final = 100
"""Steps in a slice, about two microseconds each: a session that is passed over is one."""
ROW: Final = 4
"""Steps that a row takes."""
LOOKED: Final = 50_000
"""Steps of one page."""

Row = dict[str, Any]
Cursor = list[str]
Rows = Callable[[Session, str | None], Iterator[tuple[str, Row | None]]]
"""The rows of a session behind the one of that name; None: something that is passed over."""


@dataclass(slots=True)
class Position:
    """Behind which session of which scope a page goes on."""

    scope: str = ""
    place: Place = FIRST
    within: str | None = None
    """Behind what of that session: it is not done."""

    @classmethod
    def read(cls, after: str | None) -> Position:
        if after is None:
            return cls()
        scope, client, principal, *within = read_cursor(after, 3, 4)
        return cls(scope, (client, principal), within[0] if within else None)

    def write(self) -> str:
        return write_cursor(self.scope, *self.place, *(() if self.within is None else (self.within,)))


def write_cursor(*parts: str) -> str:
    return urlsafe_b64encode(orjson.dumps(parts)).rstrip(b"=").decode()


def read_cursor(after: str, least: int, most: int) -> Cursor:
    """What a page said is next. Problem if no page has said so."""
    try:
        parts = orjson.loads(urlsafe_b64decode(after + "=" * (-len(after) % 4)))
    except ValueError:
        parts = None
    if (
        not isinstance(parts, list)
        or not least <= len(parts) <= most
        or not all(isinstance(each, str) for each in parts)
    ):
        raise Problem("`after` is not the `next` of a page; ask for the first page again", problem="invalid")
    return parts


class Pages:
    """Makes pages of the sessions of a node."""

    def __init__(self, scopes: Mapping[str, Scope]) -> None:
        self._scopes = scopes
        self._turn = asyncio.Lock()

    def wanted(self, scope: str | None) -> list[str]:
        """The scopes that are meant, in the order of their names. Problem if there is none of that name."""
        if scope is None:
            return sorted(self._scopes)
        if scope not in self._scopes:
            raise Problem(f"there is no scope {scope[:200]!r}; there is {', '.join(self._scopes)}", problem="unknown")
        return [scope]

    async def page(self, rows: Rows, *, scope: str | None, after: str | None, limit: int) -> Row:
        """`rows`: those of a session, with what each is called there, behind the one of that name, in order."""
        position = Position.read(after)
        page = _Page(rows, limit, position)
        names = self.wanted(scope)
        async with self._turn:
            for name in names:
                if name < position.scope:
                    continue
                if name > position.scope:
                    page.position = Position(name)
                while True:
                    await asyncio.sleep(0)
                    there = self._scopes.get(name)
                    if there is None or page.slice(there):
                        break
                    if page.full or page.looked >= LOOKED:
                        return {"items": page.items, "next": page.position.write()}
        return {"items": page.items, "next": None}


class _Page:
    """A page that is being made, and how far it is."""

    def __init__(self, rows: Rows, limit: int, position: Position) -> None:
        self.items: list[Row] = []
        self.full = False
        """There is more than fits."""
        self.looked = 0
        self.position = position
        self._rows = rows
        self._limit = limit

    def slice(self, scope: Scope) -> bool:
        """A slice of a scope; True if that was the rest of it."""
        position, steps = self.position, 0
        inclusive = position.within is not None
        found = scope.sessions.after(position.place, SLICE, inclusive=inclusive)
        for place, session in found:
            steps += 1
            for called, row in self._rows(session, position.within if place == position.place else None):
                steps += 1 if row is None else ROW
                if row is not None and len(self.items) == self._limit:
                    self.full = True
                elif row is not None:
                    self.items.append(row)
                if self.full or steps >= SLICE:
                    self.looked += steps
                    if not self.full:
                        self.position = Position(scope.name, place, called)
                    return False
                self.position = Position(scope.name, place, called)
            self.position = Position(scope.name, place)
        self.looked += steps
        return len(found) < SLICE
