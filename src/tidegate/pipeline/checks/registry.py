"""What a check is, which there are, and whether the arguments that a rule gives it are right.

A check is a function from arguments to a column of scores between 0 and 1, null where it has nothing to say. Its
signature is all that is declared: names, kinds (by annotation), defaults. A rule's arguments are read by it, so that a
check never sees one of the wrong kind. Importing this needs no Spark; only calling a check does.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic_core import PydanticCustomError

from tidegate.config import units
from tidegate.config.problems import remedy
from tidegate.errors import PipelineError
from tidegate.pipeline.columns import DIMENSIONS, F
from tidegate.pipeline.conditions import COLUMNS, Kind

if TYPE_CHECKING:
    from pyspark.sql import Column

Duration: TypeAlias = Annotated[float, "duration"]
"""An argument that is written as `2s` and arrives as seconds."""
Number: TypeAlias = Annotated["Column", Kind.NUMBER]
"""An argument that is written as the name of a column with numbers, and arrives as the column."""

Columns: TypeAlias = Annotated[tuple[str, ...], "columns"]
"""An argument that is a list of names of any columns, and arrives as the names."""

LARGEST: Final = 1e150
"""Of a number as an argument: differences and ratios of smaller ones are still numbers."""
MAX_ITEMS: Final = 256  # of a list as an argument


class Evidence(StrEnum):
    """What a check needs to know besides the record itself; each is a struct column while scores are computed."""

    HISTORY = "_history"  # what is known of the series (source, name) from the batches before
    SERIES = "_series"  # what this batch holds of the series
    STEPS = "_steps"  # how far apart the values of the series in this batch are
    GAPS = "_gaps"  # how long the series was silent in this batch
    NEIGHBOURS = "_neighbours"
    """What other sources of the same type say under the same name in this batch."""


Read: TypeAlias = Callable[[object], object]
"""Reads an argument; ValueError completes the sentence "it must be ..."."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str
    form: str
    read: Read
    required: bool
    default: object = None

    def __str__(self) -> str:
        if self.required:
            return f"{self.name}: {self.form}"
        return f"{self.name}: {self.form} = {_shown(self.default, self.form)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    dimensions: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    needs: frozenset[Evidence]
    ascending: tuple[tuple[str, str], ...]
    least: Mapping[str, float]
    members: tuple[tuple[str, str], ...]
    function: Callable[..., Column]

    @property
    def about(self) -> str:
        return " ".join((inspect.getdoc(self.function) or "").split())

    def problems(self, given: Mapping[str, object]) -> Iterator[str]:
        """What is wrong with these arguments, each with its remedy."""
        return iter(self._read(given)[1])

    def _read(self, given: Mapping[str, object]) -> tuple[dict[str, Any], list[str]]:
        """What the function is called with, as far as it is right; and the problems."""
        problems: list[str] = []
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                takes = f"it takes {', '.join(known)}" if known else "it takes none; leave `args` out"
                problems.append(f"`{self.name}` has no argument `{name}`; {remedy(str(name), known, takes)}")
        values: dict[str, Any] = {}
        for parameter in self.parameters:
            if parameter.name not in given:
                if parameter.required:
                    problems.append(f"`{self.name}` needs `{parameter.name}`; add it to `args`: a {parameter.form}")
                else:
                    values[parameter.name] = parameter.default
                continue
            try:
                values[parameter.name] = parameter.read(given[parameter.name])
            except ValueError as error:
                problems.append(f"`{parameter.name}` of `{self.name}` must be {error}")
        for name, bound in self.least.items():
            if name in values and values[name] < bound:
                problems.append(f"`{name}` of `{self.name}` must be at least {bound:g}; write a larger one")
        for low, high in self.ascending:
            if low in values and high in values and not values[low] < values[high]:
                problems.append(
                    f"`{low}` of `{self.name}` must be below `{high}`; write a smaller `{low}` or a larger `{high}`"
                )
        for name, among in self.members:
            if name in values and among in values and values[name] not in values[among]:
                problems.append(
                    f"`{name}` of `{self.name}` must be in `{among}`; write one of {', '.join(values[among])}"
                )
        return values, problems

    def __call__(self, given: Mapping[str, object]) -> Column:
        """The column for a rule's arguments, with names of columns made columns."""
        arguments, wrong = self._read(given)
        if wrong:
            raise PipelineError("; ".join(wrong))
        for parameter in self.parameters:
            if parameter.form == _COLUMN:
                arguments[parameter.name] = F.col(str(arguments[parameter.name]))
        return self.function(**arguments)


REGISTRY: Final[dict[str, Check]] = {}  # every check by name

_Function = typing.TypeVar("_Function", bound=Callable[..., Any])


def check(
    *,
    dimension: str | tuple[str, ...],
    needs: Sequence[Evidence] = (),
    ascending: Sequence[tuple[str, str]] = (),
    least: Mapping[str, float] | None = None,
    members: Sequence[tuple[str, str]] = (),
) -> Callable[[_Function], _Function]:
    """Registers a function as the check of its name.

    In each pair of `ascending` the first argument must be below the second, in each of `members` one of its items.
    """
    dimensions = (dimension,) if isinstance(dimension, str) else dimension

    def register(function: _Function) -> _Function:
        name = function.__name__
        if name in REGISTRY or not set(dimensions) <= set(DIMENSIONS):
            raise ValueError(f"check {name!r} is there already, or judges none of the dimensions")
        # Column is no name here unless somebody checks types; that of an annotation is all that matters
        hints = typing.get_type_hints(function, localns={"Column": object}, include_extras=True)
        parameters = []
        for parameter in inspect.signature(function).parameters.values():
            form, read = _form(hints[parameter.name])
            required = parameter.default is inspect.Parameter.empty
            default = None if required else parameter.default
            parameters.append(Parameter(name=parameter.name, form=form, read=read, required=required, default=default))
        REGISTRY[name] = Check(
            name=name,
            dimensions=dimensions,
            parameters=tuple(parameters),
            needs=frozenset(needs),
            ascending=tuple(ascending),
            least=dict(least or {}),
            members=tuple(members),
            function=function,
        )
        return function

    return register


_COLUMN: Final = "column of numbers"
_DURATION: Final = "duration"


def _form(hint: object) -> tuple[str, Read]:
    """How an argument with this annotation is told, and how it is read."""
    if typing.get_origin(hint) is Annotated and Kind.NUMBER in typing.get_args(hint):
        return _COLUMN, _number_column
    if typing.get_origin(hint) is typing.Literal:
        choices = typing.get_args(hint)
        return " or ".join(choices), lambda written: _choice(written, choices)
    forms: dict[object, tuple[str, Read]] = {
        Duration: (_DURATION, _duration),
        float: ("number", _number),
        int: ("whole number", _whole),
        str: ("text", _text),
        tuple[str, ...]: ("list of texts", lambda written: tuple(map(_text, _items(written)))),
        Columns: ("list of columns", lambda written: tuple(map(_any_column, _items(written)))),
    }
    if hint not in forms:
        raise TypeError(f"no argument of a check is annotated as {hint}")
    return forms[hint]


def _number(written: object) -> float:
    if isinstance(written, bool) or not isinstance(written, int | float):
        raise ValueError(f"a number, not {_shown(written)}; write for example 0.5")
    if (isinstance(written, float) and not math.isfinite(written)) or abs(written) > LARGEST:
        raise ValueError(f"a number of at most {LARGEST:g}; write a smaller one")
    return float(written)


def _whole(written: object) -> int:
    if isinstance(written, bool) or not isinstance(written, int) or abs(written) > 10**9:
        raise ValueError(f"a whole number of at most 1000000000, not {_shown(written)}; write for example 10")
    return written


def _duration(written: object) -> float:
    try:
        return units.duration(written)
    except PydanticCustomError:
        raise ValueError(f"a duration, not {_shown(written)}; write for example `500ms`, `2s` or `5m`") from None


def _text(written: object) -> str:
    if not isinstance(written, str) or not written or len(written) > 1000 or not written.isprintable():
        raise ValueError(f"a text, not {_shown(written)}; put it in quotes")
    return written


def _items(written: object) -> Sequence[object]:
    if not isinstance(written, list | tuple) or not written or len(written) > MAX_ITEMS:
        raise ValueError(f"a list of 1 to {MAX_ITEMS}, not {_shown(written)}; write for example [a, b]")
    return written


def _choice(written: object, choices: Sequence[str]) -> str:
    if not isinstance(written, str) or written not in choices:
        raise ValueError(f"{' or '.join(choices)}, not {_shown(written)}; write one of them")
    return written


def _any_column(written: object) -> str:
    name = _text(written)
    if name not in COLUMNS:
        mend = remedy(name, COLUMNS, f"there is {', '.join(COLUMNS)}")
        raise ValueError(f"a column of a record, not {_shown(written)}; {mend}")
    return name


def _number_column(written: object) -> str:
    name = _any_column(written)
    if COLUMNS[name] is not Kind.NUMBER:
        numbers = ", ".join(name for name, kind in COLUMNS.items() if kind is Kind.NUMBER)
        raise ValueError(f"a column of numbers, and `{name}` is one of kind {COLUMNS[name]}; there is {numbers}")
    return name


def _shown(value: object, form: str = "") -> str:
    if form == _DURATION and isinstance(value, float):
        return units.duration_text(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, value)) + "]"
    text = repr(value) if isinstance(value, str) and not value.isalnum() else str(value)
    return text if len(text) <= 60 else text[:60] + "…"
