"""What is allowed among rules but probably not meant: rules that never decide, and names nobody has (`references`).

It reads the rules that were built, so it works only for a configuration that builds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidegate import policy
from tidegate.config.policies import RULES, Policies, Subscribe, entries, written
from tidegate.config.problems import Finding
from tidegate.config.references import subjects, unknown_names
from tidegate.policy.selector import ANYONE

if TYPE_CHECKING:
    from tidegate.config.model import Config

_NOBODY: Final = {"views": "clients", "brokering": "clients and services"}
"""Sections that are not about scopes and links, and what they are about."""


def warnings(config: Config) -> Iterator[Finding]:
    """Everything about rules that works but is probably not meant."""
    yield from _without_ids(config)
    yield from _useless(config)
    yield from _never(config)
    yield from _never_assigned(config)
    yield from _closed_links(config)
    yield from unknown_names(config)
    for section in _NOBODY:
        for path, term in subjects(config, section):
            if term.sort in ("scope", "link"):
                yield path, f"speaks of `{term}`, and is about {_NOBODY[section]} only; nobody is meant"


def _closed_links(config: Config) -> Iterator[Finding]:
    """Linked scopes, where no policy opens any of the links."""
    rules = written(config.built.rules.policies)
    if not rules:
        return
    opened: dict[policy.Action, set[policy.Term]] = {action: set() for action in policy.Action}
    for rule in rules:
        for action in rule.action if rule.effect is policy.Effect.ALLOW else ():
            opened[action] |= rule.subject.terms
    space = config.built.rules.space
    links = (*space.links, *(link for each in space.remote for link in each.directions))
    closed = {
        link.name
        for link in links
        for action, end in ((policy.Action.WRITE, link.source), (policy.Action.READ, link.target))
        if end in space.scopes  # what the other node allows is not known here
        and opened[action].isdisjoint((ANYONE, policy.Term("scope", end), policy.Term("link", link.name)))
    }
    if links and len(closed) == len(links):
        both = ((links[0].source, "write"), (links[0].target, "read"))
        how = " and ".join(f"`scope:{end}` to {does}" for end, does in both if end in space.scopes)
        yield ("policies",), f"let nothing pass from one scope to another; allow {how}, for instance"


def _without_ids(config: Config) -> Iterator[Finding]:
    """One finding per section, so that a file without any ids does not drown the other findings."""
    for section in RULES:
        nameless = [index for index, entry in enumerate(entries(config, section)) if entry.id is None]
        if nameless:
            more = f", like {len(nameless) - 1} more of them" if len(nameless) > 1 else ""
            name = f"{section}[{nameless[0]}]"
            text = f"has no `id`{more}, and is called `{name}` until its position changes; add an `id`"
            yield (section, nameless[0]), text


def _useless(config: Config) -> Iterator[Finding]:
    keys = config.model_fields_set
    if config.policies is None:
        text = "is missing: the default is to deny, so nothing will pass; write `policies: open` to allow all"
        yield ("policies",), text
    if config.policies == ():
        text = "is empty: the default is to deny, so nothing will pass; add one, or write `policies: open`"
        yield ("policies",), text
    if config.policies is Policies.OPEN:
        if "combining" in keys:
            yield ("combining",), "has no effect with `policies: open`; list policies, or remove it"
        if config.subscribe is Subscribe.HOLD:
            yield ("subscribe",), "has no effect with `policies: open`; list policies, or remove it"
    if "held" in config.limits.model_fields_set and config.subscribe is not Subscribe.HOLD:
        yield ("limits", "held"), "has no effect without `subscribe: hold`; add that, or remove it"
    if "view_default" in keys and not config.views:
        yield ("view_default",), "has no effect without `views`; add some, or remove it"
    if "traffic" in keys and config.record.value != "traffic":
        yield ("traffic",), "has no effect without `record: traffic`; add that, or remove it"
    if config.node.data is None and "durability" in keys:
        yield ("durability",), "has no effect on what survives a restart without `node.data`; set that"
    if config.trust is not None:
        tls = any(listener.url.tls for listener in config.listeners)
        if not tls and not config.trust.domains and not any(each.remote for each in config.links):
            yield ("trust",), "has no effect: no listener uses TLS; add one with mqtts:// or wss://"
        elif config.trust.accept == ():
            yield ("trust", "accept"), "is empty, so no client is trusted; list those that are"


def _never(config: Config) -> Iterator[Finding]:
    policies = config.built.rules.policies
    if policies is None:
        return
    reasons = policies.never_decides()
    for index, rule in enumerate(written(policies)):
        if rule.id in reasons:
            yield ("policies", index), f"never decides: {reasons[rule.id]}; change it, or remove it"


def _never_assigned(config: Config) -> Iterator[Finding]:
    """Assignments of types that select nobody whom an earlier one does not select."""
    before: frozenset[policy.Term] = frozenset()
    for index, entry in enumerate(config.brokering.assign):
        if entry.subject is None:
            continue
        selected = policy.Selector.parse(entry.subject).within(config.node.domain)
        if policy.Selector(before).covers(selected):
            text = "never counts: earlier ones select everybody it selects; move it up, or remove it"
            yield ("brokering", "assign", index), text
        before |= selected.terms
