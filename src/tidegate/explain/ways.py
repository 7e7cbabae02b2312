"""The ways of what somebody publishes to the scopes where others may read it, with what stays open about each.

They are followed as the engine does (`scope.traversal`): each link is asked by steps 6 to 8 and never leads into a
scope that the message has been in. What monitors on a link do depends on what went before, so they leave the way open;
a filter does not. A link to another node ends here: whoever reads behind it, the other node decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.explain.readable import ASKED, Can, Readable, both
from tidegate.explain.routes import monitors_on_way
from tidegate.explain.step_answers import StepAnswers
from tidegate.gate import RuleSet
from tidegate.gate.scope_links import link_ends, link_monitors
from tidegate.gate.verdict import Step
from tidegate.policy import Action
from tidegate.policy.scopes import ScopeLink
from tidegate.session import Subject

MOST = 200
"""Ways that are followed; beyond that what is left of them stays open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A message in a scope: what it is called there, over which type of link it came, and whether it comes."""

    scope: str
    topic: str
    type: str
    readable: Readable = ASKED
    path: frozenset[str] = frozenset()


def ways(asking: StepAnswers, owner: Subject, topic: str) -> list[Way]:
    """Every way, the nearest scopes first; what cannot come is left out."""
    rules = asking.rules
    entered = rules.space.place(owner.scope, owner.roles)
    if isinstance(entered, str) or rules.brokering.objection(owner):
        return []
    start = entered.publishing
    found = [Way(scope=start, topic=topic, type=rules.brokering.types(owner).inward, path=frozenset((start,)))]
    waiting = deque(found)
    while waiting and len(found) < MOST:
        here = waiting.popleft()
        for link in rules.space.links:
            if link.source == here.scope and link.target not in here.path:
                further = _over(asking, here, link)
                if further is not None:
                    found.append(further)
                    waiting.append(further)
    return found


def _over(asking: StepAnswers, here: Way, link: ScopeLink) -> Way | None:
    rules = asking.rules
    crossing = link.crossing(here.topic)
    if crossing is None:
        return None
    outward, inward = link_ends(link, rules, asking.node)
    steps = [
        here.readable,
        by_brokering(rules, here.type, link.type),
        asking.by_policies(outward.subject, here.topic, Action.WRITE),
        asking.by_policies(inward.subject, here.topic, Action.READ),
        asking.by_forwarding(inward.subject, here.topic, link.target),
        *_by_monitors(rules, link, here.topic, crossing[0]),
    ]
    readable = both(steps)
    if readable.can is Can.NO:
        return None
    path = here.path | {link.target}
    return Way(scope=link.target, topic=crossing[0], type=link.type, readable=readable, path=path)


def _by_monitors(rules: RuleSet, link: ScopeLink, before: str, after: str) -> Iterator[Readable]:
    leaving, entering = link_monitors(link, rules)
    stopped, _ = monitors_on_way(((leaving, before, Step.MONITOR_OUT), (entering, after, Step.MONITOR_IN)))
    if stopped is not None:
        yield Readable(can=Can.NO, rules=(stopped.rule,))
        return
    for chain, topic in ((leaving, before), (entering, after)):
        for each in chain:
            if each.monitor.hears(topic):
                yield Readable(can=Can.IF, rules=(each.id,), when=f"monitor({each.id})")


def leaving(asking: StepAnswers, found: list[Way]) -> Iterator[tuple[str, Readable]]:
    """Links to other nodes and brokers, and whether it leaves over them."""
    rules = asking.rules
    for link in rules.space.remote:
        out = link.out
        if out is None:
            continue
        answers = []
        for way in found:
            if way.scope == out.source and out.crossing(way.topic) is not None:
                outward, _ = link_ends(out, rules, asking.node)
                steps = [
                    way.readable,
                    by_brokering(rules, way.type, out.type),
                    asking.by_policies(outward.subject, way.topic, Action.WRITE),
                    asking.by_forwarding(outward.subject, way.topic, out.target),
                ]
                answers.append(both(steps))
        if answers:
            yield link.name, best(answers)


def best(answers: list[Readable]) -> Readable:
    """One of several ways is enough."""
    yes = next((each for each in answers if each.can is Can.YES and each.parts is None), None)
    if yes is not None:
        return yes
    open = [each for each in answers if each.can is not Can.NO]
    if not open:
        return answers[0]
    rules = tuple(dict.fromkeys(rule for each in open for rule in each.rules))
    shown = [each.parts for each in open]
    parts = None if None in shown else tuple(sorted({part for each in shown for part in each or ()}))
    if any(each.can is Can.YES for each in open):
        parts = next(each.parts for each in open if each.can is Can.YES)
        return Readable(can=Can.YES, rules=rules, parts=parts)
    when = " || ".join(dict.fromkeys(each.when or "" for each in open))
    return Readable(can=Can.IF, rules=rules, when=when, parts=parts)


def by_brokering(rules: RuleSet, source: str, target: str) -> Readable:
    if rules.brokering.open or rules.brokering.allow(source, target):
        return ASKED
    return Readable(can=Can.NO, rules=(f"brokering:{source}->{target}",))
