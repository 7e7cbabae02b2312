"""The worked example of the page on capabilities: its bytes are those that the node verifies."""

from __future__ import annotations

import re

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from docs.pages import ROOT
from tidegate.policy.capability.jwk import decoded
from tidegate.policy.capability.proof import Asked, response, statement, verified

PAGE = (ROOT / "docs/policies/capabilities.md").read_text()
# RFC 8032, 7.1, test 1
KEY = Ed25519PublicKey.from_public_bytes(
    bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
)
ASKED = Asked(qos=(1,), retain=False, expiry=60, properties=(("require", "tls"),))
SAID = statement("mary-1", "user:mary", "write", "gym/mary/speed", b"11.2", 1, ASKED)


def shown(pattern: str) -> str:
    found = re.search(f"^{pattern}$", PAGE, re.MULTILINE)
    assert found is not None, pattern
    return found[1]


def test_what_is_signed() -> None:
    assert shown("signed ([0-9a-f]+)") == SAID.hex()
    (pieces,) = re.findall(r"^7469646567617465.*?(?=^```)", PAGE, re.MULTILINE | re.DOTALL)
    hexadecimal = "".join(line.partition("  ")[0].replace(" ", "") for line in pieces.splitlines())
    assert hexadecimal == SAID.hex()


def test_the_signatures() -> None:
    assert verified(KEY, decoded(shown(r"proof 1\.(\S+)")) or b"", SAID)
    asked = response("mary-1", "user:mary", "phone", bytes(range(32)))
    assert verified(KEY, bytes.fromhex(shown("answer ([0-9a-f]+)")), asked)
