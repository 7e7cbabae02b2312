"""Messages in the form in which they leave for another node: under the name that they have there, behind an envelope.

The envelope says what the other node needs to decide like this one: whose the message is, what was demanded for it, how
well its way was protected, who may see what of it, and where it has been. Most of that is the same for many messages,
and is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final

from tidegate.bounded import Weighed
from tidegate.gate import Gate
from tidegate.gate.attributes import FLOOR
from tidegate.policy.scopes import ScopeLink
from tidegate.scope.link_control import LinkControl, OwnerSets
from tidegate.session import Context, Message, Session
from tidegate.session.carried_proof import carried, without_proof
from tidegate.session.frames import EXACT, Parts
from tidegate.wire import NONE, V5, Properties, encode_publish_parts, encode_varint, publish_head
from tidegate.wire.envelope import STATIC_BYTES, Static, bundle, encode_static, of_source, plain, seal

STATICS: Final = 10_000  # of one link that are kept
_EXPORTED: Final = ("kind", "client", "user", "domain", "scope", "node", "level")
_LISTS: Final = ("roles", "groups")


class LinkExports:
    """What leaves over one link (session.Exporter)."""

    proofs = True
    """Whether capabilities and proofs travel."""

    def __init__(
        self,
        link: ScopeLink,
        gate: Callable[[], Gate],
        here: str,
        owners: OwnerSets,
        control: LinkControl,
        exported: tuple[str, ...] = (),
    ) -> None:
        """`here`: the scope that it leaves, as paths name it. `exported`: attributes of publishers that go along."""
        self._exported = exported
        self._owners = owners
        self._control = control
        self.link = link
        self._gate = gate
        self._here = here
        self._statics: Weighed[tuple[bytes, str, str, str], tuple[bytes, bytes]] = Weighed(
            STATICS, STATIC_BYTES, _weight
        )
        """The static part, and the topic there."""
        self._heads: Weighed[tuple[bytes, bytes, str], bytes] = Weighed(STATICS, STATIC_BYTES, _weight)

    def parts(self, message: Message, qos: int, retain: bool, now: float) -> Parts:
        """The frame of a message, split where the packet identifier goes."""
        # hot: one look-up for what is the same for many, one pack, two joins
        origin = message.origin
        key = (message.context, origin.node, message.topic, message.link)
        known = self._statics.get(key)
        if known is None:
            name = self.link.crossing(message.topic)
            topic = message.topic if name is None else name[0]  # what does not cross is never sent
            known = self._statics[key] = encode_static(self._static(message)), topic.encode()
        static, there = known
        id = origin.key
        if message.properties is NONE and message.expires is None and not message.retain:
            dynamic = plain(id, message.number, message.published, message.qos, message.output)
            tail = b"\0%b%b%b" % (static, dynamic, message.payload)
            return publish_head(there, qos, retain, len(tail)), tail
        expiry = None if message.expires is None else max(1, ceil(message.expires - now - EXACT))
        properties, text = message.properties, carried(message.properties)
        proof = None
        if text is not None:
            properties, proof = without_proof(properties), text.encode() if self.proofs else None
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
            proof,
        )
        if properties is not NONE or expiry is not None:
            properties = replace(without_floor(properties, self.link), message_expiry_interval=expiry)
        return encode_publish_parts(there, payload, qos, retain, V5, properties)

    def head(self, name: bytes, source: Session) -> bytes:
        """What all QoS 0 messages of a client and topic that take the fast lane begin with; `name` is the topic as it
        stands in a packet."""
        key = source.context, name, source.inward.type
        head = self._heads.get(key)
        if head is None:
            head = self._heads[key] = self._head(name, source)
        return head

    def frame(self, head: bytes, payloads: Sequence[bytes]) -> bytes:
        """The frame of some of them: what they agree in stands there once."""
        # hot: one pack, one join
        site = self._control.end.site
        first = site.number + 1
        site.number += len(payloads)
        if len(payloads) == 1:
            (payload,) = payloads
            body = plain(site.origin.key, first, site.wall)
            return b"0%b%b%b%b" % (encode_varint(len(head) + len(body) + len(payload)), head, body, payload)
        body = bundle(site.origin.key, first, site.wall, payloads)
        return b"0%b%b%b" % (encode_varint(len(head) + len(body)), head, body)

    def _head(self, name: bytes, source: Session) -> bytes:
        """What the frames of one publisher and topic begin with: the topic there, no properties, the static part."""
        site = source.site
        topic = name[2:].decode()
        message = Message(topic, b"", 0, False, site.wall, site.origin, 0, source.context, source.inward.type)
        crossed = self.link.crossing(topic)
        there = (topic if crossed is None else crossed[0]).encode()
        return b"%b%b\0%b" % (len(there).to_bytes(2, "big"), there, encode_static(self._static(message)))

    def _static(self, message: Message) -> Static:
        context = self._gate().attributes.context(message)
        others = tuple(
            of_source(
                encode_static(self._of(other.context, message, message.link if other.link is None else other.link)),
                other.published,
            )
            for other in context.others
        )
        return replace(self._of(context, message, message.link), others=others)

    def _of(self, context: Context, message: Message, link: str) -> Static:
        subject, levels = context.subject, self._gate().rules.levels
        publisher: dict[str, Any] = {name: value for name in _EXPORTED if (value := getattr(subject, name))}
        publisher |= {name: list(value) for name in _LISTS if (value := getattr(subject, name))}
        if attributes := self._attributes(context):
            publisher["attributes"] = attributes
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
            capability=context.token.encode() or None,
            link=link,
            surroundings=context.surroundings,
            sealed=context.sealed,
            signed=context.signed,
            scored=context.scored,
            under=context.under,
        )

    def _attributes(self, context: Context) -> dict[str, Any]:
        """Those of the publisher that the other side is to know: what the link lists, and what the owner's own
        preferences ask of the publisher. Of who comes from elsewhere, what has come along."""
        subject = context.subject
        if not subject.attributes or context.floor is not None:
            return dict(subject.attributes)
        names = set(self._exported)
        for each in self._gate().rules.preferences.of(subject.user, subject.domain, subject.identity):
            reads = () if each.when is None else each.when.reads
            names |= {path.split(".")[1] for path in reads if path.startswith("p.")}
        return {name: value for name, value in subject.attributes.items() if name in names}


def without_floor(properties: Properties, link: ScopeLink) -> Properties:
    """Properties as they are behind a link: without the floor, and answers have to find their way back."""
    pairs = without_proof(properties).user_properties
    if pairs and pairs[-1][0] == FLOOR:
        pairs = pairs[:-1]
    response = properties.response_topic
    if response is not None:
        response = link.answered(response) if link.brings_back(response) else None
    return replace(properties, user_properties=pairs, response_topic=response)


def _weight(key: tuple[bytes | str, ...]) -> int:
    return sum(map(len, key))
