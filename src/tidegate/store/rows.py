"""Values to rows and back.

Whoever writes rows gives sqlite3 exact `int`, `float`, `str`, `bytes` and None: it looks for an adapter for
anything else, subclasses such as `bool` and `IntEnum` included, and that costs more than the rest of the row.
Rows that cannot be read back are damage, and raise StoreError with the table and the key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from tidegate.errors import PacketError, StoreError
from tidegate.session.message import Delivery, Message, Origin, State
from tidegate.session.store import StoredSession, StoredSubscription
from tidegate.wire import NONE, Properties, Subscription, Type, Will, decode_properties, encode_properties
from tidegate.wire.properties import ALLOWED, WILL

SessionRow: TypeAlias = tuple[Any, ...]
SubscriptionRow: TypeAlias = tuple[Any, ...]

_EMPTY: Final = encode_properties(NONE)
_PUBLISH: Final = ALLOWED[Type.PUBLISH]


@contextmanager
def reading(table: str, key: object) -> Iterator[None]:
    """Whatever goes wrong with the values of a row is damage to the table."""
    try:
        yield
    except (PacketError, ValueError, TypeError) as error:
        raise StoreError(f"table {table}, row {key!r} cannot be read: {error}") from error


def session_row(session: StoredSession) -> SessionRow:
    will: tuple[Any, ...] = (None,) * 5
    if (last_will := session.will) is not None:
        properties = encode_properties(last_will.properties, will=True)
        will = (last_will.topic, bytes(last_will.payload), int(last_will.qos), int(last_will.retain), properties)
    return (
        session.row,
        session.principal,
        session.client,
        int(session.version),
        int(session.expiry),
        None if session.ended is None else float(session.ended),
        *will,
        bytes(session.context),
        session.scope,
        session.certificate,
    )


def read_session(row: SessionRow) -> StoredSession:
    id, principal, client, version, expiry, ended, topic, payload, qos, retain, properties, context = row[:12]
    scope, certificate = row[12:]
    will = None
    if topic is not None:
        with reading("session", id):
            will = Will(
                topic=topic,
                payload=payload,
                qos=qos,
                retain=bool(retain),
                properties=decode_properties(properties, 0, len(properties), WILL)[0],
            )
    return StoredSession(
        row=id,
        scope=scope,
        principal=principal,
        client=client,
        version=version,
        expiry=expiry,
        ended=ended,
        will=will,
        context=context,
        certificate=certificate,
    )


def subscription_row(session: int, subscription: Subscription, identifier: int | None, terms: bytes) -> SubscriptionRow:
    return (
        session,
        subscription.filter,
        int(subscription.qos),
        int(subscription.no_local),
        int(subscription.retain_as_published),
        int(subscription.retain_handling),
        identifier,
        bytes(terms),
    )


def read_subscription(row: SubscriptionRow) -> StoredSubscription:
    _, filter, qos, no_local, retain_as_published, retain_handling, identifier, terms = row
    subscription = Subscription(
        filter=filter,
        qos=qos,
        no_local=bool(no_local),
        retain_as_published=bool(retain_as_published),
        retain_handling=retain_handling,
    )
    return subscription, identifier, terms


def message_row(row: int, message: Message, offset: float) -> tuple[Any, ...]:
    """`offset` is what the wall clock shows more than the monotonic one."""
    properties: Properties = message.properties
    expires = message.expires
    return (
        row,
        message.topic,
        message.payload,
        message.qos,
        1 if message.retain else 0,
        message.published,
        message.origin.node,
        message.origin.boot,
        message.number,
        message.output,
        message.context,
        message.link,
        _EMPTY if properties is NONE else encode_properties(properties),
        None if expires is None else expires + offset,
    )


class Messages:
    """Reads bodies; equal contexts, link types and origins become the same object again."""

    def __init__(self, *, now_wall: float, now_mono: float) -> None:
        self._now = now_wall
        self._offset = now_wall - now_mono
        self._origins: dict[tuple[str, int], Origin] = {}
        self._shared: dict[Any, Any] = {}

    def _left(self, expires: float, published: float) -> float:
        """Not longer than it was given, should the clock have been set back meanwhile."""
        given = expires - published
        return min(expires, self._now + given) if given > 0 else expires

    def read(self, row: tuple[Any, ...]) -> Message:
        id, topic, payload, qos, retain, published, node, boot, number, output = row[:10]
        context, link, encoded, expires = row[10:]
        origin = self._origins.get((node, boot))
        if origin is None:
            origin = self._origins[node, boot] = Origin(node, boot)
        with reading("message", id):
            properties = decode_properties(encoded, 0, len(encoded), _PUBLISH)[0]
        message = Message(
            self._shared.setdefault(topic, topic),
            payload,
            qos,
            bool(retain),
            published,
            origin,
            number,
            self._shared.setdefault(context, context),
            self._shared.setdefault(link, link),
            properties,
            None if expires is None else self._left(expires, published) - self._offset,
            output,
        )
        message.row = id
        return message


def delivery_row(
    row: int, session: int, body: int, delivery: Delivery, pid: int, state: State, seen: bool
) -> tuple[Any, ...]:
    ids = delivery.ids
    group = delivery.group
    return (
        row,
        session,
        body,
        delivery.qos,
        1 if delivery.retain else 0,
        pid,
        int(state),
        ",".join(map(str, ids)) if ids else None,
        None if group is None else f"{group[0]}/{group[1]}",
        1 if seen else 0,
    )


def read_delivery(row: tuple[Any, ...], message: Message) -> Delivery:
    id, _, _, qos, retain, pid, state, ids, share, seen = row
    with reading("delivery", id):
        group: tuple[str, str] | None = None
        if share is not None:
            name, filter = share.split("/", 1)
            group = (name, filter)
        identifiers = () if ids is None else tuple(map(int, ids.split(",")))
        delivery = Delivery(message, qos, bool(retain), identifiers, group)
        delivery.pid = pid
        delivery.state = State(state)
        delivery.seen = bool(seen)
    return delivery
