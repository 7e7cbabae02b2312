"""Functions that administrators add in Python (`functions: [package.module:name]`; semantics, *Predicates*).

Whatever such a function raises is an error of CEL, and what it returns is checked: nothing else comes out of it.
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from tidegate.errors import ConfigError
from tidegate.predicate.failure import CelError, PredicateFailed
from tidegate.predicate.signature import Function
from tidegate.predicate.types import INT_MAX, INT_MIN, KINDS, Kind, kind

_FOREIGN: Final[Mapping[object, Kind]] = {
    **{python: cel for python, cel in KINDS.items() if python is not tuple},
    datetime: Kind.TIMESTAMP,
    timedelta: Kind.DURATION,
}


def function(*, volatile: bool = False) -> Callable[[Callable[..., object]], Function]:
    """Make a Python function callable from predicates.

    Parameters annotated with a type of CEL are checked before each call. Set `volatile` if the result depends on
    anything but the arguments. It runs on the event loop: it must be quick and must not block, because a call counts
    as a few operations whatever it does.
    """

    def wrap(python: Callable[..., object]) -> Function:
        name = getattr(python, "__name__", "function")
        try:
            hints = typing.get_type_hints(python)
        except (NameError, TypeError) as error:
            raise ConfigError(f"function {name}: the annotations cannot be read: {error}") from error
        takes: list[Kind] = []
        least = 0
        for parameter in inspect.signature(python).parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                raise ConfigError(f"function {name}: {parameter} cannot be given by position")
            takes.append(_annotated(hints.get(parameter.name, object)))
            if parameter.default is parameter.empty:
                least = len(takes)
        result = _annotated(hints["return"]) if "return" in hints else Kind.ANY
        overloads = tuple((tuple(takes[:count]), result) for count in range(least, len(takes) + 1))
        run = _guarded(name, python, takes)
        return Function(name=name, run=run, overloads=overloads, volatile=volatile, foreign=True)

    return wrap


def load_function(reference: str) -> Function:
    module, colon, name = reference.partition(":")
    if not colon or not module or not name:
        raise ConfigError(f"function {reference!r}: expected package.module:name")
    try:
        function = getattr(importlib.import_module(module), name)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"function {reference!r}: {type(error).__name__}: {error}") from error
    if not isinstance(function, Function):
        raise ConfigError(f"function {reference!r}: decorate it with @function()")
    return function


def _annotated(hint: object) -> Kind:
    origin = typing.get_origin(hint) or hint
    try:
        return _FOREIGN.get(origin, Kind.ANY)
    except TypeError:  # an annotation that cannot be hashed says nothing to CEL
        return Kind.ANY


def _guarded(name: str, python: Callable[..., object], takes: list[Kind]) -> Callable[..., object]:
    """The Python function, given and giving only values of CEL; whatever it raises is an error of CEL."""

    def call(*arguments: object) -> object:
        for want, argument in zip(takes, arguments, strict=False):
            if want is not Kind.ANY and kind(argument) is not want:
                raise CelError(f"{name}: {kind(argument).value} where {want.value} is expected")
        try:
            result = python(*arguments)
        except (CelError, PredicateFailed):
            raise
        except Exception as error:
            raise CelError(f"{name}: {type(error).__name__}: {error}") from error
        if kind(result) in (Kind.OPAQUE, Kind.GROUP):
            raise CelError(f"{name}: a Python {type(result).__name__} is no value of CEL")
        if kind(result) is Kind.INT and not INT_MIN <= result <= INT_MAX:  # type: ignore[operator]
            raise CelError(f"{name}: integer overflow")
        return result

    return call
