"""Flows in the configuration: what must not be possible, and what must be.

The texts are parsed here. `violations` checks them against a configuration in which nothing else is wrong, and says
which of them do not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

from tidegate.config.policies import parses
from tidegate.config.problems import Finding
from tidegate.config.section import Section
from tidegate.config.units import Switch
from tidegate.flow.assertions import Assertion, Expect
from tidegate.flow.watch import violated

if TYPE_CHECKING:
    from tidegate.config.model import Config

_REMEDY: Final = {
    Expect.FORBID: "take one of these links away, give it another type, or allow less in `brokering`",
    Expect.REQUIRE: "add a link, give one another type, or allow more in `brokering`",
}


class Flows(Section):
    """What must not flow, and what must be able to."""

    forbid: tuple[Annotated[str, parses(lambda _, text: Assertion.parse(text, Expect.FORBID))], ...] = ()
    """Flows that must not be possible, such as `client:MD -> scope:internet`. A configuration that opens one is
    refused, and the route is shown."""
    require: tuple[Annotated[str, parses(lambda _, text: Assertion.parse(text, Expect.REQUIRE))], ...] = ()
    """Flows that must be possible."""
    paths: Switch = False
    """Whether devices on the way count, which may tell what they have read. Default: only scopes are on the way."""

    def written(self) -> Iterator[tuple[tuple[str | int, ...], Assertion]]:
        """All assertions with their paths, forbidden flows first."""
        for expect, texts in ((Expect.FORBID, self.forbid), (Expect.REQUIRE, self.require)):
            for index, text in enumerate(texts):
                yield ("flows", expect.value, index), Assertion.parse(text, expect, paths=self.paths)


def violations(config: Config) -> Iterator[Finding]:
    """Assertions that the scopes, links and clients of the directory break."""
    built = config.built
    paths: dict[Assertion, tuple[str | int, ...]] = {}
    for path, assertion in config.flows.written():
        paths.setdefault(assertion, path)
    for violation in violated(built.rules.space, built.rules.brokering, built.presences, built.flows):
        assertion = violation.assertion
        yield paths[assertion], f"does not hold: {violation}; {_REMEDY[assertion.expect]}"
