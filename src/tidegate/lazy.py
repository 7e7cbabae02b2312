"""Modules that are imported when they are first used.

cryptography, x509 and joserfc take 0.1 s and 12 MB to import, and a broker without keys, certificates and capabilities
needs none of them.

    if TYPE_CHECKING:
        from cryptography.hazmat.primitives.ciphers import aead
    else:
        aead = LazyModule("cryptography.hazmat.primitives.ciphers.aead")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """Stands for a module. A name that was used once costs what an attribute costs."""

    def __init__(self, name: str) -> None:
        self._module_name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._module_name), name)
        setattr(self, name, value)
        return value
