"""What all sections of the configuration share: how they treat unknown keys, and the kinds of names.

A value that may be one thing or a list of them is told apart by its shape. Pydantic then puts a tag into the
place of an error; the tags stand in square brackets and are left out when the place is told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo
from pydantic_core import PydanticCustomError

from tidegate.config.problems import PLAIN_NAME
from tidegate.config.units import refusal

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


@cache
def describe() -> None:
    """Gives each field of the configuration the text below it as its description.

    Pydantic can do that when a class is made, but reads the sources to do it: a tenth of the time in which a node
    starts, which needs no descriptions unless something is missing.
    """
    for section in sections():
        for base in reversed(section.__mro__):
            if issubclass(base, Section) and base is not Section:
                for name, text in _texts(base).items():
                    section.model_fields[name].description = text


def sections(below: type[Section] = Section) -> list[type[Section]]:
    """All sections of the configuration."""
    return [each for child in below.__subclasses__() for each in (child, *sections(child))]


@cache
def _texts(section: type[Section]) -> dict[str, str]:
    """The text below each field of a class, by its name."""
    import ast
    import inspect

    (written,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(section))).body
    assert isinstance(written, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, text in pairwise(written.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as words)):
                texts[name] = inspect.cleandoc(words)
    return texts


def shape(written: object) -> str:
    """Whether a value that may be one thing or a list of them is a list."""
    return LIST if isinstance(written, list | tuple) else ONE


def form(written: object) -> str:
    """Whether a value that may be a text, a list or a mapping is which of them."""
    return TABLE if isinstance(written, Mapping | BaseModel) else shape(written)


def not_yet(how: str) -> PydanticCustomError:
    """The refusal of a value that a later version will understand; `how` is as in "as `true`"."""
    return PydanticCustomError("not_yet", "{how}", {"how": how})


def _name(written: str) -> str:
    if not PLAIN_NAME.fullmatch(written):
        raise refusal("must be a name; write at most 64 letters, digits, `.`, `_` and `-`")
    return written


def _identity(written: str) -> str:
    if not written or len(written.encode(errors="surrogatepass")) > 65535 or _CONTROL.search(written):
        raise refusal("must have 1 to 65535 bytes and no control characters; choose another name")
    return written


def _person(written: str) -> str:
    if "@" in written:
        raise refusal("has an `@`, which stands between a name and its domain; choose a name without one")
    return written


def _python_name(written: str) -> str:
    if not _CALLABLE.fullmatch(written):
        raise refusal("must name a Python callable; write `package.module:factory`")
    return written


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


Name = Annotated[str, AfterValidator(_name)]
Identity = Annotated[str, AfterValidator(_identity)]
Person = Annotated[Identity, AfterValidator(_person)]
PythonName = Annotated[str, AfterValidator(_python_name)]
FilePath = Annotated[Path, AfterValidator(beside)]
