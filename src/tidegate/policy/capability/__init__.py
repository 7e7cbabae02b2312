"""Capabilities: signed tokens that say what somebody may do at most, and proofs that they are shown by their holder."""

from __future__ import annotations

from tidegate.policy.capability.capability import Capability, Proof, PublicKey
from tidegate.policy.capability.issuers import Accepts, Issuers
from tidegate.policy.capability.jwk import Key, PrivateKey
from tidegate.policy.capability.proof_replay import BEFORE, NOTHING, Ledger, Shown, Use
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
