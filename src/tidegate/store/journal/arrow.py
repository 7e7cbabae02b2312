"""pyarrow, which is installed with the extra `journal` and imported when a journal is first used.

It takes 0.1 s and 40 MB to import, so nothing here imports it before it is needed.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from tidegate.errors import StoreError

REMEDY: Final = "pip install 'tidegate[journal]'"


@cache
def installed() -> bool:
    return find_spec("pyarrow") is not None


def arrow() -> Any:
    """The module `pyarrow`; StoreError with the remedy if it is not installed."""
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise StoreError(f"journals need pyarrow, which is not installed. Remedy: {REMEDY}") from None
    return pyarrow
