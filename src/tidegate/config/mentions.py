"""Where the rules of a configuration mention a person or a client by name.

Whoever gets a name gets what the rules say of it. So a stranger, who is let in to register, cannot have a name that
somebody has written rules about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tidegate.config.model import Config

_SECTIONS: Final = ("policies", "preferences", "views", "brokering", "monitors", "flows", "rules")
_LITERAL: Final = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")


def mention(config: Config, name: str) -> str | None:
    """The first place that mentions a user or a client of that name; None: there is none."""
    for section in _SECTIONS:
        value = getattr(config, section)
        entries = value if isinstance(value, tuple) else (value,)
        for index, entry in enumerate(entries):
            if hasattr(entry, "model_dump") and mentioned(entry.model_dump(mode="json"), name, config.node.domain):
                return getattr(entry, "id", None) or (f"{section}[{index}]" if isinstance(value, tuple) else section)
    return None


def mentioned(value: Any, name: str, domain: str) -> bool:
    """Whether plain data mentions a user of a domain, or a client: in a selector, under the key `user` or `client`, or
    in a condition."""
    names = (name, f"{name}@{domain}")
    selector = re.compile(rf"\b(?:user|client):{re.escape(name)}(?:@{re.escape(domain)})?(?![\w.:@-])")
    return any(
        (key in ("user", "client") and text in names)
        or selector.search(text) is not None
        or any(literal in names for pair in _LITERAL.findall(text) for literal in pair)
        for key, text in _texts(value)
    )


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All texts in plain data, with the key that each stands under."""
    match value:
        case str():
            yield key, value
        case dict():
            for below, each in value.items():
                yield from _texts(each, below)
                yield from _texts(below)
        case list():
            for each in value:
                yield from _texts(each, key)
