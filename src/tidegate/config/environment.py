"""`${NAME}` in the values of the file is replaced by an environment variable.

`$${` stands for a literal `${`. A dollar sign that is not followed by `{` means nothing, so argon2 hashes
(`$argon2id$v=19$...`) stay as they are. The replacement happens after YAML was parsed: a variable can
change a value, never the structure of the file. What a variable contained is never repeated in a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_REFERENCE: Final = re.compile(r"\$?\$\{([^}]*)(\}?)")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BadReference(ValueError):
    """A `${...}` that cannot be replaced; the text says what is wrong and how to mend it."""


def expand(text: str, variables: Mapping[str, str] | None) -> str:
    """The text with every `${NAME}` replaced; without `variables` there must be none."""
    if "${" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return found[0][1:]
        if not found[2]:
            raise BadReference("`${` is never closed; write `${NAME}`, or `$${` for a literal `${`")
        name = found[1]
        if not _NAME.fullmatch(name):
            raise BadReference(f"`${{{name}}}` names no variable; write `${{NAME}}`, or `$${{` for a literal `${{`")
        if variables is None:
            raise BadReference(f"`${{{name}}}` is not replaced in this file; write the value, or `$${{` for `${{`")
        if name not in variables:
            raise BadReference(f"the environment variable `{name}` is not set; set it, or write a value")
        return variables[name]

    return _REFERENCE.sub(value, text)
