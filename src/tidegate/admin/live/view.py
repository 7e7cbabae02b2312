"""What there is now, for whoever may look, and the few things that end some of it; each of these is audited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any, Final, Protocol

from tidegate import topics
from tidegate.admin.live import commands as live
from tidegate.admin.live.pages import Pages, read_cursor, write_cursor
from tidegate.admin.live.rows import Row, client_row, retained_row, session_row, subscription_rows
from tidegate.audit.auditor import Auditor
from tidegate.audit.query import Query
from tidegate.errors import Problem
from tidegate.net.control_command import SignedCommand, typed
from tidegate.net.control_socket import Command
from tidegate.routing.topic_names import Branch
from tidegate.scope import Scope
from tidegate.session import Session, Site
from tidegate.store.journal.rows import AuditRow, Kind
from tidegate.topics import share
from tidegate.wire import Reason

DENIALS: Final = 10
"""Of a client, the last ones that are shown."""
SHOWN: Final = 100
"""Subscriptions that are shown with a client; `subscription_list` has all."""
BRANCHES: Final = 20
"""Of the tree of topics, in a slice."""
NAMESAKES: Final = 20
"""Sessions with one client identifier that are looked at."""
LONGEST: Final = 500  # characters of what is written down


class ViewedNode(Protocol):
    """What is needed of a node."""

    scopes: dict[str, Scope]
    site: Site
    audit: Auditor

    async def stored(self) -> None:
        """Until everything noted so far is on the disk."""


class LiveView:
    """The clients, sessions, subscriptions and retained messages of one node."""

    def __init__(self, node: ViewedNode) -> None:
        self._node = node
        self._pages = Pages(node.scopes)

    def commands(self) -> dict[str, Command]:
        return dict(
            (
                typed(live.ListClients, self.clients),
                typed(live.ListSessions, self.sessions),
                typed(live.ListSubscriptions, self.subscriptions),
                typed(live.ListTopics, self.topics),
                typed(live.ShowClient, self.client),
                typed(live.ShowTopic, self.topic),
                typed(live.DisconnectClient, self.disconnect),
                typed(live.DropSession, self.drop),
                typed(live.ClearTopic, self.clear),
            )
        )

    # -- looking ---------------------------------------------------------------------------------------------------

    async def clients(self, command: live.ListClients) -> Row:
        def rows(session: Session, within: str | None) -> Iterator[tuple[str, Row | None]]:
            if within is None and session.connection is not None and _is_of(session, command.user):
                yield "", client_row(session)

        return await self._pages.page(rows, scope=command.scope, after=command.after, limit=command.limit)

    async def sessions(self, command: live.ListSessions) -> Row:
        def rows(session: Session, within: str | None) -> Iterator[tuple[str, Row | None]]:
            wanted = _is_of(session, command.user) and not (command.away and session.connection is not None)
            if within is None and wanted:
                yield "", session_row(session)

        return await self._pages.page(rows, scope=command.scope, after=command.after, limit=command.limit)

    async def subscriptions(self, command: live.ListSubscriptions) -> Row:
        topic = command.topic
        if topic is not None and not topics.valid_topic(topic):
            raise Problem(f"{topic[:200]!r} is no topic; give one without wildcards", problem="invalid")

        def rows(session: Session, within: str | None) -> Iterator[tuple[str, Row | None]]:
            if not _is_of(session, command.user) or command.client not in (None, session.client):
                return
            for filter, row in subscription_rows(session, within):
                wanted = topic is None or topics.matches(share(filter)[1], topic)
                yield filter, row if wanted else None

        if command.client is not None:  # one client is found without a look at the others
            return await self._of_client(command, command.client, rows)
        return await self._pages.page(rows, scope=command.scope, after=command.after, limit=command.limit)

    async def _of_client(
        self,
        command: live.ListSubscriptions,
        client: str,
        rows: Callable[[Session, str | None], Iterator[tuple[str, Row | None]]],
    ) -> Row:
        position = ["", "", ""] if command.after is None else read_cursor(command.after, 3, 3)
        items: list[Row] = []
        for name, session in self._named(client, command.scope):
            place = [name, session.principal]
            if place < position[:2]:
                continue
            within = position[2] or None if place == position[:2] else None
            for filter, row in rows(session, within):
                if row is not None and len(items) == command.limit:
                    return {"items": items, "next": write_cursor(*position)}
                if row is not None:
                    items.append(row)
                position = [*place, filter]
        return {"items": items, "next": None}

    async def topics(self, command: live.ListTopics) -> Row:
        after = None if command.after is None else read_cursor(command.after, 2, 2)
        items: list[Row] = []
        for name in self._pages.wanted(command.scope):
            if after is not None and name < after[0]:
                continue
            behind = after[1] if after is not None and name == after[0] else None
            async for branch, row in self._branches(name, command.under, behind):
                if len(items) == command.limit:
                    return {"items": items, "next": write_cursor(items[-1]["scope"], items[-1]["topic"])}
                items.append({"topic": branch.topic, "scope": name, "below": branch.below, "retained": row})
        return {"items": items, "next": None}

    async def _branches(
        self, name: str, under: str | None, behind: str | None
    ) -> AsyncIterator[tuple[Branch, Row | None]]:
        """The branches below a name in one scope, in slices: they may come and go in between."""
        while (scope := self._node.scopes.get(name)) is not None:
            branches = list(islice(scope.retained.names.below(under, behind), BRANCHES))
            messages = [scope.retained.get(each.topic) if each.here else None for each in branches]
            for branch, message in zip(branches, messages, strict=True):
                yield branch, None if message is None else retained_row(scope, message)
                behind = branch.topic
            if len(branches) < BRANCHES:
                return
            await asyncio.sleep(0)

    async def topic(self, command: live.ShowTopic) -> Row:
        """A retained message in each scope where there is one."""
        found = [
            retained_row(self._node.scopes[name], message)
            for name in self._pages.wanted(command.scope)
            if (message := self._node.scopes[name].retained.get(command.topic)) is not None
        ]
        if not found:
            raise Problem(f"no message is retained under {command.topic[:200]!r}; list them", problem="unknown")
        return {"topic": command.topic, "retained": found}

    async def client(self, command: live.ShowClient) -> Row:
        """One client or session, its first subscriptions, and what was denied to it lately."""
        connected = command.connected
        session = self._one(command.client, command.scope, command.user, connected=connected)
        row = session_row(session) if session.connection is None else {**session_row(session), **client_row(session)}
        row["roles"], row["groups"] = list(session.subject.roles), list(session.subject.groups)
        row["items"] = [shown for _, shown in islice(subscription_rows(session, None), SHOWN)]
        query = Query(kinds=frozenset((Kind.DENY.value,)), client=session.client, user=session.subject.user)
        await self._node.audit.counted()
        denials = [AuditRow(*each) async for piece in self._node.audit.sink.stream(query, DENIALS) for each in piece]
        names = ("at", "action", "topic", "stage", "rule", "count", "detail")
        row["denials"] = [{name: getattr(each, name) for name in names} for each in reversed(denials)]
        return row

    # -- ending ----------------------------------------------------------------------------------------------------

    async def disconnect(self, command: live.DisconnectClient) -> Row:
        session = self._one(command.client, command.scope, command.user, connected=True)
        row = client_row(session)

        def do() -> None:
            assert session.connection is not None
            session.connection.close(Reason.ADMINISTRATIVE_ACTION, "an administrator has ended this connection")

        return await self._done(command, "disconnect", session, row, do)

    async def drop(self, command: live.DropSession) -> Row:
        session = self._one(command.client, command.scope, command.user, connected=False)
        row = session_row(session)
        if row["kind"] != "client":
            text = f"{session.client[:200]} is a link to another node: remove the link, or disconnect it"
            raise Problem(text, problem="invalid")
        scope = self._node.scopes[session.home]

        def do() -> None:
            if session.connection is not None:
                session.connection.close(Reason.ADMINISTRATIVE_ACTION, "an administrator has ended this session")
            if scope.sessions.get((session.principal, session.client)) is session:  # it may have ended with that
                scope.lifetime.end(session)

        return await self._done(command, "drop", session, row, do)

    async def clear(self, command: live.ClearTopic) -> Row:
        topic, scopes, site = command.topic, self._node.scopes, self._node.site
        there = await self.topic(live.ShowTopic(topic=topic, scope=command.scope))
        places = [each["scope"] for each in there["retained"]]
        if not command.dry_run:
            site.open()
            for name in places:
                scopes[name].retained.drop(topic)
                self._audit(command, "clear", topic=topic, detail=f"retained message of scope {name}")
            await self._node.stored()
        return {"topic": topic, "scopes": places}

    async def _done(
        self, command: SignedCommand, action: str, session: Session, row: Row, do: Callable[[], None]
    ) -> Row:
        """Does it, unless it is only tried, and writes it down. The answer says what it was about."""
        if not command.dry_run:
            self._node.site.open()
            do()
            self._audit(command, action, session=session, detail=f"{session.subject.full_name} of scope {session.home}")
            await self._node.stored()
        return row

    def _audit(
        self,
        command: SignedCommand,
        action: str,
        *,
        detail: str,
        session: Session | None = None,
        topic: str | None = None,
    ) -> None:
        audit = self._node.audit
        detail = f"{detail}: {command.why}" if command.why else detail
        client = None if session is None else session.client
        columns: dict[str, Any] = {"user": command.by, "client": client, "action": action, "topic": topic}
        audit.sink.write(audit.log.row(Kind.CHANGE, **columns, detail=detail[:LONGEST]))

    # -- finding ---------------------------------------------------------------------------------------------------

    def _named(self, client: str, scope: str | None) -> Iterator[tuple[str, Session]]:
        for name in self._pages.wanted(scope):
            for session in self._node.scopes[name].sessions.named(client, NAMESAKES):
                yield name, session

    def _one(self, client: str, scope: str | None, user: str | None, *, connected: bool) -> Session:
        """The session that is meant. Problem if there is none, or more than one."""
        found = [
            (name, session)
            for name, session in self._named(client, scope)
            if _is_of(session, user) and not (connected and session.connection is None)
        ]
        if not found:
            what = "client of that identifier is connected" if connected else "session has that client identifier"
            raise Problem(f"no {what}: {client[:200]!r}; list them", problem="unknown")
        if len(found) > 1:
            each = ", ".join(f"user {session.subject.user or 'nobody'} in scope {name}" for name, session in found[:5])
            text = f"{len(found)} sessions have the client identifier {client[:200]!r} ({each}); say which with `user`"
            raise Problem(f"{text} or `scope`", problem="conflict")
        return found[0][1]


def _is_of(session: Session, user: str | None) -> bool:
    return user is None or session.subject.user == user
