"""For applications: publish and subscribe with levels, capabilities and topic keys.

`Client` does everything by itself, over aiomqtt. With another MQTT library `open_message` and `read_key` are all it
takes, and a `Keychain` to keep keys in.
"""

from __future__ import annotations

from tidegate.client.client import V5, V311, Client
from tidegate.client.decryption import Message
from tidegate.client.exceptions import Denied, Refused, Unreachable
from tidegate.errors import KeysError
from tidegate.keys import Kem, Keychain, PrivateKey, PublicKey, key_id, open_message, read_key

__all__ = [
    "V5",
    "V311",
    "Client",
    "Denied",
    "Kem",
    "Keychain",
    "KeysError",
    "Message",
    "PrivateKey",
    "PublicKey",
    "Refused",
    "Unreachable",
    "key_id",
    "open_message",
    "read_key",
]
