"""The proof of a message on its way to other nodes, which verify it again.

Until it leaves the node it stands in front of the user properties of the message, as a pair that nobody is shown: it is
kept wherever they are, over a restart, too. Clients and conditions do not see it, and what a monitor makes of a message
does not have it: that is not what the publisher has signed.
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
                case [str(text), int(qos), bool(retain), int() | None as expiry, list(asked)] if 0 <= qos <= 2 and (
                    expiry is None or 0 <= expiry < 1 << 32
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


def without_proof(properties: Properties) -> Properties:
    """The properties as others see them."""
    if carried(properties) is None:
        return properties
    left = replace(properties, user_properties=properties.user_properties[1:])
    return NONE if left == NONE else left
