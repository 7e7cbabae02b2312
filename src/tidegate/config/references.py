"""Names that rules refer to: whether there is anything of that name, and whether a name is taken.

- A scope or link that does not exist is refused: a rule about it would look as if it did something (`problems`).
- A user, role, group, monitor or attribute that nobody has is warned about, and so is a preference about topics of no
  policy (`unknown_names`). Where users may come that the directory does not know, their names and attributes are not
  doubted.
- Whoever gets a name gets what the rules say of it. So a stranger, who is let in to register, cannot have a name that
  somebody has written rules about (`mention`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tidegate import policy
from tidegate.config.directory import has_other_authentication
from tidegate.config.links import SCOPE, directed_links, no_link, remote_scopes, scope_names
from tidegate.config.monitors import Monitor, Step
from tidegate.config.policies import entries, written
from tidegate.config.problems import DocumentPath, Finding, remedy, suggestion, unknown
from tidegate.config.section import as_tuple, listed
from tidegate.policy.environment import CLOCK
from tidegate.policy.index import FilterIndex
from tidegate.policy.preferences import ANY_SCOPE
from tidegate.policy.selector import Selector
from tidegate.predicate import quoted

if TYPE_CHECKING:
    from tidegate.config.model import Config

SUBJECT_KEYS: Final = {"policies": "subject", "views": "for", "brokering": "client"}
"""Sections that name subjects, and by which key."""
_LINK: Final = "link:"
_CLIENT: Final = "client:"
_MESSAGE: Final = frozenset(("topic", "levels", "qos", "retain", "size", "category", "properties", "payload", "scores"))
_PUBLISHED: Final = frozenset(("topic", "time", "qos", "size", "e", "floor"))
_GIVEN: Final = frozenset(("application", "source", "type", "mode"))
"""Attributes of users and sources that register over HTTP."""
_WHERE: Final = {
    "s": "give it to somebody under `directory`, or remove it",
    "p": "give it to somebody under `directory`, or remove it",
    "o": "messages have no such attribute; remove it",
    "e": "add it under `environment`, or remove it",
}
_COMPARED: Final = {"user": "user", "role": "role", "roles": "role", "groups": "group"}
"""Attributes that are compared with names, and whose names these are."""
_MENTIONING: Final = ("policies", "preferences", "views", "brokering", "monitors", "flows", "rules", "http")


# -- scopes and links ------------------------------------------------------------------------------------------------


def problems(config: Config) -> Iterator[Finding]:
    """Every name of a scope or link that does not exist, and a domain that is no other one."""
    yield from _own_domain(config)
    scopes, far = scope_names(config), remote_scopes(config)
    everywhere = (*scopes, *far)
    for index, preference in enumerate(config.preferences):
        if preference.to is not None and preference.to not in (ANY_SCOPE, *everywhere):
            yield ("preferences", index, "to"), unknown("scope", preference.to, everywhere, "scopes")
    for path, scope in _client_scopes(config):
        if scope not in config.scopes:  # with a bus, that is where everybody connects
            yield path, unknown("scope", scope, config.scopes, "scopes")
    links = [joint.name for joint in directed_links(config)]
    for path, text in _scope_subjects(config):
        [term] = Selector.parse(text).terms
        if term.sort == "scope" and term.name in far:
            link = next(name for name in links if term.name in name.split("->"))
            yield path, f"is `{text}`, a scope of another node, which acts there; write `link:{link}`"
        elif term.sort == "scope" and term.name not in scopes:
            yield path, unknown("scope", term.name, scopes, "scopes")
        elif term.sort == "link" and term.name not in links:
            yield path, no_link(term.name, links)
    for path, name in _flow_ends(config, SCOPE):
        if name not in everywhere:
            yield path, unknown("scope", name, everywhere, "scopes")


def _own_domain(config: Config) -> Iterator[Finding]:
    own = config.node.domain
    section = None if config.trust is None else config.trust.domains.get(own)
    for key in () if section is None else sorted(section.model_fields_set - {"nodes", "through"}):
        text = "is said of the domain of this node, whose people are known here as they are; remove it"
        yield ("trust", "domains", own, key), text


def warnings(config: Config) -> Iterator[Finding]:
    """Names that exist, but nothing can happen about them."""
    linked = {name for joint in directed_links(config) for name in (joint.source, joint.target)}
    for path, text in _scope_subjects(config):
        if text.startswith(SCOPE) and text.removeprefix(SCOPE) not in linked:
            yield path[:3], f"speaks of `{text}`, which has no links; nobody is meant"
    entered = {listener.scope for listener in config.listeners}
    for path, scope in _client_scopes(config):
        if scope not in entered:
            yield path, f"is `{scope}`, which has no listener, so it cannot connect there; add one, or remove it"
    clients = config.directory.clients
    for path, name in _flow_ends(config, _CLIENT):
        if name not in clients:
            yield path, unknown("client", name, clients, "directory.clients")


def _client_scopes(config: Config) -> Iterator[tuple[DocumentPath, str]]:
    for name, client in config.directory.clients.items():
        for index, scope in enumerate(client.scopes or ()):
            yield ("directory", "clients", name, "scopes", index), scope


def _scope_subjects(config: Config) -> Iterator[tuple[DocumentPath, str]]:
    """Subjects of policies that name scopes and links. Policies may be tens of thousands, and few of them do."""
    for index, entry in enumerate(entries(config, "policies")):
        for below, text in listed(entry.subject):
            if text.startswith((SCOPE, _LINK)):
                yield ("policies", index, "subject", *below), text


def _flow_ends(config: Config, prefix: str) -> Iterator[tuple[DocumentPath, str]]:
    for path, assertion in config.flows.written():
        for end in dict.fromkeys((assertion.source, assertion.target)):
            if end.startswith(prefix):
                yield path, end.removeprefix(prefix)


# -- names nobody has ------------------------------------------------------------------------------------------------


def unknown_names(config: Config) -> Iterator[Finding]:
    """Names that nobody has, wherever rules speak of them."""
    known = _KnownNames(config)
    if known.complete:
        users = config.directory.users
        for index, preference in enumerate(config.preferences):
            if preference.user not in users:
                yield ("preferences", index, "user"), unknown("user", preference.user, users, "directory.users")
        for role in config.brokering.roles or ():
            if role not in known.names["role"]:
                yield ("brokering", "roles", role), unknown("role", role, known.names["role"], "directory")
    for path, sort, name in _believed(config):
        for text in known.doubts_of_subject(policy.Term(sort, name, config.node.domain)):
            yield path, text
    for section in SUBJECT_KEYS:
        for path, term in subjects(config, section):
            for text in known.doubts_of_subject(term):
                yield path, text
    for index, rule in enumerate(written(config.built.rules.policies)):
        for text in known.doubts_of_attributes(rule.topic.reads):
            yield ("policies", index, "topic"), text
    for path, condition in _conditions(config):
        for text in known.doubts_of_condition(condition):
            yield path, text
    yield from _uncovered(config)


def subjects(config: Config, section: str) -> Iterator[tuple[DocumentPath, policy.Term]]:
    """Every subject that rules of a section name, and where."""
    path: DocumentPath = (section,)
    rows = entries(config, section)
    if section == "brokering":
        path, rows = (section, "assign"), config.brokering.assign
    terms: dict[str, policy.Term] = {}
    for index, entry in enumerate(rows):
        if entry.subject is None:  # a link between scopes
            continue
        for below, text in listed(entry.subject):
            if text not in terms:
                [terms[text]] = Selector.parse(text).within(config.node.domain).terms
            yield (*path, index, SUBJECT_KEYS[section], *below), terms[text]


def _believed(config: Config) -> Iterator[tuple[DocumentPath, str, str]]:
    """Users, roles and groups that people of other domains are believed to be."""
    for name, domain in () if config.trust is None else config.trust.domains.items():
        for key, sort in (("users", "user"), ("roles", "role"), ("groups", "group")):
            for there, here in getattr(domain, key).items():
                yield ("trust", "domains", name, key, there), sort, here


class _KnownNames:
    """Who and what there is, and what is said of names that nobody has."""

    def __init__(self, config: Config) -> None:
        self.complete = not has_other_authentication(config)
        """Whether nobody else can bring users, roles and groups of their own."""
        self._parser = config.parser
        self._monitors = config.built.rules.monitors.by_id
        self._domain = config.built.directory.domain
        self._terms = config.built.directory.terms()
        self._said: dict[str, list[str]] = {}
        self.names = {
            sort: dict.fromkeys(sorted(term.name for term in self._terms if term.sort == sort))
            for sort in ("user", "role", "group")
        }
        environments = (config.environment, *(listener.environment for listener in config.listeners))
        self._attributes: dict[str, frozenset[str]] = {
            "o": _MESSAGE,
            "e": frozenset((*CLOCK, *(name for each in environments for name in each))),
        }
        if self.complete:
            directory = config.directory
            sections = (directory.users, directory.clients, directory.roles, directory.groups)
            own = policy.BUILT_IN.union(*(entry.attributes for each in sections for entry in each.values()))
            if config.http is not None:
                own |= _GIVEN
            if config.trust is not None:
                own = own.union(*(domain.attributes for domain in config.trust.domains.values()))
            self._attributes |= {"s": own, "p": own | _PUBLISHED}

    def doubts_of_subject(self, term: policy.Term) -> Iterator[str]:
        if term.sort == "monitor" and term.name not in self._monitors:
            yield unknown("monitor", term.name, self._monitors, "monitors")
        if term.sort in self.names and term not in self._terms and term.domain in ("", self._domain):
            where = "directory.users" if term.sort == "user" else "directory"
            yield from self._doubts_of_name(term.sort, term.name, where)

    def doubts_of_attributes(self, reads: frozenset[str]) -> Iterator[str]:
        for path in sorted(reads):
            root, _, rest = path.partition(".")
            name = rest.partition(".")[0]
            known = self._attributes.get(root)
            if name and known is not None and name not in known:
                meant = suggestion(name, known)
                how = f"did you mean `{root}.{meant}`?" if meant else _WHERE[root]
                yield f"reads `{root}.{name}`, which nobody has; {how}"

    def doubts_of_condition(self, text: str) -> list[str]:
        if text not in self._said:
            predicate = self._parser.predicate(text)
            self._said[text] = [*self.doubts_of_attributes(predicate.reads), *self._compared(predicate.compared)]
        return self._said[text]

    def _compared(self, pairs: frozenset[tuple[str, str]]) -> Iterator[str]:
        for path, name in sorted(pairs):
            root, _, attribute = path.partition(".")
            sort = _COMPARED.get(attribute) if root in ("s", "p") else None
            if sort is not None and name not in self.names[sort] and "@" not in name:
                yield from self._doubts_of_name(sort, name, "directory")

    def _doubts_of_name(self, sort: str, name: str, where: str) -> Iterator[str]:
        if self.complete:
            how = remedy(name, self.names[sort], f"add it under `{where}`, or remove it")
            yield f"names the unknown {sort} `{name}`; {how}"


def _conditions(config: Config) -> Iterator[tuple[DocumentPath, str]]:
    """Every condition of a rule, and where it stands."""
    for section in ("policies", "preferences"):
        for index, entry in enumerate(entries(config, section)):
            if entry.when is not None:
                yield (section, index, "when"), entry.when
    for index, monitor in enumerate(config.monitors):
        for path, condition in _conditions_of_monitor(monitor):
            yield ("monitors", index, *path), condition


def _conditions_of_monitor(monitor: Monitor) -> Iterator[tuple[DocumentPath, str]]:
    if monitor.payload is not None:
        yield ("payload",), monitor.payload
    for key in ("only", "after", "reset"):
        steps = getattr(monitor, key)
        for below, step in () if steps is None else listed(steps):
            if isinstance(step, Step) and step.when is not None:
                yield (key, *below, "when"), step.when
    if monitor.automaton is not None:
        for state, transitions in monitor.automaton.states.items():
            for index, transition in enumerate(transitions):
                if transition.when is not None:
                    yield ("automaton", "states", state, index, "when"), transition.when


def _uncovered(config: Config) -> Iterator[Finding]:
    """Preferences about topics that no policy lets anybody read or forward: there is nothing to restrict."""
    policies = config.built.rules.policies
    if policies is None or not config.preferences:
        return
    index: FilterIndex[str] = FilterIndex()
    filters = {"/".join(rule.topic.levels) for rule in written(policies) if rule.effect is policy.Effect.ALLOW}
    for each in filters:
        index.add(each.split("/"), each)
    for position, preference in enumerate(config.preferences):
        if next(iter(index.overlapping(preference.topic)), None) is None:
            how = remedy(preference.topic, filters, "add a policy for it, or remove the preference")
            text = f"is `{preference.topic}`, and no policy allows anything there; {how}"
            yield ("preferences", position, "topic"), text


# -- names that are taken --------------------------------------------------------------------------------------------


def mention(config: Config, name: str) -> str | None:
    """The first place that mentions a user or a client of that name; None: there is none."""
    for section in _MENTIONING:
        value = getattr(config, section)
        for index, entry in enumerate(as_tuple(value)):
            if hasattr(entry, "model_dump") and mentioned(entry.model_dump(mode="json"), name, config.node.domain):
                return getattr(entry, "id", None) or (f"{section}[{index}]" if isinstance(value, tuple) else section)
    return None


def mentioned(value: Any, name: str, domain: str) -> bool:
    """Whether plain data mentions a user of a domain, or a client: in a selector, under the key `user` or `client`, or
    in a condition."""
    names = {name, f"{name}@{domain}"}
    selector = re.compile(rf"\b(?:user|client):{re.escape(name)}(?:@{re.escape(domain)})?(?![\w.:@-])")
    return any(
        (key in ("user", "client") and text in names)
        or selector.search(text) is not None
        or not names.isdisjoint(quoted(text))
        for key, text in _texts(value)
    )


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All texts in plain data, with the key that each stands under."""
    match value:
        case str():
            yield key, value
        case dict():
            for below, each in value.items():
                yield from _texts(each, below)
                yield from _texts(below)
        case list():
            for each in value:
                yield from _texts(each, key)
