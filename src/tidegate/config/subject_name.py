"""A subject as people name one: `user:mary`, `client:tr1`, `user:mary/client:tr1`, `user:alice@remotegym`,
`service:pipeline`; and between scopes `scope:gym` and `link:gym->brand`. The same on the command line and in `tests`.

It only says who is meant; what is known of them is the directory's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidegate.errors import ConfigError
from tidegate.policy import Selector

_EXAMPLE: Final = "write for example `user:mary`, `client:tr1`, `user:mary/client:tr1` or `service:pipeline`"


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
            (term,) = Selector.parse(text).terms
            return SubjectName(kind=sort, name=term.name)
        case _:
            raise ConfigError(f"`{text}` is nobody who acts: {_EXAMPLE}")
