"""Names that nobody has, where rules speak of them: attributes, users, roles and groups in conditions, and topics of
preferences that no policy is about. Such a rule looks as if it did something.

Where users may come that the directory does not know, their names and attributes are not doubted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidegate import policy
from tidegate.config.checks import entries, has_other_authentication
from tidegate.config.monitors import Monitor, Step
from tidegate.config.policies import written
from tidegate.config.problems import Finding, remedy, suggestion
from tidegate.config.section import listed
from tidegate.policy.environment import CLOCK
from tidegate.policy.index import FilterIndex

if TYPE_CHECKING:
    from tidegate.config.model import Config

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
_SORTS: Final = {"user": "user", "role": "role", "roles": "role", "groups": "group"}
"""What a text is that an attribute is compared with."""

Path = tuple[str | int, ...]


def warnings(config: Config) -> Iterator[Finding]:
    """Every name in a condition or template that nobody has, and preferences about topics of no policy."""
    doubt = _Doubt(config)
    for path, reads in _templates(config):
        for text in doubt.attributes(reads):
            yield path, text
    for path, condition in _conditions(config):
        for text in doubt.condition(condition):
            yield path, text
    yield from _uncovered(config)


class _Doubt:
    """What is known, and what is said of names that are not."""

    def __init__(self, config: Config) -> None:
        self._parser = config.parser
        self._said: dict[str, list[str]] = {}
        directory, environments = (
            config.directory,
            [config.environment, *(each.environment for each in config.listeners)],
        )
        sections = (directory.users, directory.clients, directory.roles, directory.groups)
        own = {*policy.BUILT_IN, *(name for each in sections for entry in each.values() for name in entry.attributes)}
        if config.http is not None:
            own |= _GIVEN
        self._attributes: dict[str, frozenset[str]] = {
            "o": _MESSAGE,
            "e": frozenset((*CLOCK, *(name for each in environments for name in each))),
        }
        self._names: Mapping[str, frozenset[str]] = {}
        if not has_other_authentication(config):
            self._attributes |= {"s": frozenset(own), "p": frozenset(own | _PUBLISHED)}
            terms = config.built.directory.terms()
            self._names = {
                sort: frozenset(term.name for term in terms if term.sort == sort) for sort in ("user", "role", "group")
            }

    def attributes(self, reads: frozenset[str]) -> Iterator[str]:
        """Of attributes that nobody has, by path."""
        for path in sorted(reads):
            root, _, rest = path.partition(".")
            name = rest.partition(".")[0]
            known = self._attributes.get(root)
            if name and known is not None and name not in known:
                meant = suggestion(name, known)
                how = f"did you mean `{root}.{meant}`?" if meant else _WHERE[root]
                yield f"reads `{root}.{name}`, which nobody has; {how}"

    def condition(self, text: str) -> list[str]:
        """Of everything that nobody has in a condition."""
        if text not in self._said:
            predicate = self._parser.predicate(text)
            self._said[text] = [*self.attributes(predicate.reads), *self._compared(predicate.compared)]
        return self._said[text]

    def _compared(self, pairs: frozenset[tuple[str, str]]) -> Iterator[str]:
        for path, name in sorted(pairs):
            root, _, attribute = path.partition(".")
            sort = _SORTS.get(attribute) if root in ("s", "p") else None
            known = self._names.get(sort or "")
            if sort is not None and known is not None and name not in known and "@" not in name:
                how = remedy(name, known, "add it under `directory`, or remove it")
                yield f"names the unknown {sort} `{name}`; {how}"


def _templates(config: Config) -> Iterator[tuple[Path, frozenset[str]]]:
    policies = config.built.rules.policies
    for index, rule in enumerate([] if policies is None else written(policies)):
        if rule.topic.reads:
            yield ("policies", index, "topic"), rule.topic.reads


def _conditions(config: Config) -> Iterator[tuple[Path, str]]:
    """Every condition of a rule, and where it stands."""
    for section in ("policies", "preferences"):
        for index, entry in enumerate(entries(config, section)):
            if entry.when is not None:
                yield (section, index, "when"), entry.when
    for index, monitor in enumerate(config.monitors):
        for path, condition in _conditions_of_monitor(monitor):
            yield ("monitors", index, *path), condition


def _conditions_of_monitor(monitor: Monitor) -> Iterator[tuple[Path, str]]:
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
    filters = set()
    for rule in written(policies):
        if rule.effect is policy.Effect.ALLOW:
            filters.add("/".join(rule.topic.levels))
    for each in filters:
        index.add(each.split("/"), each)
    for position, preference in enumerate(config.preferences):
        if next(iter(index.overlapping(preference.topic)), None) is None:
            how = remedy(preference.topic, filters, "add a policy for it, or remove the preference")
            text = f"is `{preference.topic}`, and no policy allows anything there; {how}"
            yield ("preferences", position, "topic"), text
