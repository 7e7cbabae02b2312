"""Messages in the form in which they leave for another node: under the name that they have there, behind an envelope.

The envelope says what the other node needs to decide like this one: whose the message is, what was demanded for it, how
well its way was protected, who may see what of it, and where it has been. Most of that is the same for many messages,
and is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any, Final

from tidegate.bounded import Bounded, Weighed
from tidegate.gate import Gate
from tidegate.gate.attributes import FLOOR
from tidegate.policy.scopes import ScopeLink
from tidegate.scope.link_control import LinkControl, OwnerSets
from tidegate.session import Context, Message, Origin, Session
from tidegate.session.frames import EXACT, Parts
from tidegate.wire import NONE, V5, Properties, encode_publish_parts, encode_varint
from tidegate.wire.envelope import STATIC_BYTES, Static, encode_static, plain, prefix, seal

STATICS: Final = 10_000  # of one link that are kept
_EXPORTED: Final = ("kind", "client", "user", "domain", "scope", "node", "level")
_LISTS: Final = ("roles", "groups")


class LinkExports:
    """What leaves over one link (session.Exporter)."""

    def __init__(
        self, link: ScopeLink, gate: Callable[[], Gate], here: str, owners: OwnerSets, control: LinkControl
    ) -> None:
        """`here`: the scope that it leaves, as paths name it."""
        self._owners = owners
        self._control = control
        self.link = link
        self._gate = gate
        self._here = here
        self._statics: Weighed[tuple[bytes, str, str, str], bytes] = Weighed(STATICS, STATIC_BYTES, _weight)
        self._heads: Weighed[tuple[bytes, bytes, str], bytes] = Weighed(STATICS, STATIC_BYTES, _weight)
        self._origins: Bounded[Origin, bytes] = Bounded(STATICS)  # other nodes choose them
        self._own = b""  # the first part of this node's ids

    def parts(self, message: Message, qos: int, retain: bool, now: float) -> Parts:
        """The frame of a message, split where the packet identifier goes."""
        # hot: one look-up for the static part, and what the frame itself costs
        origin, context = message.origin, message.context
        key = (context, origin.node, message.topic, message.link)
        static = self._statics.get(key)
        if static is None:
            static = self._statics[key] = encode_static(self._static(message))
        id = self._origins.get(origin)
        if id is None:
            id = self._origins[origin] = bytes.fromhex(origin.node) + origin.boot.to_bytes(6, "big")
        expiry = None if message.expires is None else max(1, ceil(message.expires - now - EXACT))
        payload = seal(
            static,
            id,
            message.number,
            message.output,
            message.published,
            expiry,
            message.qos,
            message.retain,
            message.payload,
            None,
        )
        name = self.link.crossing(message.topic)
        topic = message.topic if name is None else name[0]  # what does not cross is never sent
        properties = message.properties
        if properties is not NONE or expiry is not None:
            properties = replace(without_floor(properties, self.link), message_expiry_interval=expiry)
        return encode_publish_parts(topic.encode(), payload, qos, retain, V5, properties)

    def frame(self, name: bytes, payload: bytes, source: Session) -> bytes:
        """The frame of a QoS 0 message that takes the fast lane; `name` is its topic as it stands in a packet."""
        # hot: one look-up, one pack, one join
        link = source.inward.type
        head = self._heads.get((source.context, name, link))
        if head is None:
            head = self._heads[source.context, name, link] = self._head(name, source)
        site = source.site
        site.number += 1
        body = plain(self._own, site.number, site.wall)
        return b"0%b%b%b%b" % (encode_varint(len(head) + len(body) + len(payload)), head, body, payload)

    def _head(self, name: bytes, source: Session) -> bytes:
        """What the frames of one publisher and topic begin with: the topic there, no properties, the static part."""
        site = source.site
        topic = name[2:].decode()
        message = Message(topic, b"", 0, False, site.wall, site.origin, 0, source.context, source.inward.type)
        crossed = self.link.crossing(topic)
        there = (topic if crossed is None else crossed[0]).encode()
        self._own = bytes.fromhex(site.origin.node) + site.origin.boot.to_bytes(6, "big")
        return b"%b%b\0%b" % (len(there).to_bytes(2, "big"), there, encode_static(self._static(message)))

    def _static(self, message: Message) -> Static:
        context = self._gate().attributes.context(message)
        others = tuple(
            prefix(
                encode_static(self._of(other.context, message, message.link if other.link is None else other.link)),
                bytes(14),
                0,
                0,
                other.published or 0.0,
                None,
                0,
                False,
                b"",
                None,
            )
            for other in context.others
        )
        return replace(self._of(context, message, message.link), others=others)

    def _of(self, context: Context, message: Message, link: str) -> Static:
        subject, levels = context.subject, self._gate().rules.levels
        publisher: dict[str, Any] = {name: value for name in _EXPORTED if (value := getattr(subject, name))}
        publisher |= {name: list(value) for name in _LISTS if (value := getattr(subject, name))}
        owner = self._owners.number(context, self._gate().rules.domain)
        if owner is not None:
            self._control.tell_owner(*owner)
        return Static(
            origin=message.origin.node,
            owner=subject.identity,
            publisher=publisher,
            topic=context.topic or message.topic,
            demand=None if context.demand is None else context.demand.text,
            floor=levels.floor(context.level),
            facts=levels.floor_facts(context.facts),
            path=(*context.path, self._here),
            preferences=None if owner is None else (*owner[0], owner[1]),
            view=context.view,
            link=link,
            surroundings=context.surroundings,
            sealed=context.sealed,
            signed=context.signed,
            scored=context.scored,
            under=context.under,
        )


def without_floor(properties: Properties, link: ScopeLink) -> Properties:
    """Properties as they are behind a link: without the floor, and answers have to find their way back."""
    pairs = properties.user_properties
    if pairs and pairs[-1][0] == FLOOR:
        pairs = pairs[:-1]
    response = properties.response_topic
    if response is not None:
        response = link.answered(response) if link.brings_back(response) else None
    return replace(properties, user_properties=pairs, response_topic=response)


def _weight(key: tuple[bytes | str, ...]) -> int:
    return sum(map(len, key))
