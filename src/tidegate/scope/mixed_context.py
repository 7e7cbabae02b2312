"""What an administrator's Python has been shown it may remember and say later: whose that is.

Semantics, *Context and derived messages*: what comes from several messages keeps the restrictions of all of them. What
a monitor makes of messages that are restricted alike has the context of the last one; of messages of which none is
restricted, that with the lowest floor. Of others nobody knows how to speak of it, so it is not said.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from tidegate.session import Context

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

MOST: Final = 32  # kinds of context that one state may come from
TOO_MANY: Final = b""

Sources = tuple[bytes, ...]  # one context of each person, connection name, demand, view and level


class Mixture:
    """Judges by the rules in force."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def with_(self, sources: Sources, data: bytes) -> Sources:
        """The same, and this one."""
        if data in sources or TOO_MANY in sources:
            return sources
        # whoever says nothing today may say something tomorrow, when this is still remembered
        whose = self._whose(data)
        if any(self._whose(one) == whose for one in sources):
            return sources
        if len(sources) < MOST:
            return (*sources, data)
        kind = self._kind(data)
        return sources if any(self._kind(one) == kind for one in sources) else (*sources, TOO_MANY)

    def context(self, sources: Sources, data: bytes) -> bytes | None:
        """That of what is made now, of these and of what has this context; None: it cannot be said."""
        sources = self.with_(sources, data)
        if TOO_MANY in sources:
            return None
        if len({self._kind(one) for one in sources}) == 1:
            return data
        if any(self._restricted(one) for one in sources):
            return None
        return min(sources, key=lambda one: self._rank(self._decoded(one).subject.level))

    def _decoded(self, data: bytes) -> Context:
        return self.scope.gate.attributes.decoded(data)

    def _rank(self, level: str) -> int:
        rank = self.scope.gate.rules.levels.rank(level)
        return -1 if rank is None else rank

    def _said(self, context: Context) -> tuple[Hashable, ...]:
        """Who restricts it, and how."""
        subject = context.subject
        rules = self.scope.gate.rules
        owner = rules.preferences.cache_key(subject.user, subject.domain)
        speaks = self.scope.publishers.of(subject) is not None
        return owner, subject.name if speaks else None, context.demand, context.view

    def _whose(self, data: bytes) -> Hashable:
        """Who may restrict it, whether or not they do."""
        context = self._decoded(data)
        subject = context.subject
        return subject.user, subject.domain, subject.name, context.demand, context.view, subject.level

    def _kind(self, data: bytes) -> Hashable:
        context = self._decoded(data)
        return (*self._said(context), context.subject.level)

    def _restricted(self, data: bytes) -> bool:
        return any(said is not None for said in self._said(self._decoded(data)))
