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
from tidegate.scope.link_control import LinkControl
from tidegate.scope.link_signatures import Attested, unchanged
from tidegate.scope.preference_changes import OwnerSets
from tidegate.session import Context, Message, Session
from tidegate.session.carried_proof import carried, carried_signature, without_proof
from tidegate.session.frames import EXACT, Parts
from tidegate.wire import NONE, V5, Properties, encode_publish_parts, encode_varint, publish_head
from tidegate.wire.envelope import (
    STATIC_BYTES,
    Static,
    bundle_head,
    encode_static,
    of_source,
    plain,
    relayed,
    seal,
    static_cache,
)

STATICS: Final = 10_000  # of one link that are kept
_EXPORTED: Final = ("kind", "client", "user", "domain", "scope", "node", "level")
_LISTS: Final = ("roles", "groups")


class LinkExports:
    """What leaves over one link (session.Exporter)."""

    proofs = True
    """Whether capabilities and proofs travel."""
    signs = False
    """Whether this node signs what nobody else has."""

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
        self._statics: Weighed[tuple[bytes, str, str, str], tuple[bytes, bytes, int | None]] = Weighed(
            STATICS, STATIC_BYTES, _weight
        )
        """The static part, the topic there, and the QoS that it was published with if a link has lowered that."""
        self._heads: Weighed[tuple[bytes, bytes, str], bytes] = Weighed(STATICS, STATIC_BYTES, _weight)
        self._signed: Weighed[tuple[bytes, str, str, str], bytes] = Weighed(STATICS, STATIC_BYTES, _weight)
        """The static part of what others have signed; empty: it is not what they signed any more."""
        self._opened = static_cache(STATICS)

    def parts(self, message: Message, qos: int, retain: bool, now: float) -> Parts:
        """The frame of a message, split where the packet identifier goes."""
        # hot: one look-up for what is the same for many, one pack, two joins
        origin = message.origin
        key = (message.context, origin.node, message.topic, message.link)
        known = self._statics.get(key)
        if known is None:
            name = self.link.crossing(message.topic)
            topic = message.topic if name is None else name[0]  # what does not cross is never sent
            published_with = self._gate().attributes.context(message).qos
            known = self._statics[key] = encode_static(self._static(message)), topic.encode(), published_with
        static, there, own_qos = known
        if own_qos is None:
            own_qos = message.qos
        id = origin.key
        if message.properties is NONE and message.expires is None and not message.retain and not self.signs:
            dynamic = plain(id, message.number, message.published, own_qos, message.output)
            tail = b"\0%b%b%b" % (static, dynamic, message.payload)
            return publish_head(there, qos, retain, len(tail)), tail
        expiry = None if message.expires is None else max(1, ceil(message.expires - now - EXACT))
        properties, text = message.properties, carried(message.properties)
        published, retained = message.published, message.retain
        signature = attested = None
        if properties is not NONE:
            attested = self._attested(message)
            properties = without_proof(properties)
        proof = text.encode() if text is not None and self.proofs else None
        if attested is not None:
            signature, published, own_qos, retained = attested.about
            static = self._signed[key]
        elif self.signs:
            signature = self._signature(static, message, own_qos, proof, properties)
        payload = seal(
            static,
            id,
            message.number,
            message.output,
            published,
            expiry,
            own_qos,
            retained,
            message.payload,
            None,
            proof,
            signature,
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
        lengths = list(map(len, payloads))
        body = bundle_head(site.origin.key, first, site.wall, lengths)
        length = encode_varint(len(head) + len(body) + sum(lengths))
        return b"".join((b"0", length, head, body, *payloads))

    def relayed(self, message: Message) -> bytes:
        """What messages begin with that came from another node as this one did, up to the dynamic part of their
        envelope, which goes on as it came."""
        return self._begin(message)

    def _head(self, name: bytes, source: Session) -> bytes:
        site, topic = source.site, name[2:].decode()
        return self._begin(Message(topic, b"", 0, False, site.wall, site.origin, 0, source.context, source.inward.type))

    def _begin(self, message: Message) -> bytes:
        """What the frames of one publisher and topic begin with: the topic there, no properties, the static part."""
        crossed = self.link.crossing(message.topic)
        there = (message.topic if crossed is None else crossed[0]).encode()
        return b"%b%b\0%b" % (len(there).to_bytes(2, "big"), there, encode_static(self._static(message)))

    def _signature(
        self, static: bytes, message: Message, qos: int, proof: bytes | None, properties: Properties
    ) -> bytes:
        """Of this node."""
        signatures = self._control.links.signatures
        return signatures.signature(self._opened[static], message, qos, proof, properties)

    def _attested(self, message: Message) -> Attested | None:
        """What the node has signed that made the message, if nothing of that has changed since."""
        text = carried_signature(message.properties)
        attested = None if text is None else Attested.decode(text)
        if attested is None or not attested.holds(message):
            return None
        key = (message.context, message.origin.node, message.topic, message.link)
        known = self._signed.get(key)
        if known is None:
            known = self._signed[key] = self._as_signed(message)
        return attested if known else None

    def _as_signed(self, message: Message) -> bytes:
        attested, here = self._gate().attributes.context(message).attested, self._static(message)
        if not attested or not unchanged(attested, here, self._opened):
            return b""
        signer = self._opened[attested].signer
        if signer is not None:
            self._control.links.signatures.tell(self._control.end, signer)
        return relayed(attested, floor=here.floor, facts=here.facts, path=here.path, link=here.link)

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
            self._control.preferences.tell_owner(*owner)
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


class SigningExports(LinkExports):
    """What leaves over a link with `sign`: each message by itself, with the signature of the node that made it."""

    signs = True

    def relayed(self, message: Message) -> bytes:
        return b""  # nobody has signed them, and each is signed by itself

    def frame(self, head: bytes, payloads: Sequence[bytes]) -> bytes:
        site = self._control.end.site
        static = head[int.from_bytes(head[:2], "big") + 3 :]
        frames: list[bytes] = []
        for payload in payloads:
            site.number += 1
            message = Message("", payload, 0, False, site.wall, site.origin, site.number, b"", "")
            signature = self._signature(static, message, 0, None, NONE)
            body = seal(
                static, site.origin.key, site.number, 0, site.wall, None, 0, False, payload, None, None, signature
            )
            there = head[: len(head) - len(static)]
            frames.append(b"0%b%b%b" % (encode_varint(len(there) + len(body)), there, body))
        return b"".join(frames)

    def _static(self, message: Message) -> Static:
        signatures = self._control.links.signatures
        assert signatures.own is not None
        signatures.tell(self._control.end, signatures.own.digest)
        return replace(super()._static(message), signer=signatures.own.digest)


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
