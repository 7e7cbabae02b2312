"""Interfaces between a scope and its parent: short for two monitors that are filters (semantics, *Brokering*)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field, ValidationInfo

from tidegate.config.links import SCOPE
from tidegate.config.parser import Parser
from tidegate.config.policies import Filter
from tidegate.config.problems import DocumentPath, Finding, remedy, unknown
from tidegate.config.section import CheckedSection, as_tuple, listed
from tidegate.monitor import Attachment
from tidegate.monitor.library import Filter as FilterMachine

if TYPE_CHECKING:
    from tidegate.config.model import Config


class Interface(CheckedSection):
    """What a scope tells one of its parents, and takes from it: a filter on each of the two links."""

    scope: str
    """The scope."""
    parent: str
    """Its parent."""
    exports: tuple[Filter, ...] | None = Field(default=None, alias="export")
    """Topic filters: what the scope tells the parent. Empty: nothing. Default: everything."""
    imports: tuple[Filter, ...] | None = Field(default=None, alias="import")
    """Topic filters: what the scope takes from the parent. Empty: nothing. Default: everything."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.exports is None and self.imports is None:
            yield (), "keeps nothing back; add `export` or `import`"


def link_filter(
    parser: Parser, id: str, source: str, target: str, filters: tuple[str, ...], *, takes: bool = False
) -> Attachment:
    """The monitor of a link between scopes that lets only these topics pass.

    `takes`: it says what the target takes. What a scope does not take is not denied: it goes elsewhere.
    """
    monitor = FilterMachine(list(map(parser.filter, filters)))
    link = (f"{SCOPE}{source}", f"{SCOPE}{target}")
    return Attachment(id=id, monitor=monitor, link=link, made=True, silent=takes)


def filters(config: Config, parser: Parser) -> Iterator[Attachment]:
    for index, interface in enumerate(as_tuple(config.brokering.interface)):
        id, scope, parent = f"interface[{index}]", interface.scope, interface.parent
        if interface.exports is not None:
            yield link_filter(parser, f"{id}.export", scope, parent, interface.exports)
        if interface.imports is not None:
            yield link_filter(parser, f"{id}.import", parent, scope, interface.imports, takes=True)


def problems(config: Config) -> Iterator[Finding]:
    """Interfaces that do not fit the scopes and their parents."""
    seen: set[tuple[str, str]] = set()
    for index, interface in listed(config.brokering.interface):
        path: DocumentPath = ("brokering", "interface", *index)
        name, parent = interface.scope, interface.parent
        scope = config.scopes.get(name)
        if scope is None:
            yield (*path, "scope"), unknown("scope", name, config.scopes, "scopes")
        elif parent not in scope.parents:
            how = remedy(parent, scope.parents, f"add it to `scopes.{name}.parents`")
            yield (*path, "parent"), f"is `{parent}`, which is no parent of `{name}`; {how}"
        elif (name, parent) in seen:
            yield path, f"is a second one for `{name}` and `{parent}`; make one of the two"
        seen.add((name, parent))
