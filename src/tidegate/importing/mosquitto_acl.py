"""Mosquitto's `acl_file`, read as Mosquitto 2.0 reads it.

What it does there, and so here (`combining: first-applicable`):
1. the lines of the client's own section: `deny` first, then what allows. `topic` lines before the first `user` are the
   section of clients without a user name;
2. if there are patterns, a client whose user name or identifier contains `+` or `#` is denied the rest;
3. patterns: `deny` first, then what allows. They hold for everybody. One with `%u` does not apply to clients without a
   user name;
4. nothing else is allowed.
So a section that allows wins over a pattern that denies.

Where it is stricter: a name with `/` in it makes several levels of `%c` and `%u` there. Here such an allowing pattern
matches nothing, and one that denies is asked with the name as it is.

A line that Mosquitto refuses is refused: it would not have started with the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from tidegate import topics
from tidegate.errors import ConfigError
from tidegate.importing import dollar_topics
from tidegate.importing.imported_policies import (
    Imported,
    ImportedPolicy,
    ImportReport,
    by_line,
    plain_topic,
    quoted,
    unspeakable,
)

MAX_RULES: Final = 100_000
ANONYMOUS: Final = "s.kind == 'client' && !has(s.user)"

_BLANK: Final = " \t\n\v\f\r"
_READ, _WRITE = (dollar_topics.READ,), (dollar_topics.WRITE,)
_ACCESS: Final = {"read": _READ, "write": _WRITE, "readwrite": dollar_topics.BOTH, "deny": ()}
_PLACEHOLDER: Final = re.compile("%[cu]")
_NAMES: Final = {"%c": "s.client", "%u": "s.user"}
_WILD: Final = "[+#]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """A `topic` or `pattern` line; without actions it denies."""

    line: int
    text: str
    filter: str
    action: tuple[str, ...]

    @property
    def denies(self) -> bool:
        return not self.action


class _File(ImportReport):
    """The lines of the file: one list for each section, and one of patterns; and the policies that they become."""

    def __init__(self, source: str) -> None:
        super().__init__(source, "acl")
        self.sections: dict[str | None, list[_Rule]] = {}
        self.named: dict[str, int] = {}
        """Users, and the line that names each first."""
        self.patterns: list[_Rule] = []
        self._user: str | None = None
        self._count = 0

    def take(self, line: int, text: str) -> None:
        """One line, as Mosquitto takes it apart: words are separated by spaces, and only by these."""
        text = text.rstrip(_BLANK)
        word, _, rest = text.lstrip(" ").partition(" ")
        rest = rest.strip(_BLANK)
        if not word or text[0] == "#":
            return
        if "\0" in text:
            raise self._wrong(line, "a NUL character; remove it")
        match word:
            case "user":
                if not rest:
                    raise self._wrong(line, "`user` without a name; write `user NAME`")
                self._user = rest
                self.named.setdefault(rest, line)
            case "topic" | "pattern":
                rule = self._rule(line, text, word, rest)
                self._count += 1
                if self._count > MAX_RULES:
                    raise self._wrong(line, f"more than {MAX_RULES:,} rules; split the file")
                kept = self.patterns if word == "pattern" else self.sections.setdefault(self._user, [])
                kept.append(rule)
            case _:
                how = "write `user`, `topic`, `pattern` or `#`, then a space"
                raise self._wrong(line, f"{quoted(word[:40])} is no word of an ACL file; {how}")

    def _rule(self, line: int, text: str, word: str, rest: str) -> _Rule:
        access, _, filter = rest.partition(" ")
        if not filter:
            access, filter = "readwrite", access
        if not filter:
            raise self._wrong(line, f"`{word}` without a topic; write `{word} read TOPIC`")
        if access not in _ACCESS:
            shown = quoted(access[:40])
            raise self._wrong(line, f"{shown} is no access; write `read`, `write`, `readwrite` or `deny`")
        filter = filter.strip(_BLANK)
        if dollar_topics.first(filter) != "$share" and not topics.valid_filter(filter):
            raise self._wrong(line, "no topic filter; `+` is a whole level, `#` the whole last one")
        return _Rule(line=line, text=text, filter=filter, action=_ACCESS[access])

    def _wrong(self, line: int, text: str) -> ConfigError:
        return ConfigError(text, file=self.source, line=line)

    # -- policies ------------------------------------------------------------------------------------------------

    def policies(self) -> Iterator[ImportedPolicy]:
        for user, rules in self.sections.items():
            yield from self._section(user, rules)
        if self.patterns:
            yield from self._patterns(_in_order(self.patterns))

    def _section(self, user: str | None, rules: list[_Rule]) -> Iterator[ImportedPolicy]:
        problem = None if user is None else unspeakable("user", user)
        for rule in _in_order(rules):
            if problem is not None:
                self.leave(rule.line, rule.text, f"no policy can speak of its user: {problem}")
                continue
            subject, when = ("*", ANONYMOUS) if user is None else (f"user:{user}", None)
            if rule.denies:
                yield from self._denying(rule, subject, (rule.filter,), when)
            elif action := self._possible(rule):
                yield self._taken(rule, subject, plain_topic(rule.filter), action, when=when)

    def _patterns(self, rules: list[_Rule]) -> Iterator[ImportedPolicy]:
        roots = frozenset(
            level for rule in rules if (level := dollar_topics.root(rule.filter)) and not _PLACEHOLDER.search(level)
        )
        for topic in dollar_topics.everything(_denied(roots)):
            yield ImportedPolicy(
                id=self.next_id("wildcards"),
                subject="*",
                topic=plain_topic(topic),
                action=dollar_topics.BOTH,
                effect="deny",
                when=f"!has(s.client) || s.client.matches('{_WILD}') || (has(s.user) && s.user.matches('{_WILD}'))",
                origin="patterns are not for names with wildcards",
            )
        for rule in rules:
            names = sorted(set(_PLACEHOLDER.findall(rule.filter)))
            if not rule.denies:
                if action := self._possible(rule):
                    yield self._taken(rule, "*", _template(rule.filter), action)
            elif not names:
                yield from self._denying(rule, "*", (rule.filter,), None)
            else:
                yield from self._denying(rule, "*", _around(rule.filter, roots), _matched(rule.filter, names))
                if _PLACEHOLDER.search(dollar_topics.root(rule.filter) or ""):  # no plain filter is around it
                    yield self._taken(rule, "*", _template(rule.filter), dollar_topics.BOTH)

    def _denying(
        self, rule: _Rule, subject: str, filters: tuple[str, ...], when: str | None
    ) -> Iterator[ImportedPolicy]:
        for filter in filters:
            possible, _ = dollar_topics.possible(filter, dollar_topics.BOTH)
            if possible:  # else nothing need be denied
                yield self._taken(rule, subject, plain_topic(filter), dollar_topics.BOTH, when=when)

    def _possible(self, rule: _Rule) -> tuple[str, ...]:
        action, why = dollar_topics.possible(rule.filter, rule.action)
        if not action:
            self.leave(rule.line, rule.text, why)
        return action

    def _taken(
        self, rule: _Rule, subject: str, topic: str, action: tuple[str, ...], *, when: str | None = None
    ) -> ImportedPolicy:
        return ImportedPolicy(
            id=self.next_id(rule.line),
            subject=subject,
            topic=topic,
            action=action,
            effect="deny" if rule.denies else "allow",
            when=when,
            origin=f"line {rule.line}: {rule.text}",
        )


def read(text: str, source: str) -> Imported:
    """The policies that do what the ACL file does."""
    file = _File(source)
    for line, each in enumerate(text.split("\n"), 1):
        file.take(line, each)
    policies = tuple(file.policies())
    return Imported(
        policies=policies,
        combining="first-applicable",
        users={user: {} for user in file.named if not unspeakable("user", user)},
        notes=tuple(_notes(file)),
        left=by_line(file.left),
    )


def _notes(file: _File) -> Iterator[str]:
    yield "Mosquitto grants every subscription, and drops what its client may not read. Here a subscription that can"
    yield "never deliver is refused; `subscribe: hold` grants those, too."
    if file.named or any("%u" in rule.filter for rule in file.patterns):
        yield "Users have no passwords here yet: add `password` to each, as `tidegate passwd NAME` prints it. Those of"
        yield "the password file that the ACL file does not name are missing in `directory.users`; add them."
    if None in file.sections:
        yield "Some policies are for clients without a user name: these need a listener with `anonymous: true`."
    if any(_PLACEHOLDER.search(rule.filter) and not rule.denies for rule in file.patterns):
        yield "Placeholders never stand for a name that contains `/`; in Mosquitto it would be several levels."


def _in_order(rules: list[_Rule]) -> list[_Rule]:
    """As Mosquitto asks them: what denies before what allows."""
    return sorted(rules, key=lambda rule: not rule.denies)


def _denied(roots: frozenset[str]) -> frozenset[str]:
    """The first levels below which something can be allowed."""
    return frozenset(level for level in roots if dollar_topics.possible(level, dollar_topics.BOTH)[0])


def _template(filter: str) -> str:
    """A pattern as the `topic` of a policy writes it."""
    return _PLACEHOLDER.sub(lambda placeholder: f"{{{_NAMES[placeholder[0]]}}}", plain_topic(filter))


def _around(filter: str, roots: frozenset[str]) -> tuple[str, ...]:
    """Plain filters that hold every topic a pattern can match, as far as some pattern can allow it."""
    levels = list(takewhile(lambda level: not _PLACEHOLDER.search(level), filter.split("/")))
    return ("/".join((*levels, "#")),) if levels else dollar_topics.everything(_denied(roots))


def _matched(filter: str, names: list[str]) -> str:
    """The condition that the topic matches a pattern once the names stand in it. Nobody knows who: it does."""
    pieces = [_NAMES.get(piece) or quoted(piece) for piece in re.split("(%[cu])", filter) if piece]
    condition = f"matchesFilter(o.topic, {' + '.join(pieces)})"
    # Where a name makes it no filter, the guard above has denied already; here that must not count as an error.
    if "%c" in names:
        condition = f"!has(s.client) || (!s.client.matches('{_WILD}') && {condition})"
    if "%u" in names:
        condition = f"({condition})" if "%c" in names else condition
        condition = f"has(s.user) && !s.user.matches('{_WILD}') && {condition}"
    return condition
