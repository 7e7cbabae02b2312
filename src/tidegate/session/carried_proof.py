"""The proof of a message on its way to other nodes, which verify it again, and the signature of the node that made it.

Until they leave the node they stand in front of the user properties of the message, as pairs that nobody is shown: they
are kept wherever those are, over a restart, too. Clients and conditions do not see them, and what a monitor makes of a
message does not have them: that is not what was signed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import orjson

from tidegate.errors import MalformedPacket
from tidegate.policy.capability.proof_replay import Pairs, Shown
from tidegate.wire import NONE, Properties

CARRIED: Final = "tidegate-proof"
"""The name of the pair."""
SIGNATURE: Final = "tidegate-signature"
"""The same of a signature, which stands behind a proof if there are both."""
HIDDEN: Final = frozenset((CARRIED, SIGNATURE))


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedProof:
    """A proof with what it covers besides the topic and the payload, as the message was published."""

    text: str
    qos: int
    retain: bool
    expiry: int | None
    asked: Pairs

    def encode(self) -> str:
        return orjson.dumps([self.text, self.qos, self.retain, self.expiry, self.asked]).decode()

    @classmethod
    def decode(cls, data: bytes) -> CarriedProof:
        """From an envelope; MalformedPacket if it is none."""
        try:
            match orjson.loads(data):
                case [str(text), int(qos), bool(retain), expiry, list(asked)] if 0 <= qos <= 2 and (
                    expiry is None or (isinstance(expiry, int) and 0 <= expiry < 1 << 32)
                ):
                    pairs = tuple((str(name), str(value)) for name, value in asked)
                    return cls(text=text, qos=qos, retain=retain, expiry=expiry, asked=pairs)
        except (orjson.JSONDecodeError, ValueError, TypeError):
            pass
        raise MalformedPacket("the proof in an envelope is none")


def carrying(properties: Properties, shown: Shown, qos: int, retain: bool) -> Properties:
    """The properties of a message with the proof that it has brought; the same if it has brought none."""
    if len(shown.texts) != 1:
        return properties
    said = CarriedProof(text=shown.texts[0], qos=qos, retain=retain, expiry=shown.expiry, asked=shown.asked)
    return with_proof(properties, said.encode())


def with_proof(properties: Properties, text: str) -> Properties:
    return replace(properties, user_properties=((CARRIED, text), *properties.user_properties))


def carried(properties: Properties) -> str | None:
    """The proof that a message carries."""
    pairs = properties.user_properties
    return pairs[0][1] if pairs and pairs[0][0] == CARRIED else None


def with_signature(properties: Properties, text: str) -> Properties:
    """Before `with_proof`."""
    return replace(properties, user_properties=((SIGNATURE, text), *properties.user_properties))


def carried_signature(properties: Properties) -> str | None:
    """What `with_signature` was given."""
    return next((text for name, text in properties.user_properties[:2] if name == SIGNATURE), None)


def shown_pairs(pairs: Pairs) -> Pairs:
    """User properties without those that are carried."""
    while pairs and pairs[0][0] in HIDDEN:
        pairs = pairs[1:]
    return pairs


def without_proof(properties: Properties) -> Properties:
    """The properties as others see them."""
    pairs = properties.user_properties
    if not pairs or pairs[0][0] not in HIDDEN:
        return properties
    left = replace(properties, user_properties=shown_pairs(pairs))
    return NONE if left == NONE else left


def without_hidden(properties: Properties) -> Properties:
    """Properties that come from elsewhere: whoever sends them cannot have anything carried."""
    if not any(name in HIDDEN for name, _ in properties.user_properties):
        return properties
    left = replace(
        properties, user_properties=tuple(pair for pair in properties.user_properties if pair[0] not in HIDDEN)
    )
    return NONE if left == NONE else left
