"""Control commands with types: the class that the sender fills in is the class that the node reads.

A command is a dataclass whose fields are its arguments on the control socket. `typed` refuses arguments that are
missing, unknown or of another type. It does not decide who may send a command: `control_socket` and
`admin.permissions` do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform

from annotated_types import Ge, Gt, Lt, MinLen
from pydantic import ConfigDict, Strict, TypeAdapter, ValidationError

from tidegate.errors import Problem
from tidegate.net.control_socket import Command

Text = Annotated[str, MinLen(1)]
Flag = Annotated[bool, Strict()]
Version = Annotated[int, Strict(), Gt(0), Lt(2**63)]
"""The number of a change."""
Counter = Annotated[int, Strict(), Ge(0), Lt(2**63)]
Seconds = Annotated[float, Strict(), Ge(0), Lt(1e12)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCommand:
    """A request to a node over its control socket."""

    COMMAND: ClassVar[str]
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    def arguments(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedCommand(ControlCommand):
    """A command that changes something, or with `dry_run` only tells what it would change."""

    by: Text
    why: str = ""
    dry_run: Flag = False
    compared: Flag = True
    """Whether a dry run tells what would be decided differently, which is about others."""


C = TypeVar("C", bound=ControlCommand)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def command(name: str) -> Callable[[type[C]], type[C]]:
    """Makes a dataclass of a class, for the control command of that name."""

    def made(cls: type[C]) -> type[C]:
        cls = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        cls.COMMAND = name
        return cls

    return made


def typed(kind: type[C], do: Callable[[C], Any]) -> tuple[str, Command]:
    """The name of a command, and the function that reads its arguments and does it. Problem if they do not fit."""

    @cache
    def reader() -> TypeAdapter[C]:  # made with the first such command: it takes a millisecond
        return TypeAdapter(kind)

    def run(**arguments: Any) -> Any:
        try:
            request = reader().validate_python(arguments)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False, include_context=False)
            text = "; ".join(f"`{'.'.join(map(str, each['loc']))}`: {each['msg']}" for each in errors[:10])
            raise Problem(text, problem="invalid") from None
        return do(request)

    return kind.COMMAND, run
