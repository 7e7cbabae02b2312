"""Flows in the configuration: what must not be possible, and what must be.

What is written is understood here. Whether it holds is asked last, of a configuration in which nothing else is wrong:
`violations` says which of it does not, at which place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator

from tidegate.config.checks import Finding
from tidegate.config.parser import problem_text
from tidegate.config.section import Section
from tidegate.config.units import Switch, refusal
from tidegate.errors import ConfigError
from tidegate.flow.assertions import Assertion, Expect
from tidegate.flow.watch import violated

if TYPE_CHECKING:
    from tidegate.config.model import Config

_REMEDY: Final = {
    Expect.FORBID: "take one of these links away, give it another type, or allow less in `brokering`",
    Expect.REQUIRE: "add a link, give one another type, or allow more in `brokering`",
}


def _flow(expect: Expect) -> Callable[[str], str]:
    def check(written: str) -> str:
        try:
            Assertion.parse(written, expect)
        except ConfigError as error:
            raise refusal(f"is wrong: {problem_text(error)}") from None
        return written

    return check


class Flows(Section):
    """What must not flow, and what must be able to."""

    forbid: tuple[Annotated[str, AfterValidator(_flow(Expect.FORBID))], ...] = ()
    """Flows that must not be possible, such as `client:MD -> scope:internet`. A configuration that opens one is
    refused, and the route is shown."""
    require: tuple[Annotated[str, AfterValidator(_flow(Expect.REQUIRE))], ...] = ()
    """Flows that must be possible."""
    paths: Switch = False
    """Whether devices on the way count, which may tell what they have read. Default: only scopes are on the way."""

    def written(self) -> Iterator[tuple[tuple[str | int, ...], Assertion]]:
        """All, with their places; what is forbidden first."""
        for expect, texts in ((Expect.FORBID, self.forbid), (Expect.REQUIRE, self.require)):
            for index, text in enumerate(texts):
                yield ("flows", expect.value, index), Assertion.parse(text, expect, paths=self.paths)


def violations(config: Config) -> Iterator[Finding]:
    """What does not hold of scopes, links and the clients of the directory."""
    built = config.built
    places: dict[Assertion, tuple[str | int, ...]] = {}
    for at, assertion in config.flows.written():
        places.setdefault(assertion, at)
    for found in violated(built.rules.space, built.rules.brokering, built.presences, built.flows):
        yield places[found.assertion], f"does not hold: {found}; {_REMEDY[found.assertion.expect]}"
