"""The two ends of a link between scopes of one node: who acts there, and which monitors do.

A link inside a node is as safe as can be (semantics, *Levels and demands*).
"""

from __future__ import annotations

from typing import Final

from tidegate.gate.rule_set import RuleSet
from tidegate.monitor import Attachment, Direction
from tidegate.policy.scopes import ScopeLink, Way
from tidegate.session import ScopeLinkEnd, Subject

_LEAVING: Final = {Way.UP: Direction.EX_PUB, Way.DOWN: Direction.IM_SUB, Way.ACROSS: Direction.EX_PUB}
_ENTERING: Final = {Way.UP: Direction.IM_PUB, Way.DOWN: Direction.EX_SUB, Way.ACROSS: Direction.EX_SUB}


def link_ends(link: ScopeLink, rules: RuleSet, node: str) -> tuple[ScopeLinkEnd, ScopeLinkEnd]:
    """Where it leaves the one scope, and where it enters the other."""
    outward, inward = (
        Subject(
            kind="link",
            client=link.name,
            user=None,
            scope=scope,
            node=node,
            domain=rules.domain,
            level=rules.levels.highest,
        )
        for scope in (link.source, link.target)
    )
    return ScopeLinkEnd(outward, False, link.type), ScopeLinkEnd(inward, True, link.type)


def link_monitors(link: ScopeLink, rules: RuleSet) -> tuple[tuple[Attachment, ...], tuple[Attachment, ...]]:
    """The monitors that act where it leaves the one scope, and where it enters the other, in their order."""
    ends = f"scope:{link.source}", f"scope:{link.target}"
    over = rules.monitors.over
    return (
        over(*ends, kind=_LEAVING[link.way], scope=link.source),
        over(*ends, kind=_ENTERING[link.way], scope=link.target),
    )
