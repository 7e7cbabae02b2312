"""Topic keys: what they belong to, when they end, and how they seal messages and reach readers.

Everything here is pure: time and randomness come in as arguments. Who may have a key is decided elsewhere.
"""

from __future__ import annotations

from tidegate.keys.at_rest import MasterKeySet, new_master
from tidegate.keys.consuming import Keychain, open_message, read_key
from tidegate.keys.group import Group, protecting
from tidegate.keys.key import TopicKey, decode_key, encode_key
from tidegate.keys.pair import Kem, PrivateKey, PublicKey
from tidegate.keys.ring import ROTATE, USES, Ring, Steady
from tidegate.keys.sealing import NONCE, key_id, seal, unseal
from tidegate.keys.wrapping import ReadKey, unwrap, valid_request, wrap

__all__ = [
    "NONCE",
    "ROTATE",
    "USES",
    "Group",
    "Kem",
    "Keychain",
    "MasterKeySet",
    "PrivateKey",
    "PublicKey",
    "ReadKey",
    "Ring",
    "Steady",
    "TopicKey",
    "decode_key",
    "encode_key",
    "key_id",
    "new_master",
    "open_message",
    "protecting",
    "read_key",
    "seal",
    "unseal",
    "unwrap",
    "valid_request",
    "wrap",
]
