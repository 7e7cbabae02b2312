"""What a node answers about somebody's own data: readers, deliveries, history, and all of it as one document.

Whoever asks may only ask about themselves: `permissions` says who that is. What takes long runs on a thread that looks
only. With `me: {names: roles}` nobody learns the names of others here, only their roles and how many they are.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from tidegate import topics
from tidegate.admin import slices
from tidegate.admin.documents import history_entry, own_group, owns
from tidegate.admin.live.rows import session_row, subscription_rows
from tidegate.admin.live.values import Values, told
from tidegate.admin.me import commands as me
from tidegate.admin.me.deliveries import Deliveries, Wanted
from tidegate.admin.me.people import Owned, OwnersNode, devices_of
from tidegate.config import Config, Record
from tidegate.config.me import Names
from tidegate.errors import Problem
from tidegate.explain.effects import publisher
from tidegate.explain.readers import ReaderClass, Readers
from tidegate.net.control_command import typed
from tidegate.net.control_socket import Command
from tidegate.policy.publisher_rules import ActiveRule
from tidegate.scope import Scope
from tidegate.scope.sessions import FIRST
from tidegate.session import Message, Subject

NAMED: Final = 1000
"""Names told of one class of readers."""
DAY: Final = 86400.0
KEPT: Final = 1000  # retained messages in an export
BYTES: Final = 4 << 20  # and bytes of them; as many of the lake
LAKE_ROWS: Final = 5000
SLICE: Final = 50  # sessions or messages looked at in a turn
_SHOWN: Final = ("roles", "groups", "attributes", "public_key")


class OwnData:
    """Answers people about themselves."""

    def __init__(self, node: OwnersNode, values: Values) -> None:
        self._node = node
        self._values = values

    def commands(self) -> dict[str, Command]:
        return dict(
            (
                typed(me.ListReaders, self.readers),
                typed(me.ListDeliveries, self.deliveries),
                typed(me.GetOwnHistory, self.history),
                typed(me.ListOwnRetained, self.retained),
                typed(me.ShowOwn, self.shown),
                typed(me.ExportOwn, self.export),
                typed(me.ListNotices, self.notices),
                typed(me.FollowNotices, self.follow_notices),
                typed(me.EraseOwn, self._node.own_data.erasures.ask),
                typed(me.ListOwnErasures, self._node.own_data.erasures.own),
                typed(me.ListErasures, self._node.own_data.erasures.listed),
                typed(me.DecideErasure, self._node.own_data.erasures.decide),
            )
        )

    # -- who can read --------------------------------------------------------------------------------------------------

    async def readers(self, command: me.ListReaders) -> dict[str, Any]:
        config, topic = self._node.config, command.topic
        if not topics.valid_topic(topic) or topic.startswith("$"):
            raise Problem(f"{topic[:200]!r} is no topic of yours; give one without wildcards", problem="invalid")
        owner = self._owner(config, command)
        active = self._node.realm.publishers.of(owner)
        speaking: Sequence[ActiveRule] = () if active is None else tuple(active.about(topic))
        asks = {command.user: command.identity}
        ask = partial(_readers, config, owner, topic, time.time(), speaking, asks)
        answer = await self._node.run_query(ask)
        return {**answer, "rules": self._node.audit.version}

    def _owner(self, config: Config, command: me.ListReaders) -> Subject:
        """The caller, or a device of theirs, as a publisher."""
        user, identity = command.user, command.identity
        if command.device is not None:
            if command.device not in devices_of(config, user):
                raise Problem(f"{command.device[:200]!r} is no device of yours; leave `device` out", problem="unknown")
            user, identity = command.device, self._node.identities.owner(command.device)
        if config.built.directory.known(user=user, client=command.client).impostor:
            raise Problem(f"{command.client!r} is no client of yours; leave `client` out", problem="unknown")
        return publisher(config, user, identity, command.client)

    # -- who has read --------------------------------------------------------------------------------------------------

    async def deliveries(self, command: me.ListDeliveries) -> dict[str, Any]:
        """Counts of what was delivered, if the node writes that down."""
        if command.topic is not None and not topics.valid_filter(command.topic):
            raise Problem(f"{command.topic[:200]!r} is no topic filter", problem="invalid")
        config, now = self._node.config, time.time()
        recorded = config.record is not Record.OFF
        since = max(now - DAY if command.since is None else command.since, self._since(command.identity))
        wanted = Wanted.of(
            (command.user, *devices_of(config, command.user)),
            config.directory.users,
            since=since,
            until=now + 1 if command.until is None else command.until,
            topic=command.topic,
        )
        found = Deliveries(wanted, single=command.single)
        await self._node.audit.written()
        journal = config.node.data is not None and self._node.audit.sink.journal is not None
        if journal and config.node.data is not None:
            await self._node.run_query(partial(found.read, config.node.data))
        else:
            rows = self._node.audit.sink.recent()
            await slices.each(self._node.site, len(rows), lambda index: found.take(rows[index]))
        items = found.shown(command.limit)
        if config.me.names is Names.ROLES:
            items = [_by_role(config, item) for item in items]
        return {"recorded": recorded, "since": since, "complete": found.complete, "items": items}

    def _since(self, identity: str) -> float:
        """Since when somebody has their name: what was published under it before is not theirs."""
        record = self._node.identities.table.record(identity) if identity else None
        return 0.0 if record is None else record.since

    # -- what they have said -------------------------------------------------------------------------------------------

    async def history(self, command: me.GetOwnHistory) -> dict[str, Any]:
        return {"items": await self._history(command.user, command.identity, command.limit)}

    async def _history(self, user: str, identity: str, limit: int) -> list[dict[str, Any]]:
        administration = self._node.administration
        if administration is None:
            return []
        group = own_group(identity or user)
        entries = await administration.threads.request(administration.registry.histories, "preference", group)
        shown = [{"id": each.id, **history_entry(each)} for each in entries]
        own = [each for each in shown if each["body"] is None or owns(each["body"], user, identity)]
        return sorted(own, key=lambda each: each["sequence"], reverse=True)[:limit]

    # -- what they are told --------------------------------------------------------------------------------------------

    async def notices(self, command: me.ListNotices) -> dict[str, Any]:
        """When somebody new could read what is theirs, the newest first; what changed before they asked is in it."""
        notices = self._node.own_data.notices
        complete = await notices.settled()
        return {"complete": complete, "items": notices.of(command.user, command.identity, command.limit)}

    def follow_notices(self, command: me.FollowNotices) -> AsyncIterator[list[dict[str, Any]]]:
        return self._node.own_data.notices.follow(command.user, command.identity, command.since)

    # -- what is kept of it --------------------------------------------------------------------------------------------

    def _own(self, user: str, identity: str) -> dict[str | None, str]:
        """They themselves and their devices, by name, with the id of each."""
        devices = devices_of(self._node.config, user)
        return {user: identity, **{each: self._node.identities.owner(each) for each in devices}}

    async def retained(self, command: me.ListOwnRetained) -> dict[str, Any]:
        """Topics under which something of theirs is retained, without what it says."""
        found: dict[str, float] = {}
        async for _, message in self._theirs(self._own(command.user, command.identity)):
            found[message.topic] = max(message.published, found.get(message.topic, 0.0))
            if len(found) > command.limit:
                break
        items = [{"topic": topic, "published": at} for topic, at in sorted(found.items())]
        return {"complete": len(items) <= command.limit, "items": items[: command.limit]}

    async def shown(self, command: me.ShowOwn) -> dict[str, Any]:
        """The newest message of theirs under each topic, and as which of these people would be sent it."""
        config, items = self._node.config, []
        own = self._own(command.user, command.identity)
        if command.readers and config.me.names is not Names.USERS:
            raise Problem("names of others are not told here; leave `readers` out", problem="forbidden")
        readers = [each for each in command.readers if each in config.directory.users]
        for topic in command.topics:
            for scope in list(self._node.scopes.values()):
                message = scope.retained.get(topic)
                if message is None or not Owned(scope, own)(message):
                    continue
                self._node.site.open()
                sent = {each: self._values.would_be_sent(scope, each, message, command.level) for each in readers}
                items.append({**told(message), "scope": scope.name, "sent": sent})
                await asyncio.sleep(0)
        return {"items": items, "rules": self._node.audit.version}

    async def _theirs(self, own: Mapping[str | None, str]) -> AsyncIterator[tuple[Scope, Message]]:
        """Retained messages that are theirs alone, in slices: what comes from several is nobody's to take away."""
        for scope in list(self._node.scopes.values()):
            last, theirs = "", Owned(scope, own)
            while names := scope.retained.names.after(last, SLICE):
                for message in filter(None, map(scope.retained.get, names)):
                    if theirs(message):
                        yield scope, message
                last = names[-1]
                await asyncio.sleep(0)

    # -- everything ----------------------------------------------------------------------------------------------------

    async def export(self, command: me.ExportOwn) -> dict[str, Any]:
        """Everything that this node has of somebody, and what the pipeline has kept."""
        config, user, identity = self._node.config, command.user, command.identity
        own = self._own(user, identity)
        entry = config.directory.users.get(user)
        person = {} if entry is None else entry.model_dump(mode="json", exclude_defaults=True)
        devices = devices_of(config, user)
        clients = {
            name: each.model_dump(mode="json", exclude_defaults=True)
            for name, each in config.directory.clients.items()
            if each.user in own
        }
        preferences = [
            each.model_dump(mode="json", exclude_defaults=True)
            for each in config.preferences
            if owns(each.model_dump(mode="json"), user, identity)
        ]
        administration = self._node.administration
        tokens = [] if administration is None else administration.tokens.list()
        deliveries = await self.deliveries(me.ListDeliveries(user=user, identity=identity, since=0.0, limit=me.MOST))
        since = {name: self._since(each) for name, each in own.items() if name is not None}
        lake = await self._node.own_data.erasures.read_lake(config, since, LAKE_ROWS, BYTES)
        return {
            "user": user,
            "identity": identity or None,
            "since": self._since(identity) or None,
            "person": {name: value for name, value in person.items() if name in _SHOWN},
            "clients": clients,
            "devices": list(devices),
            "preferences": preferences,
            "history": await self._history(user, identity, me.MOST),
            "tokens": [_token(each) for each in tokens if identity and each["identity"] == identity],
            "sessions": await self._sessions(own),
            "retained": await self._retained(own),
            "deliveries": deliveries,
            "lake": lake,
            "notices": self._node.own_data.notices.of(user, identity, me.MOST),
        }

    async def _sessions(self, own: Mapping[str | None, str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for scope in list(self._node.scopes.values()):
            place = FIRST
            while sessions := scope.sessions.after(place, SLICE):
                for _, session in sessions:
                    subject = session.subject
                    here = subject.domain == scope.gate.rules.domain
                    if here and subject.user in own and subject.identity in ("", own[subject.user]):
                        filters = [row["filter"] for _, row in islice(subscription_rows(session, None), NAMED)]
                        found.append({**session_row(session), "filters": filters})
                place = sessions[-1][0]
                await asyncio.sleep(0)
        return found

    async def _retained(self, own: Mapping[str | None, str]) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        size, complete = 0, True
        async for scope, message in self._theirs(own):
            owner = scope.gate.attributes.context(message).subject
            if len(found) == KEPT or size + message.size > BYTES:
                complete = False
                continue
            size += message.size
            found.append(
                {
                    "topic": message.topic,
                    "scope": scope.name,
                    "published": message.published,
                    "user": owner.user,
                    "client": owner.client,
                    "payload": b64encode(message.payload).decode(),
                }
            )
        return {"complete": complete, "items": found}


def _readers(
    config: Config,
    owner: Subject,
    topic: str,
    now: float,
    speaking: Sequence[ActiveRule],
    asks: dict[str, str],
) -> dict[str, Any]:
    """The answer for one topic. Runs on a thread."""
    identities = {owner.user or "": owner.identity} | asks
    asked = Readers.of_config(config, owner, topic, now, publisher_rules=speaking, identities=identities)
    classes = asked.classes()
    return {"topic": topic, "readers": [_class(config, each) for each in classes]}


def _class(config: Config, found: ReaderClass) -> dict[str, Any]:
    readable = found.readable
    roles = Counter(role for user in found.users if user is not None for role in config.directory.users[user].roles)
    shown: dict[str, Any] = {
        "can": readable.can.value,
        "when": readable.when,
        "parts": None if readable.parts is None else list(readable.parts),
        "rules": list(readable.rules),
        "count": len(found.users) + len(found.clients) - (None in found.users),
        "roles": dict(sorted(roles.items())),
        "anonymous": None in found.users,
        "users": None,
        "clients": None,
        "others": _others(config, found.others),
    }
    if config.me.names is Names.USERS:
        shown["users"] = [user for user in found.users if user is not None][:NAMED]
        shown["clients"] = list(found.clients)[:NAMED]
    return shown


def _others(config: Config, others: Sequence[str]) -> list[str]:
    return [each for each in others if config.me.names is Names.USERS or not each.startswith("user:")][:NAMED]


def _by_role(config: Config, item: dict[str, Any]) -> dict[str, Any]:
    """A delivery without the name of who received it."""
    user = config.directory.users.get(item["user"] or "")
    return {**item, "user": None, "client": None, "roles": [] if user is None else list(user.roles)}


def _token(token: dict[str, Any]) -> dict[str, Any]:
    return {name: token[name] for name in ("id", "role", "name", "made_at", "expires", "revoked_at")}
