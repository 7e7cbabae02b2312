"""Password hashes of Mosquitto, verified: `$7$` (PBKDF2 with SHA-512) and `$6$` (one round of SHA-512).

`config.directory` says how they are written. Whoever verifies one also computes an argon2 hash: else the time taken
would tell whose password is still in the old form.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from typing import Final

PREFIXES: Final = ("$6$", "$7$")


def matches(stored: str, password: bytes) -> bool:
    """Whether this is the password. ValueError if the hash is none."""
    match stored.split("$"):
        case ["", "6", salt, expected]:
            computed = hashlib.sha512(password + b64decode(salt, validate=True)).digest()
        case ["", "7", iterations, salt, expected]:
            salted = b64decode(salt, validate=True)
            computed = hashlib.pbkdf2_hmac("sha512", password, salted, int(iterations))
        case _:
            raise ValueError("no hash of Mosquitto")
    return hmac.compare_digest(computed, b64decode(expected, validate=True))
