"""Topic keys: what they belong to, when they end, and how they seal messages and reach readers.

Everything here is pure: time and randomness come in as arguments. Who may have a key is decided elsewhere.
"""

from __future__ import annotations

from tidegate.keys.consuming import Keychain, open_message, read_key
from tidegate.keys.group import Group, bound, protecting
from tidegate.keys.keeping import decode, decode_key, encode, encode_key
from tidegate.keys.key import TopicKey
from tidegate.keys.pair import Kem, PrivateKey, PublicKey
from tidegate.keys.rest import MasterKeySet, master_id, new_master, parse_masters
from tidegate.keys.ring import OVERLAP, ROTATE, USES, Ring, Snapshot
from tidegate.keys.sealing import NONCE, key_id, seal, unseal
from tidegate.keys.steady import Steady
from tidegate.keys.wrapping import ReadKey, unwrap, valid_request, wrap

__all__ = [
    "NONCE",
    "OVERLAP",
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
    "Snapshot",
    "Steady",
    "TopicKey",
    "bound",
    "decode",
    "decode_key",
    "encode",
    "encode_key",
    "key_id",
    "master_id",
    "new_master",
    "open_message",
    "parse_masters",
    "protecting",
    "read_key",
    "seal",
    "unseal",
    "unwrap",
    "valid_request",
    "wrap",
]
