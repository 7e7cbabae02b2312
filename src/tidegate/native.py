"""What a class tells mypyc, which compiles some rooms (`compiled`). Where they are not compiled it means nothing.

    @mypyc_attr(allow_interpreted_subclasses=True)

on a class of a compiled room: rooms that are not compiled, and tests, inherit from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_):
        return _same


__all__ = ["mypyc_attr"]

T = TypeVar("T")


def _same(native: T) -> T:
    return native
