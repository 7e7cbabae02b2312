"""Modules that are imported when they are first used.

cryptography, x509 and joserfc take 0.1 s and 12 MB to import, and a broker without keys, certificates and capabilities
needs none of them; nor re2 (2.4 MB) without regular expressions in its rules. They are here for everybody:

    from tidegate.lazy import aead, exceptions
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any


class LazyModule:
    """Stands for a module. A name that was used once costs what an attribute costs."""

    def __init__(self, name: str) -> None:
        self._module_name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._module_name), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import re2  # type: ignore[import-untyped]
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import hashes, hpke, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mlkem, padding, rsa, x25519
    from cryptography.hazmat.primitives.asymmetric import utils as dss
    from cryptography.hazmat.primitives.ciphers import aead
    from cryptography.hazmat.primitives.kdf import hkdf
    from cryptography.x509 import oid
else:
    exceptions = LazyModule("cryptography.exceptions")
    x509 = LazyModule("cryptography.x509")
    oid = LazyModule("cryptography.x509.oid")
    hashes = LazyModule("cryptography.hazmat.primitives.hashes")
    hpke = LazyModule("cryptography.hazmat.primitives.hpke")
    serialization = LazyModule("cryptography.hazmat.primitives.serialization")
    ec = LazyModule("cryptography.hazmat.primitives.asymmetric.ec")
    ed25519 = LazyModule("cryptography.hazmat.primitives.asymmetric.ed25519")
    mlkem = LazyModule("cryptography.hazmat.primitives.asymmetric.mlkem")
    padding = LazyModule("cryptography.hazmat.primitives.asymmetric.padding")
    rsa = LazyModule("cryptography.hazmat.primitives.asymmetric.rsa")
    x25519 = LazyModule("cryptography.hazmat.primitives.asymmetric.x25519")
    dss = LazyModule("cryptography.hazmat.primitives.asymmetric.utils")
    aead = LazyModule("cryptography.hazmat.primitives.ciphers.aead")
    hkdf = LazyModule("cryptography.hazmat.primitives.kdf.hkdf")
    re2 = LazyModule("re2")

__all__ = ["LazyModule", "aead", "dss", "ec", "ed25519", "exceptions", "hashes", "hkdf", "hpke", "mlkem", "oid"]
__all__ += ["padding", "re2", "rsa", "serialization", "x509", "x25519"]
