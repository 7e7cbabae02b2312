"""What a scenario expects: which events a client hears, and which it must never hear.

An expectation speaks of one outcome. Whether it holds of one run, of many or of all is up to whoever asks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from tidegate.errors import ConfigError
from tidegate.monitor import Event
from tidegate.simulate.reading import a_filter, fields_of
from tidegate.simulate.schema import Entity, Symbol
from tidegate.topics import matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """How often a client hears what matches a filter."""

    client: Entity
    filter: str
    times: int | None = None
    """None: at least once."""

    def met(self, heard: Iterable[Symbol]) -> bool:
        """Whether it holds of what the client has heard."""
        found = sum(isinstance(one, Event) and matches(self.filter, one.topic) for one in heard)
        return found > 0 if self.times is None else found == self.times

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


def expectation(written: object, place: str, clients: Container[Entity]) -> Expectation:
    """`{client: DL, hears: FILTER, times: 1}` or `{client: DL, never: FILTER}`."""
    fields = fields_of(written, place, needs=("client",), may=("hears", "times", "never"))
    client = f"client:{fields['client']}"
    if client not in clients:
        raise ConfigError(f"{place}: there is no client `{fields['client']}`: add it to `clients`, or mend its name")
    if ("hears" in fields) is ("never" in fields):
        raise ConfigError(f"{place}: write either `hears` or `never`")
    if "never" in fields:
        if "times" in fields:
            raise ConfigError(f"{place}: `never` needs no `times`: remove it")
        return Expectation(client=client, filter=a_filter(fields["never"], f"{place}, never"), times=0)
    times = fields.get("times")
    if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 1):
        raise ConfigError(f"{place}, times: write how often, at least 1; for 0 write `never`")
    return Expectation(client=client, filter=a_filter(fields["hears"], f"{place}, hears"), times=times)
