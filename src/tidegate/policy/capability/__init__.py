"""Capabilities: signed tokens that say what somebody may do at most, and proofs that they are shown by their holder."""

from __future__ import annotations

from tidegate.policy.capability.capability import Capability, Proof, PublicKey
from tidegate.policy.capability.keys import Accepts, Issuers, Key, PrivateKey
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
    "Shown",
    "Unacceptable",
    "Use",
    "looks_like_one",
    "sign",
    "unverified",
    "verify",
]
