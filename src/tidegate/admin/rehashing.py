"""Passwords in the form of another broker become argon2 hashes once their users have logged in.

Only users who were made over HTTP: what stands in the file belongs to its owner, and is not written by the node. All
that come while one change is made are made together in the next one, so that a night's restart is not a change for
each device.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import structlog

from tidegate.admin.documents import PASSWORD, RegistryState, RequestedChange, content
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.admin.administration import AdministeredNode, Administration
    from tidegate.config import Source

BOUND: Final = 500  # users that are changed together

log = structlog.get_logger("tidegate.node")


class Rehashing:
    """What waits to be stored, and the task that stores it. All methods belong to the loop thread."""

    def __init__(self, administration: Administration, host: AdministeredNode) -> None:
        self._administration = administration
        self._host = host
        self._waiting: dict[str, tuple[str, str]] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, user: str, stored: str, hashed: str) -> None:
        """A password of Mosquitto's was right; `hashed` is its argon2 hash."""
        body = self._administration.document_body("user", user)
        if body is None or body.get(PASSWORD) != stored:
            return
        self._host.authentication.password_changes.rehashed(user, stored, hashed)
        self._waiting[user] = (stored, hashed)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._store())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _store(self) -> None:
        while self._waiting:
            users = list(self._waiting)[:BOUND]
            wanted = {user: self._waiting.pop(user) for user in users}

            def draft(
                state: RegistryState, _: Source, wanted: dict[str, tuple[str, str]] = wanted
            ) -> Sequence[RequestedChange]:
                return [change for user, pair in wanted.items() if (change := _changed(state, user, *pair)) is not None]

            about = [("user", user) for user in wanted]
            why = "the same password, as an argon2id hash"
            try:
                await self._administration.apply(draft, by="node", why=why, action="rehash", about=about)
            except TidegateError as error:  # the old hash still counts, and the next login tries again
                log.warning("passwords could not be stored as argon2id hashes", users=len(wanted), reason=str(error))


def _changed(state: RegistryState, user: str, stored: str, hashed: str) -> RequestedChange | None:
    document = state.documents.get(("user", user))
    if document is None or content(document.body).get(PASSWORD) != stored:
        return None
    body = {**content(document.body), PASSWORD: hashed}
    return RequestedChange(kind="user", id=user, body=body, expected=document.sequence)
