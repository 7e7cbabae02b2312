"""Names of scopes and links where others speak of them: preferences, clients, policies and flows.

A name that nothing has is refused, with what was probably meant: a rule about it would look as if it did something.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.config.checks import entries
from tidegate.config.link_types import no_link
from tidegate.config.links import SCOPE, directed_links, scope_names
from tidegate.config.problems import Finding, unknown
from tidegate.config.section import as_tuple, listed
from tidegate.policy.preferences import ANY_SCOPE
from tidegate.policy.selector import Selector

if TYPE_CHECKING:
    from tidegate.config.model import Config

_LINK = "link:"


def problems(config: Config) -> Iterator[Finding]:
    """Every name of a scope or link that does not exist."""
    scopes = scope_names(config)
    for index, preference in enumerate(config.preferences):
        if preference.to is not None and preference.to not in (ANY_SCOPE, *scopes):
            yield ("preferences", index, "to"), unknown("scope", preference.to, scopes, "scopes")
    for name, client in config.directory.clients.items():
        for index, scope in enumerate(client.scopes or ()):
            if scope not in config.scopes:  # with a bus, that is where everybody connects
                yield ("directory", "clients", name, "scopes", index), unknown("scope", scope, config.scopes, "scopes")
    yield from _subjects(config, scopes)
    for at, assertion in config.flows.written():
        for end in dict.fromkeys((assertion.source, assertion.target)):
            name = end.removeprefix(SCOPE)
            if end.startswith(SCOPE) and name not in scopes:
                yield at, unknown("scope", name, scopes, "scopes")


def _subjects(config: Config, scopes: tuple[str, ...]) -> Iterator[Finding]:
    """Those of policies. There may be tens of thousands, and few name scopes: only those are parsed again."""
    links = {joint.name: joint for joint in directed_links(config)}
    for index, entry in enumerate(entries(config, "policies")):
        for below, text in listed(entry.subject):
            if not text.startswith((SCOPE, _LINK)):
                continue
            path: tuple[str | int, ...] = ("policies", index, "subject", *below)
            [term] = Selector.parse(text).terms
            if term.sort == "scope" and term.name not in scopes:
                yield path, unknown("scope", term.name, scopes, "scopes")
            elif term.sort == "link" and term.name not in links:
                yield path, no_link(term.name, links)


def warnings(config: Config) -> Iterator[Finding]:
    """Names that exist, but nothing can happen about them."""
    linked = {name for joint in directed_links(config) for name in (joint.source, joint.target)}
    for index, entry in enumerate(entries(config, "policies")):
        for text in as_tuple(entry.subject):
            if text.startswith(SCOPE) and text.removeprefix(SCOPE) not in linked:
                yield ("policies", index, "subject"), f"speaks of `{text}`, which has no links; nobody is meant"
    entered = {listener.scope for listener in config.listeners}
    clients = config.directory.clients
    for name, client in clients.items():
        for index, scope in enumerate(client.scopes or ()):
            if scope not in entered:
                text = f"is `{scope}`, which has no listener, so it cannot connect there; add one, or remove it"
                yield ("directory", "clients", name, "scopes", index), text
    for at, assertion in config.flows.written():
        for end in dict.fromkeys((assertion.source, assertion.target)):
            name = end.removeprefix("client:")
            if end.startswith("client:") and name not in clients:
                yield at, unknown("client", name, clients, "directory.clients")
