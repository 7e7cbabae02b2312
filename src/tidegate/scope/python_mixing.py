"""Python that mixes differently restricted messages: its output is not published (semantics, *Context and derived
messages*). Nobody knows what of which is in it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from tidegate.scope.remembered_contexts import Sources
from tidegate.session import Context

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope


def mixes(scope: Scope, sources: Sources) -> bool:
    """Whether these are restricted differently, so that Python may not make something of all of them."""
    kinds = {_restrictions(scope, source.context) for source in sources}
    return len(kinds) > 1 and any(restriction is not None for kind in kinds for restriction in kind)


def _restrictions(scope: Scope, context: Context) -> tuple[Hashable, ...]:
    """Who restricts it, and how."""
    subject = context.subject
    owner = scope.gate.stages.owners.cache_key(subject)
    speaks = scope.publishers.of(subject) is not None
    return owner, subject.name if speaks else None, context.demand, context.view
