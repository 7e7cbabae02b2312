"""Tests of the rules themselves (`tests`), and subjects as people name one in them and on the command line.

`user:mary`, `client:tr1`, `user:mary/client:tr1`, `user:alice@remotegym`, `service:pipeline`; and between scopes
`scope:gym` and `link:gym->brand`. A subject's name only says who is meant; what is known of them is the directory's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field, JsonValue, ValidationInfo

from tidegate import policy, topics
from tidegate.config.policies import parses
from tidegate.config.problems import Finding, requires
from tidegate.config.section import CheckedSection, Identity
from tidegate.config.units import Count, Moment, Switch
from tidegate.errors import ConfigError

_EXAMPLE: Final = "write for example `user:mary`, `client:tr1`, `user:mary/client:tr1` or `service:pipeline`"
_SETTABLE: Final = re.compile(r"[sope](\.[A-Za-z_][A-Za-z0-9_]*)+")


class Operation(StrEnum):
    """What a test of the rules tries."""

    READ = "read"
    WRITE = "write"
    SUBSCRIBE = "subscribe"


NO_EFFECT: Final[Mapping[str, tuple[str, ...]]] = {
    Operation.READ: (),
    Operation.WRITE: ("from", "where"),
    Operation.SUBSCRIBE: ("from", "payload", "qos", "retain"),
}
"""By action: what a question about it must not have, because it would look as if it had been considered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectName:
    """Somebody who acts. `domain` is empty for people of the node's own domain."""

    kind: str = "client"
    """`client`, `service`, `scope` or `link`; a user acts through a client."""
    name: str = ""
    """The client identifier, the service, the scope or `A->B`; empty for a user of whom no client is named."""
    user: str | None = None
    domain: str = ""

    def __str__(self) -> str:
        if self.user is None:
            return f"{self.kind}:{self.name}"
        person = f"user:{self.user}@{self.domain}" if self.domain else f"user:{self.user}"
        return f"{person}/client:{self.name}" if self.name else person


def parse_subject_name(text: str) -> SubjectName:
    """Reads a subject; ConfigError says what is wrong."""
    sort, _, name = text.partition(":")
    match sort:
        case "user":
            person, slash, client = name.partition("/client:")
            if slash and not client:
                raise ConfigError(f"`{text}` names no client: {_EXAMPLE}")
            user, at, domain = person.rpartition("@") if "@" in person else (person, "", "")
            if not user or (at and not domain):
                raise ConfigError(f"`{text}` names nobody: write `user:name` or `user:name@domain`")
            return SubjectName(name=client, user=user, domain=domain)
        case "client" | "service" | "scope" if name:
            return SubjectName(kind=sort, name=name)
        case "link":
            (term,) = policy.Selector.parse(text).terms
            return SubjectName(kind=sort, name=term.name)
        case _:
            raise ConfigError(f"`{text}` is nobody who acts: {_EXAMPLE}")


Settable = Annotated[str, requires(_SETTABLE.fullmatch, "is no attribute; write for example `s.level` or `e.location`")]
SubjectText = Annotated[str, parses(lambda _, text: parse_subject_name(text))]


class RuleTest(CheckedSection):
    """A test of the rules themselves: what should be decided. `tidegate check` runs it."""

    subject: SubjectText = Field(alias="as")
    """Who acts: `user:mary`, `client:tr1`, `user:mary/client:tr1`, `user:alice@remotegym`, `service:pipeline`; or
    what forwards (`write`) and imports (`read`): `link:A->B`, `scope:A`."""
    action: Operation
    """What is done: `read`, `write` or `subscribe`."""
    topic: Identity
    """The topic; for `subscribe`, the filter."""
    publisher: SubjectText | None = Field(default=None, alias="from")
    """For `read`: who published the message."""
    payload: JsonValue = None
    """Content of the message: text as it is, anything else as JSON. Default: empty."""
    properties: Mapping[str, str] = Field(default_factory=dict)
    """MQTT user properties of the message, or of the subscription."""
    qos: Count = Field(default=0, ge=0, le=2)
    """QoS of the message."""
    retain: Switch = False
    """Whether the message is retained."""
    at: Moment | None = None
    """When: `2026-03-02T09:30:00`, in the time zone of the node unless it says another. Default: now."""
    set: Mapping[Settable, JsonValue] = Field(default_factory=dict)
    """Attributes to assume, such as `{s.level: tls}`."""
    expect: policy.Effect
    """What should be decided: `allow` or `deny`."""
    by: str | None = None
    """The id of the rule that should decide it. Default: any."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.action is Operation.SUBSCRIBE:
            if not topics.valid_filter(self.topic):
                yield ("topic",), "is no topic filter; `+` is a whole level, `#` the whole last one"
        elif not topics.valid_topic(self.topic):
            yield ("topic",), f"is no topic, and `{self.action}` is of one; write it without `+` and `#`"
        given = {"from" if name == "publisher" else name for name in self.model_fields_set}
        for key in NO_EFFECT[self.action]:
            if key in given:
                yield (key,), f"has no effect on `{self.action}`; remove it"

    def moment(self, zone: Any) -> datetime | None:
        """`at`, in the node's time zone where it says no other."""
        return self.at if self.at is None or self.at.tzinfo else self.at.replace(tzinfo=zone)
