"""What is asked of the rules: on the command line, over HTTP, and by the tests of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from annotated_types import Ge, Le, Len
from pydantic import Strict

from tidegate.config import Operation
from tidegate.net.control_command import ControlCommand, Flag, Seconds, Text, command

Pairs = tuple[tuple[str, str], ...]
Qos = Annotated[int, Strict(), Ge(0), Le(2)]


@command("explain")
class Question(ControlCommand):
    """May somebody do something with a topic? Also the control command that asks a node, by the rules in force."""

    subject: Text
    """As on the command line: `user:mary/client:tr1`."""
    action: Operation
    topic: Text
    """For `subscribe` the filter."""
    publisher: Text | None = None
    payload: bytes = b""
    qos: Qos = 0
    retain: Flag = False
    properties: Pairs = ()
    """User properties of the message."""
    terms: Pairs = ()
    """User properties of the subscription: `where`, `require`."""
    at: Seconds | None = None
    """Since 1970; None: now."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Attributes to assume, by path: `s.level`."""

    @classmethod
    def about(
        cls, action: Operation, given: Pairs, where: str | None = None, require: str | None = None, **rest: Any
    ) -> Question:
        """A question with user properties: those of a subscription where the action is to subscribe, else of a message.

        `where` is the subscription's, and so is `require`, except for a write: then the message demands a level.
        """
        terms = tuple((name, value) for name, value in (("where", where), ("require", require)) if value is not None)
        match action:
            case Operation.SUBSCRIBE:
                return cls(action=action, terms=(*given, *terms), **rest)
            case Operation.WRITE:
                return cls(action=action, properties=(*given, *terms), **rest)
            case Operation.READ:
                return cls(action=action, properties=given, terms=terms, **rest)


@command("explain_through")
class QuestionThrough(Question):
    """The same of a message that crosses a link to another node, which is asked for its part."""

    through: Text
    """The node, by its name, domain or scope; or the directed link that the message crosses: `gym->remotegym`."""


@command("explain_many")
class Questions(ControlCommand):
    """Several at once: only the verdict of each is told."""

    questions: Annotated[tuple[Question, ...], Len(1, 200)]
