"""What all sections of the configuration share: how they treat unknown keys, and the kinds of names.

A value that may be one thing or a list of them is told apart by its shape. Pydantic then puts a tag into the
place of an error; the tags stand in square brackets and are left out when the place is told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationInfo, model_validator

from tidegate.config.problems import PLAIN_NAME, Finding, combined_problems, refusal, requires

T = TypeVar("T")

ONE: Final = "[one]"
LIST: Final = "[list]"
TABLE: Final = "[table]"
TAGS: Final = frozenset(("[key]", ONE, LIST, TABLE))
"""Steps of a place that are not in the file."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CALLABLE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class Section(BaseModel):
    """A mapping of the file. Keys it does not know are errors, and nothing changes it."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        defer_build=True,  # what is only part of others is built with them
        hide_input_in_errors=True,  # a password must not end up in a traceback
    )


class CheckedSection(Section):
    """A section whose values may contradict each other."""

    def _problems(self, info: ValidationInfo) -> Iterable[Finding]:
        """What is wrong with the values together."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        if findings := list(self._problems(info)):
            raise combined_problems(findings)
        return self


@cache
def descriptions(section: type[BaseModel]) -> dict[str, str]:
    """The text below each field of a section, by its key.

    Pydantic can take these when it makes a class, but it reads the sources for that, which takes a tenth of the start
    of a node. A node needs descriptions only to report that a key is missing.
    """
    import ast
    import inspect

    texts: dict[str, str] = {}
    for base in reversed(section.__mro__[: section.__mro__.index(BaseModel)]):
        (written,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base))).body
        assert isinstance(written, ast.ClassDef)
        for field, text in pairwise(written.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as words)):
                    texts[name] = inspect.cleandoc(words)
    return {field.alias or name: texts[name] for name, field in section.model_fields.items() if name in texts}


def shape(written: object) -> str:
    """The tag of a value that is either one thing or a list of them."""
    return LIST if isinstance(written, list | tuple) else ONE


def form(written: object) -> str:
    """The tag of a value that is a text, a list or a mapping."""
    return TABLE if isinstance(written, Mapping | BaseModel) else shape(written)


def as_tuple(value: T | tuple[T, ...]) -> tuple[T, ...]:
    """A value that is either one thing or a list of them, as a list."""
    return value if isinstance(value, tuple) else (value,)


def listed(value: T | tuple[T, ...]) -> Iterable[tuple[tuple[int, ...], T]]:
    """Each entry of such a value, with its path below the key."""
    return [((index,), each) for index, each in enumerate(value)] if isinstance(value, tuple) else [((), value)]


def _is_identity(written: str) -> bool:
    return 1 <= len(written.encode(errors="surrogatepass")) <= 65535 and not _CONTROL.search(written)


def beside(written: Path, info: ValidationInfo) -> Path:
    """A path as it is meant: relative to the folder of the file."""
    if _CONTROL.search(str(written)):
        raise refusal("has a control character; write the path without it")
    folder = (info.context or {}).get("folder")
    if folder is None:
        return written
    try:
        # Absolute, so that it means the same after a change of the working folder.
        return Path(os.path.abspath(Path(folder) / written.expanduser()))
    except RuntimeError:
        raise refusal("begins with the home folder of nobody; write the path out") from None


Name = Annotated[
    str, requires(PLAIN_NAME.fullmatch, "must be a name; write at most 64 letters, digits, `.`, `_` and `-`")
]
Identity = Annotated[
    str, requires(_is_identity, "must have 1 to 65535 bytes and no control characters; choose another name")
]
_NO_DOMAIN: Final = "has an `@`, which stands between a name and its domain; choose a name without one"
Person = Annotated[Identity, requires(lambda name: "@" not in name, _NO_DOMAIN)]
PythonName = Annotated[
    str, requires(_CALLABLE.fullmatch, "must name a Python callable; write `package.module:factory`")
]
OneOrList = Annotated[Annotated[T, Tag(ONE)] | Annotated[tuple[T, ...], Tag(LIST)], Discriminator(shape)]
OneOrMore = Annotated[
    Annotated[T, Tag(ONE)] | Annotated[tuple[T, ...], Field(min_length=1), Tag(LIST)], Discriminator(shape)
]
FilePath = Annotated[Path, AfterValidator(beside)]
