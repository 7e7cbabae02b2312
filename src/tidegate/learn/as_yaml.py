"""Proposals as YAML: `policies:` and `tests:` that `tidegate check` takes, with the reason for each as a comment.

Whatever a topic or a name of the record contains, it is one quoted value here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from tidegate.importing.imported_policies import comment, flow
from tidegate.learn.propose import Proposal, Proposals
from tidegate.learn.table import READ, SUBSCRIBE, Person, Seen, Who
from tidegate.learn.templates import read

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NAMED: Final = 3
_DENIED: Final = 20
"""Tests of what was denied."""


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def entry(proposal: Proposal) -> dict[str, Any]:
    """The policy as the configuration has it."""
    actions = list(proposal.actions)
    subject = proposal.subject
    written: dict[str, Any] = {
        "id": proposal.id,
        "subject": subject if isinstance(subject, str) else list(subject),
        "topic": proposal.topic,
        "action": actions[0] if len(actions) == 1 else actions,
    }
    if proposal.when is not None:
        written["when"] = proposal.when
    return written


def tests(proposals: Proposals, people: Mapping[Who, Person]) -> list[dict[str, Any]]:
    """What shall stay so: for each policy something that it allows, somebody else who may not; and what was denied."""
    written: list[dict[str, Any]] = []
    for proposal in proposals.policies:
        timed = proposal.when is not None
        publisher = proposals.writers.get(proposal.example.topic)
        written.append(_test(proposal.example.person, proposal.example, publisher, "allow", timed))
        if (other := _stranger(proposal, proposals, people)) is not None:
            written.append(_test(other, proposal.example, publisher, "deny", timed))
    for each, _ in proposals.denied[:_DENIED]:
        written.append(_test(each.person, each, proposals.writers.get(each.topic), "deny", True))
    distinct = [case for at, case in enumerate(written) if case not in written[:at]]
    # a topic with a control character can be in a policy, but not in a test
    return [case for case in distinct if not any(_CONTROL.search(text) for text in case.values())]


def _test(person: Person, seen: Seen, publisher: Person | None, expect: str, timed: bool) -> dict[str, Any]:
    case: dict[str, Any] = {"as": person.name, "action": seen.action, "topic": seen.topic}
    if seen.action == READ and publisher is not None:
        case["from"] = publisher.name
    if timed and seen.first:
        case["at"] = iso(seen.first)
    return case | {"expect": expect}


def _stranger(proposal: Proposal, proposals: Proposals, people: Mapping[Who, Person]) -> Person | None:
    """Somebody who was there and may not do the example; rather somebody of another role."""
    if proposal.example.action == SUBSCRIBE:
        return None  # a subscription is granted as soon as anything of it may be read
    roles = set(proposal.example.person.roles)
    several = sorted(people.values(), key=lambda each: (bool(roles & set(each.roles)), each.name))
    for person in several[:50]:
        topic = read(person, proposal.example.topic)
        if not any(each.allows(person.who, proposal.example.action, topic) for each in proposals.policies):
            return person
    return None


def to_yaml(
    proposals: Proposals,
    cases: Sequence[Mapping[str, Any]],
    *,
    kept: Iterable[Mapping[str, Any]] = (),
    monitors: Iterable[tuple[Mapping[str, Any], Sequence[str]]] = (),
) -> str:
    """`kept`: policies that stay as they are. `monitors`: with the evidence of each."""
    return "\n".join(_lines(proposals, cases, list(kept), list(monitors))) + "\n"


def _lines(
    proposals: Proposals,
    cases: Sequence[Mapping[str, Any]],
    kept: Sequence[Mapping[str, Any]],
    monitors: Sequence[tuple[Mapping[str, Any], Sequence[str]]],
) -> Iterator[str]:
    if proposals.first is not None and proposals.last is not None:
        yield comment(f"Learned from what passed from {iso(proposals.first)} to {iso(proposals.last)}.")
    for note in proposals.notes:
        yield comment(note)
    for seen, why in proposals.not_expressed:
        yield comment(f"not expressed: {seen.person.name} {seen.action} {seen.topic}: {why}")
    yield "version: 1"
    yield "policies:" if proposals.policies or kept else "policies: []"
    for each in proposals.policies:
        yield f"  {comment(summary(each))}"
        for reason in each.reasons:
            yield f"  {comment(reason)}"
        yield f"  - {flow(entry(each))}"
    if kept:
        yield f"  {comment('As before: for links, services and monitors, which are not learned.')}"
    for policy in kept:
        yield f"  - {flow(dict(policy))}"
    if monitors:
        yield comment("Beside the monitors that you have. None would have suppressed anything of what was seen.")
        yield "monitors:"
    for monitor, evidence in monitors:
        for text in evidence:
            yield f"  {comment(text)}"
        yield f"  - {flow(dict(monitor))}"
    if cases:
        yield "tests:"
    for case in cases:
        yield f"  - {flow(dict(case))}"


def summary(proposal: Proposal) -> str:
    if not proposal.used:
        return "used by no message"
    by = ", ".join(proposal.by[:_NAMED])
    more = f" and {len(proposal.by) - _NAMED} more" if len(proposal.by) > _NAMED else ""
    times = "SEEN ONCE ONLY" if proposal.once else f"used {proposal.used:,} times"
    return f"{times}, by {by}{more}, last {iso(proposal.last)}"


def plain(proposals: Proposals) -> dict[str, Any]:
    """As JSON."""
    return {
        "policies": [
            {
                **entry(each),
                "used": each.used,
                "by": list(each.by),
                "first": iso(each.first) if each.first else None,
                "last": iso(each.last) if each.last else None,
                "reasons": list(each.reasons),
            }
            for each in proposals.policies
        ],
        "once": [_seen(each) for each in proposals.once],
        "denied": [_seen(each) for each, _ in proposals.denied],
        "allowed_now": [{**_seen(each), "by": by} for each, by in proposals.allowed_now],
        "not_expressed": [{**_seen(each), "why": why} for each, why in proposals.not_expressed],
        "notes": list(proposals.notes),
        "since": None if proposals.first is None else iso(proposals.first),
        "until": None if proposals.last is None else iso(proposals.last),
    }


def _seen(each: Seen) -> dict[str, Any]:
    times = {"count": each.count, "first": iso(each.first), "last": iso(each.last)}
    return {"who": each.person.name, "action": each.action, "topic": each.topic, **times}
