"""Links to other scopes, as a gate sees them.

A `ScopeExit` is such a link. A `Branch` is the part of a plan that crosses it: whether the topic crosses, under which
name, which monitors listen on the way, and the lane of the scope behind it. Branches are decided with the plan; what
they leave undecided is asked of each message. A link inside a node is as safe as can be (semantics, *Levels and
demands*).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegate.gate.rule_set import RuleSet
from tidegate.gate.verdict import Step
from tidegate.monitor import Attachment, Direction, Instance, ModeCounts, calm_modes
from tidegate.policy.scopes import ScopeLink, Way
from tidegate.session import Link, ScopeLinkEnd, Subject

if TYPE_CHECKING:
    from tidegate.gate.decision import PartialDecision
    from tidegate.gate.gate import Gate
    from tidegate.gate.lane import Lane

_LEAVING: Final = {Way.UP: Direction.EX_PUB, Way.DOWN: Direction.IM_SUB, Way.ACROSS: Direction.EX_PUB}
_ENTERING: Final = {Way.UP: Direction.IM_PUB, Way.DOWN: Direction.EX_SUB, Way.ACROSS: Direction.EX_SUB}

Guard = tuple[Mapping[Hashable, int], frozenset[Hashable]]  # modes that there are, and those in which nothing happens


FORWARD: Final = "forward"


def action_over(link: Link, action: str) -> str:
    """What is denied if a message may not cross a link: `action` of a client, but a link between scopes forwards."""
    return FORWARD if link.subject.kind == "link" else action


class ScopeExit:
    """A link from one scope to another."""

    __slots__ = ("entering", "gate", "inward", "leaving", "link", "outward", "posts", "scope", "target")

    def __init__(self, link: ScopeLink, outward: ScopeLinkEnd, inward: ScopeLinkEnd, gate: Gate, scope: Any) -> None:
        self.link = link
        self.target = link.target
        self.outward = outward  # where it leaves the one
        self.inward = inward  # where it enters the other
        self.gate = gate  # of the other
        self.scope = scope  # the other
        self.leaving: tuple[Instance, ...] = ()  # monitors, in their order
        self.entering: tuple[Instance, ...] = ()
        self.posts: dict[Instance, ModeCounts] = {}  # of those whose state nobody else shares

    def listening(self, before: str, after: str) -> Iterator[tuple[Instance, frozenset[Hashable], Step]]:
        """Monitors that listen to a topic, as it is called on either side, in their order; and when each is calm."""
        chains = ((self.leaving, before, Step.MONITOR_OUT), (self.entering, after, Step.MONITOR_IN))
        for chain, topic, step in chains:
            for instance in chain:
                monitor = instance.attachment.monitor
                if monitor.hears(topic):
                    yield instance, calm_modes(monitor, topic), step

    def guards(self, before: str, after: str) -> tuple[Guard, ...] | None:
        """Of the monitors that listen to a topic; None if one is never calm."""
        guards: list[Guard] = []
        for instance, calm, _ in self.listening(before, after):
            post = self.posts.get(instance)
            if post is None or not calm:
                return None
            guards.append((post.modes, calm))
        return tuple(guards)

    def barred(self, before: str, after: str) -> tuple[Attachment, Step] | None:
        """The filter that lets none of a topic pass, if it is the first monitor that listens to it."""
        for instance, _, step in self.listening(before, after):
            return (instance.attachment, step) if instance.attachment.made else None
        return None


class Branch:
    """The way of one topic over one link to another scope."""

    __slots__ = (
        "addressed",
        "clear",
        "exit",
        "guards",
        "lane",
        "name",
        "passage",
        "qos",
        "renamed",
        "topic",
        "watched",
    )

    def __init__(
        self, exit: ScopeExit, topic: str, qos: int, passage: PartialDecision, lane: Lane, before: str
    ) -> None:
        self.exit = exit
        self.topic = topic  # what it is called there
        self.name = topic.encode()
        self.qos = qos
        self.passage = passage
        self.clear = passage.clear
        self.lane = lane  # where its plans are found there
        self.renamed = topic != before
        self.addressed = any(share.here != share.there for share in exit.link.back)  # answers have other names there
        self.guards = exit.guards(before, topic)
        self.watched = self.guards != ()  # some monitor listens

    @property
    def plain(self) -> bool:
        """Every message crosses as it is."""
        return self.clear and not self.watched and not self.renamed and not self.addressed and self.qos == 2


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
            facts=rules.levels.facts,
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
