"""One message on its way through the scopes of a node.

A link between scopes is a function call. Scopes are visited in the order in which a message would get there link by
link, the nearest first.

Invariants
- A message never enters a scope that it has been in, and crosses each link at most once.
- Nobody is owed it twice, however many ways lead to a scope. A copy that is refused does not shadow another.
- Monitors of a link see everything that may cross it, whether or not anybody behind it has subscribed.
- What its publisher is told does not depend on what happens on the way, but it is told only when all of it is safe.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.gate import FORWARD, Branch, Deny, Known, Lane, Plan, ScopeExit, Step
from tidegate.gate.decision import unsigned
from tidegate.scope.delivered_once import Seen
from tidegate.session import Link, Message, Session, Site
from tidegate.session.packet_costs import VISITED
from tidegate.wire import Properties

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

Path = tuple[str, ...]  # of scopes, in the order of the visits


class Traversal:
    """Where one message has been, and where it still has to go."""

    __slots__ = ("_carried", "_crossed", "_seen", "_waiting", "root", "source")

    def __init__(self, root: Message, source: Session | None, seen: Seen | None = None) -> None:
        """`seen`: who has been delivered another copy."""
        self.root = root
        self.source = source
        self._carried = False  # it was published before, and is carried over a link that has opened
        self._crossed: set[tuple[ScopeExit, int]] = set()
        self._seen: Seen = set() if seen is None else seen
        self._waiting: deque[tuple[Scope, Plan, Message, Path]] = deque()

    def begin(self, scope: Scope, plan: Plan, message: Message, path: Path = ()) -> int:
        """From a scope on; to how many it was delivered."""
        self._waiting.append((scope, plan, message, (*path, scope.name)))
        return self._go(scope.site)

    def resume(self, exit: ScopeExit, messages: list[Message], path: Path) -> int:
        """From a link on, that monitors have made something for."""
        for message in messages:
            self._enter(exit, message, None, path)
        return self._go(exit.scope.site)

    def carry(self, scope: Scope, exit: ScopeExit, message: Message) -> None:
        """A retained message of a scope, over a link that has opened."""
        publisher = scope.gate.attributes.context(message).subject
        home = scope.neighbours.get(publisher.scope)
        path = (scope.name,) if home is None else (home.entrance.name, scope.name)
        way = exported(exit, message)
        if exit.target in path or way is None:
            return
        if isinstance(way, Deny):
            if way.step is not Step.BROKERING:  # as in plans: where links lead is nobody's offence
                scope.report(FORWARD, exit.outward, message.topic, way, message.context)
            return
        shown, topic, _ = way
        if exit.guards(message.topic, topic) != () and exit.scope.retained.holds(topic, message):
            return  # monitors do not see it again
        self._carried = True
        self._crossed.add((exit, message.output))
        for one in scope.path.export(exit, shown, self.root) if exit.leaving else (shown,):
            self._enter(exit, one, None, path)
        self._go(scope.site)

    def _go(self, site: Site) -> int:
        reached = visits = 0
        root = self.root
        while self._waiting:
            scope, plan, message, path = self._waiting.popleft()
            visits += 1
            if self._carried and self._held(scope, message):
                continue
            if message.retain and len(path) > 1 and (full := scope.retained.refusal(message)):
                message = self._unkept(scope, message, full)
            reached += scope.path.arrived(plan, message, self.source, self._seen)
            for branch in plan.branches:
                self._cross(scope, branch, message, path)
            if message is not root and (message.rows or message.noted or (message.retain and site.store.noted)):
                root.noted = True
        site.effort += visits * VISITED
        return reached

    def _held(self, scope: Scope, message: Message) -> bool:
        """Whether a scope that a carried message gets to has had it before, or one that is newer."""
        retained = scope.retained
        known = retained.get(message.topic)
        if known is None or not message.retain or ((retained, message.topic), message.output) in self._seen:
            return False
        if retained.holds(message.topic, message):
            retained.came_over(message)
            return True
        return (known.published, known.number) > (message.published, message.number)

    def _unkept(self, scope: Scope, message: Message, why: Deny) -> Message:
        """The same for those who are there: no more can be kept in this scope."""
        publisher = scope.gate.attributes.context(message).subject
        scope.report("write", Link(publisher, True, message.link), message.topic, why, message.context)
        made = message.across(message.topic, message.qos, message.context, message.link, message.properties)
        made.retain = False
        return made

    def _cross(self, scope: Scope, branch: Branch, message: Message, path: Path) -> None:
        """Over one link, if it may."""
        exit = branch.exit
        if exit.target in path:
            return
        key = (exit, message.output)
        if key in self._crossed:
            return
        if self._carried and branch.watched and exit.scope.retained.holds(branch.topic, message):
            return  # monitors do not see it again
        cut = False
        if not branch.clear:
            shown = branch.passage.show(message)
            if isinstance(shown, Deny):
                scope.report(FORWARD, exit.outward, message.topic, shown, message.context)
                return
            if shown is not message:
                message = unsigned(shown, scope.gate.attributes.context(shown))
                cut = message is not shown
            if branch.passage.failed:
                scope.audit.failed(exit.outward, message.topic, branch.passage.failed)
        self._crossed.add(key)
        if not branch.watched or not exit.leaving:
            self._enter(exit, message, branch, path, cut)
            return
        for one in scope.path.export(exit, message, self.root):
            self._enter(exit, one, branch if one is message else None, path, cut)

    def _enter(self, exit: ScopeExit, message: Message, branch: Branch | None, path: Path, cut: bool = False) -> None:
        """Into the scope behind a link. Without a branch a monitor made it, and it is decided by itself.

        `cut`: it is not signed any more, unlike others that take the branch.
        """
        scope: Scope = exit.scope
        arrived = message
        if branch is None:
            way = exported(exit, message)
            if way is None or isinstance(way, Deny):
                if way is not None:
                    scope.report(FORWARD, exit.outward, message.topic, way, message.context)
                return
            shown, topic, qos = way
            arrived = _called(shown, exit, topic, qos)
            lane, name = _own_lane(arrived, exit), topic.encode()
        else:
            lane, name = branch.lane, branch.name
            if (
                branch.renamed
                or branch.qos < message.qos
                or message.properties.response_topic is not None
                or lane.context.others
            ):
                arrived = _called(message, exit, branch.topic, branch.qos)
            if cut:
                lane = _own_lane(arrived, exit)
        beyond = (*path, exit.target)
        watched = bool(exit.entering) and (branch is None or branch.watched)
        for plan, event in scope.path.arrive(exit, arrived, self.root, lane, name, watched):
            self._waiting.append((scope, plan, event, beyond))


def _own_lane(message: Message, exit: ScopeExit) -> Lane:
    """Where the plans of a message are found behind a link if its context is not that of the others."""
    gate = exit.gate
    return gate.derived_lane(message.context, gate.attributes.context(message), exit.link.type, None)


def _called(message: Message, exit: ScopeExit, topic: str, qos: int) -> Message:
    """A message as it is called behind a link."""
    before = message.qos if qos < message.qos else None
    data, _ = exit.scope.path.monitoring.context(message.context, message.topic, topic, before, crossed=True)
    return message.across(topic, min(message.qos, qos), data, exit.link.type, addressed(message.properties, exit))


def crossed(message: Message, exit: ScopeExit) -> Message:
    """The same message behind a link that changes nothing but the type of the link it came over."""
    link = exit.link.type
    if message.link == link:
        return message
    return message.across(message.topic, message.qos, message.context, link, message.properties)


def exported(exit: ScopeExit, message: Message) -> tuple[Message, str, int] | Deny | None:
    """What a monitor made, on its way over a link: it has to be shared and allowed there like anything else."""
    found = exit.link.crossing(message.topic)
    if found is None:
        return None
    gate = exit.gate
    known = Known(
        topic=message.topic,
        context=gate.attributes.context(message),
        link=message.link,
        now=gate.clock.wall,
        target=None,
    )
    way = gate.compiler.over(exit, known)
    if isinstance(way, Deny):
        return way
    shown = way.show(message)
    if isinstance(shown, Deny):
        return shown
    return (shown if shown is message else unsigned(shown, known.context), *found)


def addressed(properties: Properties, exit: ScopeExit) -> Properties:
    """Who answers in the scope behind a link has to use the names that topics have there."""
    topic = properties.response_topic
    if topic is None or (there := exit.link.answered(topic)) == topic:
        return properties
    return replace(properties, response_topic=there)
