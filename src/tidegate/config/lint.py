"""What is allowed among rules but probably not meant: rules that never decide, and names nobody has.

As in `checks`, each finding is (path, text). It reads the rules that were built, so it can be asked only of a
configuration that builds. Where other users may come than those of the directory, names are not doubted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tidegate import policy
from tidegate.config.checks import RULES, Finding, entries, has_other_authentication, unknown
from tidegate.config.enums import Policies, Record, Subscribe
from tidegate.config.policies import written
from tidegate.config.problems import suggestion
from tidegate.policy.selector import ANYONE

if TYPE_CHECKING:
    from tidegate.config.model import Config

_PLACES: Final = {"user": "directory.users", "role": "directory", "group": "directory"}
_SPEAKING: Final = {"policies": "subject", "views": "for", "brokering": "client"}
"""Sections that name subjects, and by which key."""
_NOBODY: Final = {"views": "clients", "brokering": "clients and services"}
"""Sections that are not about scopes and links, and what they are about."""


def warnings(config: Config) -> Iterator[Finding]:
    """Everything about rules that works but is probably not meant."""
    yield from _without_ids(config)
    yield from _useless(config)
    yield from _never(config)
    yield from _never_assigned(config)
    yield from _closed_links(config)
    if not has_other_authentication(config):  # who may bring users, roles and groups of their own
        yield from _unknown_owners(config)
        yield from _unknown_subjects(config)
    for section in _SPEAKING:
        for path, term in _subjects(config, section):
            if term.sort in ("scope", "link") and section in _NOBODY:
                yield path, f"speaks of `{term}`, and is about {_NOBODY[section]} only; nobody is meant"
            elif term.sort == "monitor" and term.name not in config.built.rules.monitors.by_id:
                known = tuple(config.built.rules.monitors.by_id)
                yield path, unknown("monitor", term.name, known, "monitors")


def _closed_links(config: Config) -> Iterator[Finding]:
    """Scopes that are linked, while no policy opens any of the links."""
    policies = config.built.rules.policies
    said = [] if policies is None else written(policies)
    if not said:
        return
    opened: dict[policy.Action, set[policy.Term]] = {action: set() for action in policy.Action}
    for rule in said:
        for action in rule.action if rule.effect is policy.Effect.ALLOW else ():
            opened[action] |= rule.subject.terms
    links = config.built.rules.space.links
    closed = {
        link.name
        for link in links
        for action, end in ((policy.Action.WRITE, link.source), (policy.Action.READ, link.target))
        if opened[action].isdisjoint((ANYONE, policy.Term("scope", end), policy.Term("link", link.name)))
    }
    if links and len(closed) == len(links):
        yield (
            ("policies",),
            f"let nothing pass from one scope to another; allow `scope:{links[0].source}` to write and "
            f"`scope:{links[0].target}` to read, for instance",
        )


def _without_ids(config: Config) -> Iterator[Finding]:
    """One finding for each section: a file that has no ids at all shall not drown what else there is."""
    for section in RULES:
        nameless = [index for index, entry in enumerate(entries(config, section)) if entry.id is None]
        if nameless:
            more = f", like {len(nameless) - 1} more of them" if len(nameless) > 1 else ""
            name = f"{section}[{nameless[0]}]"
            yield (
                (section, nameless[0]),
                f"has no `id`{more}, and is called `{name}` until its position changes; add an `id`",
            )


def _useless(config: Config) -> Iterator[Finding]:
    said = config.model_fields_set
    if config.policies == ():
        yield (
            ("policies",),
            "is empty: the default is to deny, so nothing will pass; add one, or write `policies: open`",
        )
    if config.policies is Policies.OPEN:
        if "combining" in said:
            yield ("combining",), "has no effect with `policies: open`; list policies, or remove it"
        if config.subscribe is Subscribe.HOLD:
            yield ("subscribe",), "has no effect with `policies: open`; list policies, or remove it"
    if "held" in config.limits.model_fields_set and config.subscribe is not Subscribe.HOLD:
        yield ("limits", "held"), "has no effect without `subscribe: hold`; add that, or remove it"
    if "view_default" in said and not config.views:
        yield ("view_default",), "has no effect without `views`; add some, or remove it"
    if "traffic" in said and config.record is not Record.TRAFFIC:
        yield ("traffic",), "has no effect without `record: traffic`; add that, or remove it"
    if config.trust is not None:
        if not any(listener.url.tls for listener in config.listeners):
            yield ("trust",), "has no effect: no listener uses TLS; add one with mqtts:// or wss://"
        elif not config.trust.accept:
            yield ("trust", "accept"), "is empty, so no client is trusted; list those that are"


def _never(config: Config) -> Iterator[Finding]:
    policies = config.built.rules.policies
    if policies is None:
        return
    found = policies.never_decides()
    for index, each in enumerate(written(policies)):
        if each.id in found:
            yield ("policies", index), f"never decides: {found[each.id]}; change it, or remove it"


def _never_assigned(config: Config) -> Iterator[Finding]:
    """Assignments of types that select nobody whom an earlier one does not select."""
    before: frozenset[policy.Term] = frozenset()
    for index, entry in enumerate(config.brokering.assign):
        if entry.subject is None:
            continue
        selected = policy.Selector.parse(entry.subject).within(config.node.domain)
        if policy.Selector(before).covers(selected):
            yield (
                ("brokering", "assign", index),
                "never counts: earlier ones select everybody it selects; move it up, or remove it",
            )
        before |= selected.terms


def _unknown_owners(config: Config) -> Iterator[Finding]:
    users = tuple(config.directory.users)
    for index, preference in enumerate(config.preferences):
        if preference.user not in config.directory.users:
            yield ("preferences", index, "user"), unknown("user", preference.user, users, "directory.users")


def _unknown_subjects(config: Config) -> Iterator[Finding]:
    directory = config.built.directory
    known = directory.terms()
    names: dict[str, tuple[str, ...]] = {
        sort: tuple(sorted(term.name for term in known if term.sort == sort)) for sort in _PLACES
    }
    for role in config.brokering.roles or ():
        if role not in names["role"]:
            yield ("brokering", "roles", role), unknown("role", role, names["role"], "directory")
    for section in _SPEAKING:
        for path, term in _subjects(config, section):
            if term.sort not in _PLACES or term in known or term.domain not in ("", directory.domain):
                continue
            meant = suggestion(term.name, names[term.sort])
            remedy = f"did you mean `{meant}`?" if meant else f"add it under `{_PLACES[term.sort]}`, or remove it"
            yield path, f"names the unknown {term.sort} `{term.name}`; {remedy}"


def _subjects(config: Config, section: str) -> Iterator[tuple[tuple[str | int, ...], policy.Term]]:
    """Every subject that rules of a section speak of, and where."""
    key = _SPEAKING[section]
    place: tuple[str, ...] = (section,)
    rows = entries(config, section)
    if section == "brokering":
        place, rows = (section, "assign"), config.brokering.assign
    read: dict[str, policy.Term] = {}
    for index, entry in enumerate(rows):
        written: Any = entry.subject
        if written is None:  # a link between scopes
            continue
        several = isinstance(written, tuple)
        for at, text in enumerate(written if several else (written,)):
            if text not in read:
                [read[text]] = policy.Selector.parse(text).within(config.node.domain).terms
            yield (*place, index, key, at) if several else (*place, index, key), read[text]
