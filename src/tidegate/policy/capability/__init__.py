"""Capabilities: signed tokens that say what somebody may do at most, and proofs that they are shown by their holder."""

from __future__ import annotations

from tidegate.policy.capability.accepts import Accepts
from tidegate.policy.capability.capability import Capability, Proof, PublicKey, Right
from tidegate.policy.capability.keys import Issuers, Key, PrivateKey
from tidegate.policy.capability.ledger import BEFORE, NOTHING, Ledger, Shown, Use
from tidegate.policy.capability.token import (
    METHOD,
    PROPERTY,
    TYPE,
    Unacceptable,
    looks_like_one,
    sign,
    unverified,
    verify,
)

__all__ = [
    "BEFORE",
    "METHOD",
    "NOTHING",
    "PROPERTY",
    "TYPE",
    "Accepts",
    "Capability",
    "Issuers",
    "Key",
    "Ledger",
    "PrivateKey",
    "Proof",
    "PublicKey",
    "Right",
    "Shown",
    "Unacceptable",
    "Use",
    "looks_like_one",
    "sign",
    "unverified",
    "verify",
]
