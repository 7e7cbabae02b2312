"""Values of a document, each as what it has to be, or `ConfigError` with the place and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from tidegate import topics
from tidegate.errors import ConfigError


def fields_of(written: object, place: str, *, needs: Sequence[str] = (), may: Sequence[str] = ()) -> dict[str, Any]:
    """Pairs with these names only."""
    fields = a_mapping(written, place)
    known = (*needs, *may)
    for name in fields:
        if name not in known:
            near = get_close_matches(name, known, 1)
            mend = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"
            raise ConfigError(f"{place}: `{name}` is unknown: {mend}")
    for name in needs:
        if name not in fields:
            raise ConfigError(f"{place}: `{name}` is missing: add it")
    return fields


def a_mapping(written: object, place: str) -> dict[str, Any]:
    if not isinstance(written, dict):
        raise ConfigError(f"{place}: write `name: value` pairs here, not {_kind(written)}")
    return {str(name): value for name, value in written.items()}


def a_list(written: object, place: str) -> list[Any]:
    if not isinstance(written, list):
        raise ConfigError(f"{place}: write a list here, not {_kind(written)}")
    return written


def a_flag(written: object, place: str) -> bool:
    if not isinstance(written, bool):
        raise ConfigError(f"{place}: write true or false, not {_kind(written)}")
    return written


def a_text(written: object, place: str) -> str:
    if not isinstance(written, str) or not written:
        raise ConfigError(f"{place}: write a name here, not {_kind(written)}")
    return written


def a_filter(written: object, place: str) -> str:
    if not isinstance(written, str) or not topics.valid_filter(written):
        raise ConfigError(f"{place}: `{written}` is no topic filter: `+` and `#` stand for whole levels, `#` only last")
    return written


def _kind(written: object) -> str:
    return "nothing" if written is None else f"`{written}`"
