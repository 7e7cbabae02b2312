"""What is allowed among rules but probably not meant: rules that never decide, and names nobody has.

It reads the rules that were built, so it works only for a configuration that builds. Where users may come that the
directory does not know, names are not doubted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidegate import policy
from tidegate.config import names
from tidegate.config.checks import RULES, entries, has_other_authentication
from tidegate.config.enums import Policies, Record, Subscribe
from tidegate.config.policies import written
from tidegate.config.problems import Finding, remedy, unknown
from tidegate.config.section import listed
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
    yield from unknown_names(config)
    for section in _NOBODY:
        for path, term in _subjects(config, section):
            if term.sort in ("scope", "link"):
                yield path, f"speaks of `{term}`, and is about {_NOBODY[section]} only; nobody is meant"


def unknown_names(config: Config) -> Iterator[Finding]:
    """Names that nobody has, wherever rules speak of them."""
    if not has_other_authentication(config):  # who may bring users, roles and groups of their own
        yield from _unknown_owners(config)
        yield from _unknown_subjects(config)
    for section in _SPEAKING:
        for path, term in _subjects(config, section):
            if term.sort == "monitor" and term.name not in (known := config.built.rules.monitors.by_id):
                yield path, unknown("monitor", term.name, known, "monitors")
    yield from names.warnings(config)


def _closed_links(config: Config) -> Iterator[Finding]:
    """Linked scopes, where no policy opens any of the links."""
    policies = config.built.rules.policies
    rules = [] if policies is None else written(policies)
    if not rules:
        return
    opened: dict[policy.Action, set[policy.Term]] = {action: set() for action in policy.Action}
    for rule in rules:
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
        how = f"allow `scope:{links[0].source}` to write and `scope:{links[0].target}` to read, for instance"
        yield ("policies",), f"let nothing pass from one scope to another; {how}"


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
    if "traffic" in keys and config.record is not Record.TRAFFIC:
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


def _unknown_owners(config: Config) -> Iterator[Finding]:
    users = config.directory.users
    for index, preference in enumerate(config.preferences):
        if preference.user not in users:
            yield ("preferences", index, "user"), unknown("user", preference.user, users, "directory.users")


def _unknown_subjects(config: Config) -> Iterator[Finding]:
    directory = config.built.directory
    known = directory.terms() | _granted(config)
    names = {sort: sorted(term.name for term in known if term.sort == sort) for sort in _PLACES}
    for role in config.brokering.roles or ():
        if role not in names["role"]:
            yield ("brokering", "roles", role), unknown("role", role, names["role"], "directory")
    for section in _SPEAKING:
        for path, term in _subjects(config, section):
            if term.sort not in _PLACES or term in known or term.domain not in ("", directory.domain):
                continue
            how = remedy(term.name, names[term.sort], f"add it under `{_PLACES[term.sort]}`, or remove it")
            yield path, f"names the unknown {term.sort} `{term.name}`; {how}"


def _granted(config: Config) -> frozenset[policy.Term]:
    """Roles and groups that an issuer of capabilities may grant: nobody in the directory need have them."""
    issuers = () if config.capabilities is None else config.capabilities.issuers
    return frozenset(
        policy.Term(sort, name)
        for issuer in issuers
        for sort, names in (("role", issuer.grants.roles), ("group", issuer.grants.groups))
        for name in names
    )


def _subjects(config: Config, section: str) -> Iterator[tuple[tuple[str | int, ...], policy.Term]]:
    """Every subject that rules of a section name, and where."""
    path: tuple[str, ...] = (section,)
    rows = entries(config, section)
    if section == "brokering":
        path, rows = (section, "assign"), config.brokering.assign
    terms: dict[str, policy.Term] = {}
    for index, entry in enumerate(rows):
        if entry.subject is None:  # a link between scopes
            continue
        for below, text in listed(entry.subject):
            if text not in terms:
                [terms[text]] = policy.Selector.parse(text).within(config.node.domain).terms
            yield (*path, index, _SPEAKING[section], *below), terms[text]
