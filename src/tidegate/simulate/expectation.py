"""What a scenario expects: which events a client hears, and which it must never hear.

An expectation speaks of one outcome. Whether it holds of one run, of many or of all is up to whoever asks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final

from tidegate.config.document import DocumentValue
from tidegate.monitor import Event
from tidegate.simulate.schema import Entity, Symbol
from tidegate.topics import matches, valid_filter

NO_CLIENT: Final = "is `{}`, which is no client of the scenario; add it to `clients`, or mend its name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """How often a client hears what matches a filter."""

    client: Entity
    filter: str
    times: int | None = None
    """None: at least once."""

    def met(self, heard: Iterable[Symbol]) -> bool:
        """Whether it holds of what the client has heard."""
        times = sum(isinstance(symbol, Event) and matches(self.filter, symbol.topic) for symbol in heard)
        return times > 0 if self.times is None else times == self.times

    def __str__(self) -> str:
        match self.times:
            case None:
                often = ""
            case 0:
                return f"{self.client} never hears {self.filter}"
            case 1:
                often = " once"
            case times:
                often = f" {times} times"
        return f"{self.client} hears {self.filter}{often}"


def expectation(value: DocumentValue, clients: Container[Entity]) -> Expectation | None:
    """`{client: DL, hears: FILTER, times: 1}` or `{client: DL, never: FILTER}`; None if it has problems."""
    entries = value.entries(("client", "hears", "times", "never"), needed=("client",))
    if entries is None or "client" not in entries:
        return None
    name = entries["client"].node.data()
    client = f"client:{name}"
    if client not in clients:
        entries["client"].wrong(NO_CLIENT.format(name))
    if ("hears" in entries) is ("never" in entries):
        value.wrong("must have `hears` or `never`; write one of the two")
        return None
    filter = topic_filter(entries["never" if "never" in entries else "hears"])
    times: int | None = 0 if "never" in entries else None
    if "times" in entries:
        written = entries["times"].node.value
        if "never" in entries:
            entries["times"].wrong("has no effect beside `never`; remove it")
        elif isinstance(written, bool) or not isinstance(written, int) or written < 1:
            entries["times"].wrong("must be at least 1; for 0 write `never`")
        else:
            times = written
    return None if filter is None else Expectation(client=client, filter=filter, times=times)


def topic_filter(value: DocumentValue) -> str | None:
    """A topic filter."""
    filter = value.node.value
    if not isinstance(filter, str) or not valid_filter(filter):
        value.wrong("must be a topic filter; write `+` and `#` for whole levels, and `#` only last")
        return None
    return filter
