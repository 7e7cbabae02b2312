"""Messages as they lie in the guarded broker: behind an envelope that only guards with the scope's secret can make.

The envelope has everything that the decision on the way out needs of the publisher. Most of it is the same for many
messages, and is encoded and decoded once. Nothing of an envelope is looked at before its MAC is right.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import cbor2

from tidegate.bounded import Bounded, Weighed
from tidegate.errors import MalformedPacket
from tidegate.gate.attributes import FLOOR
from tidegate.policy import Subject
from tidegate.policy.preference_sets import UNNUMBERED
from tidegate.policy.preference_sets import read as read_set
from tidegate.session import Context, Message, Origin, Session, forwarded
from tidegate.session.context import SEVERAL, VERSION
from tidegate.session.frames import EXACT
from tidegate.wire import NONE, Properties
from tidegate.wire.envelope import (
    STATIC_BYTES,
    Envelope,
    Static,
    encode_static,
    of_source,
    open,
    open_property,
    prefix,
    static_cache,
)
from tidegate.wire.properties import encode_properties

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope

STATICS: Final = 20_000  # of one scope that are kept
PROPERTY: Final = "tidegate"
"""The user property that an envelope may be in."""
NOT_CONTENT: Final = frozenset((FLOOR, PROPERTY))
"""User properties that guards add."""
CALLED: Final = "#called"
"""Beside the attributes of the publisher: the topic in the broker, if a monitor or a link has changed it."""
_OWN: Final = frozenset(
    (
        *("demand", "view", "e", "topic", "qos", "sealed", "under", "key"),
        *("signed", "scored", "floor", "held", "path", "others", "foreign"),
    )
)
"""What a context has beside its subject: the envelope has a place of its own for each, or none."""


PROPERTIES: Final = "#properties"
"""In an envelope, beside the attributes of the publisher: the digest of what is content in the properties."""
ALTERED: Final = "its properties are not those that it was published with"
PREFERENCES: Final = "#preferences"
"""There too: the signed set of the owner's preferences, in base64."""
MOST_PREFERENCES: Final = 8 * 1024  # bytes of it, which each message carries
NO_ATTRIBUTES: Final = frozenset((CALLED, PROPERTIES, PREFERENCES))


class Unauthentic(Exception):
    """A message that did not come through a guard."""


class Envelopes:
    """Makes and opens the envelopes of one guarded scope."""

    def __init__(self, scope: GuardedScope) -> None:
        self.scope = scope
        self._statics: Weighed[tuple[bytes, str, str, str], bytes] = Weighed(STATICS, STATIC_BYTES, _weight)
        self._origins: Bounded[Origin, bytes] = Bounded(STATICS)
        self._read = static_cache(STATICS)
        self._contexts: Weighed[tuple[bytes, str, str], bytes] = Weighed(STATICS, STATIC_BYTES, _weight)
        self._makers: Bounded[bytes, Origin] = Bounded(STATICS)

    def renew(self) -> None:
        """There are other rules: what was made of envelopes, or for them, under the last ones is made anew."""
        self._contexts.clear()
        self._statics.clear()

    # -- to the broker -----------------------------------------------------------------------------------------

    def sealed(self, message: Message, now: float, key: bytes | None = None) -> bytes:
        """The payload of a message with its envelope before it. ValueError for what does not fit one."""
        return self.envelope(message, now, key) + message.payload

    def envelope(self, message: Message, now: float, key: bytes | None = None) -> bytes:
        """The envelope of a message, for guards with another key if one is given."""
        told = digest(message.properties)
        known = (message.context, message.origin.node, message.topic, message.link + told)
        static = self._statics.get(known)
        if static is None:
            context = self.scope.gate.attributes.context(message)
            static = self.static(context, message.topic, message.link, message.origin.node, told)
            self._statics[known] = static
        expiry = None if message.expires is None else max(1, ceil(message.expires - now - EXACT))
        return prefix(
            static,
            self.origin(message.origin),
            message.number,
            message.output,
            message.published,
            expiry,
            message.qos,
            message.retain,
            message.payload,
            key or self.scope.settings.key,
        )

    def opened_property(self, pairs: tuple[tuple[str, str], ...], payload: bytes) -> Envelope:
        """The envelope among the user properties of a message; Unauthentic if there is not exactly one."""
        texts = [value for name, value in pairs if name == PROPERTY]
        if len(texts) != 1:
            raise Unauthentic(f"{len(texts)} envelopes")
        try:
            return open_property(texts[0], payload, self.scope.settings.key, self._read)
        except MalformedPacket as error:
            raise Unauthentic(str(error)) from None

    def frame_head(self, source: Session, topic: str) -> bytes:
        """The static part of what a session publishes to a topic."""
        context = self.scope.gate.attributes.decoded(source.context)
        return self.static(context, topic, source.inward.type, source.site.origin.node)

    def origin(self, origin: Origin) -> bytes:
        id = self._origins.get(origin)
        if id is None:
            id = self._origins[origin] = bytes.fromhex(origin.node) + origin.boot.to_bytes(6, "big")
        return id

    def static(self, context: Context, topic: str, link: str, node: str, told: str = "") -> bytes:
        """The static part of messages with this context; `told` is the digest of their properties."""
        preferences, signed_set = self._of_owner(context)
        others = tuple(
            of_source(
                self.static(other.context, topic, link if other.link is None else other.link, node),
                other.published,
            )
            for other in context.others
        )
        levels = self.scope.gate.rules.levels
        known: dict[str, Any] = cbor2.loads(context.encode()[1:])
        publisher = {name: value for name, value in known.items() if name not in _OWN}
        if told:
            publisher[PROPERTIES] = told
        if context.topic not in (None, topic):
            publisher[CALLED] = topic
        if signed_set:
            publisher[PREFERENCES] = b64encode(signed_set).decode()
        return encode_static(
            Static(
                origin=node,
                owner=context.subject.identity,
                publisher=publisher,
                topic=context.topic or topic,
                demand=None if context.demand is None else context.demand.text,
                floor=levels.floor(context.level),
                facts=levels.floor_facts(context.facts),
                path=context.path,
                preferences=preferences,
                view=context.view,
                link=link,
                surroundings=context.surroundings,
                sealed=context.sealed,
                signed=context.signed,
                scored=context.scored,
                under=context.under,
                others=others,
            )
        )

    def _of_owner(self, context: Context) -> tuple[tuple[str, str, int] | None, bytes]:
        """Home, owner and number of the preferences that count for a message, and their set, signed at home. Without an
        identity to sign with, a guard says only that there are some: guards that have none of that owner deny."""
        subject, rules, links = context.subject, self.scope.gate.rules, self.scope.node_links
        if subject.user is None or links is None:
            return None, b""
        owners = links.owners
        if context.foreign is None and owners.travelling is None:
            silent = not rules.preferences.of(subject.user, subject.domain, subject.identity)
            if subject.domain == rules.domain and silent:
                return None, b""
        numbered = owners.number(context, rules.domain)
        if numbered is None:
            return None, b""
        key, number = numbered
        signed_set = b""
        if 0 < number < UNNUMBERED:
            with suppress(MalformedPacket):  # too large to travel: unknown there, unless it comes another way
                signed_set = b"" if (found := owners.set(key, rules.domain)) is None else found.encode()
        return (*key, number), signed_set if len(signed_set) <= MOST_PREFERENCES else b""

    # -- from the broker ---------------------------------------------------------------------------------------

    def opened(self, payload: bytes, key: bytes | None = None) -> tuple[Envelope, bytes]:
        """An envelope and what follows it; Unauthentic if there is none that a guard has made."""
        try:
            return open(payload, key or self.scope.settings.key, self._read)
        except MalformedPacket as error:
            raise Unauthentic(str(error)) from None

    def context(self, static: Static, topic: str, lowered: int | None) -> bytes:
        """The context that a static part says. `lowered`: with which QoS it was published, if not with this one."""
        key = (static.data, topic, str(lowered))
        data = self._contexts.get(key)
        if data is None:
            known = self._known(static, topic, lowered)
            if not static.others:
                data = VERSION + cbor2.dumps(known)
            else:
                known["others"] = [self._other(each) for each in static.others]
                data = SEVERAL + cbor2.dumps(known)
            self._contexts[key] = data
        return data

    def _other(self, envelope: bytes) -> list[Any]:
        """Another message that it comes from, as a context has it (`SourceContext.fields`)."""
        other, _ = open(envelope, None, self._read)
        known = self._known(other.static, other.static.topic, None)
        if other.static.publisher.get(CALLED) is not None:
            known["topic"] = other.static.topic
        return [VERSION + cbor2.dumps(known), other.static.link, other.published or None]

    def _known(self, static: Static, topic: str, lowered: int | None) -> dict[str, Any]:
        """The fields of a context."""
        levels = self.scope.gate.rules.levels
        backend = self.scope.target.subject
        known = {name: value for name, value in static.publisher.items() if name not in NO_ATTRIBUTES}
        if static.demand is not None:
            known["demand"] = static.demand
        if static.view is not None:
            known["view"] = static.view
        if static.surroundings:
            known["e"] = dict(static.surroundings)
        if static.topic != topic:
            known["topic"] = static.topic
        if lowered is not None:
            known["qos"] = lowered
        for name in ("sealed", "signed", "scored"):
            if getattr(static, name):
                known[name] = True
        if static.under is not None:
            known["under"] = static.under
        elsewhere = known.get("domain") != self.scope.gate.rules.domain
        if static.preferences is not None and (elsewhere or static.origin != self.scope.site.origin.node):
            self._take_preferences(static, static.preferences)
            known["foreign"] = list(static.preferences[1:])
        elif known.get("user") is not None and elsewhere:
            known["foreign"] = ["", UNNUMBERED]  # what its owner says of it is not known here
        floor = levels.floor(static.floor, backend.level)
        facts = levels.floor_facts(static.facts, backend.facts)
        if static.path or (floor, facts) != (known.get("level"), tuple(known.get("facts", ()))):
            known["floor"] = floor
            known["held"] = facts
            known["path"] = static.path
        return known

    def _take_preferences(self, static: Static, counting: tuple[str, str, int]) -> None:
        """What the owner says counts here from now on, if somebody has signed it who speaks for its home."""
        links, data = self.scope.node_links, static.publisher.get(PREFERENCES)
        if links is None or not isinstance(data, str):
            return
        domain, owner, number = counting
        held = links.owners.foreign.get((domain, owner))
        if held is not None and held.number >= number:
            return
        with suppress(MalformedPacket, ValueError):
            offered = read_set(b64decode(data, validate=True))
            if offered.key == (domain, owner):
                links.owners.foreign.take(offered, f"guard:{self.scope.name}", links.owners.verify)

    def maker(self, id: bytes) -> Origin:
        """The node and boot that a message comes from."""
        origin = self._makers.get(id)
        if origin is None:
            own = self.scope.site.origin
            origin = Origin(id[:8].hex(), int.from_bytes(id[8:], "big"))
            origin = self._makers[id] = own if (origin.node, origin.boot) == (own.node, own.boot) else origin
        return origin


def digest(properties: Properties) -> str:
    """Of the properties that are content. The MAC does not cover them, because a broker of MQTT 3.1.1 takes them away.
    Empty: there are none."""
    content = forwarded(properties)
    if content is NONE:
        return ""
    content = replace(
        content, user_properties=tuple(pair for pair in content.user_properties if pair[0] not in NOT_CONTENT)
    )
    return "" if content == NONE else blake2b(encode_properties(content), digest_size=16).hexdigest()


def altered(properties: Properties, static: Static) -> bool:
    """Whether a message has other properties than it was published with; it may have lost all of them."""
    if properties is NONE:
        return False
    told = digest(properties)
    return bool(told) and static.publisher.get(PROPERTIES) != told


def nobody(scope: GuardedScope) -> bytes:
    """The context of a message that came to the broker around the guard, if such ones pass."""
    subject = Subject(
        kind="client",
        client="",
        user=None,
        scope=scope.name,
        node=scope.node,
        domain="",
        level=scope.gate.rules.levels.order[0],
    )
    return Context(subject=subject).encode()


def backend(scope: GuardedScope) -> bytes:
    """The context of what the broker says of itself."""
    subject = Subject(
        kind="service",
        client="backend",
        user=None,
        scope=scope.name,
        node=scope.node,
        domain=scope.gate.rules.domain,
        level=scope.target.subject.level,
        facts=scope.target.subject.facts,
    )
    return Context(subject=subject).encode()


def _weight(key: tuple[bytes | str, ...]) -> int:
    return sum(map(len, key))
