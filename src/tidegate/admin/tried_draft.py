"""Changes of documents are tried before they are stored: as part of the whole configuration, which is made with them.

Nothing is changed here. What cannot be made is a Problem that says where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.admin import documents
from tidegate.admin.documents import Draft, RegistryState
from tidegate.authentication.authentication import Authentication
from tidegate.config import Config, ConfigErrors, Source
from tidegate.config.narrowing import widening
from tidegate.errors import ConfigError, Problem
from tidegate.store.registry import Change, Entry

if TYPE_CHECKING:
    from tidegate.admin.administration import AdministeredNode


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedDraft:
    """Changes that can be made, and the configuration that they lead to."""

    changes: Sequence[Change]
    config: Config
    authentication: Authentication
    warnings: list[dict[str, str]]


async def try_draft(host: AdministeredNode, draft: Draft, state: RegistryState, *, narrow: bool) -> TriedDraft:
    """Problem if the changes cannot be made. `narrow`: nobody may see more by them than before."""
    source, before = source_of(host), host.config

    def build() -> tuple[Sequence[Change], Config, list[dict[str, str]]]:
        requested = documents.bound_preferences(draft(state, source), state, host.identities.owner)
        changes = state.changes(requested, source)
        after = state.after(entries_of(changes, state.sequence + 1))
        names = {f"{each.kind}/{each.id}" for each in changes}
        config = host.build_config(after.pieces(), names)
        if narrow and (why := widening(before, config)) is not None:
            raise Problem(f"an operator may only narrow views, monitors and links: {why}", problem="forbidden")
        warned = [{"at": at, "warning": text} for at, text in config.warnings_of(names)]
        return changes, config, warned

    try:
        changes, config, warnings = await host.run_change(build)
        authentication = await host.examine(config)
    except ConfigError as error:
        raise invalid(error) from None
    return TriedDraft(changes=changes, config=config, authentication=authentication, warnings=warnings)


def source_of(host: AdministeredNode) -> Source:
    """The file that documents are laid over."""
    source = host.source
    assert source is not None
    return source


def entries_of(changes: Sequence[Change], sequence: int, by: str = "", why: str = "", at: float = 0.0) -> list[Entry]:
    """The changes as the registry will tell of them."""
    return [
        Entry(sequence=sequence, kind=each.kind, id=each.id, body=each.body, at=at, by=by, why=why) for each in changes
    ]


def invalid(error: ConfigError) -> Problem:
    """What is told of a change that breaks the configuration."""
    problems = error.problems if isinstance(error, ConfigErrors) else (error,)
    details = [
        {"at": f"{each.file}:{each.line}" if each.line else each.file, "error": str(each.args[0])} for each in problems
    ]
    return Problem(str(error), problem="invalid", details=details)
