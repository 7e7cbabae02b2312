"""Mosquitto's dynamic security (`dynamic-security.json`), read as the plugin of Mosquitto 2.0 reads it.

A client is asked about its own roles, then about those of its groups. Roles and groups come by priority, the highest
first, then by name; the rules of a role by priority, then in file order. The first rule that fits decides; where none
does, `defaultACLAccess`. A client without a user name has the roles of `anonymousGroup`.

Of the four kinds of rules
- `publishClientSend` is what policies call `write`;
- `publishClientReceive` and `subscribe…` together are `read`: a message may be read if the one allows its topic, and
  the other allows a subscription to it. See `dynsec_policies`;
- `unsubscribe…` has no equivalent: here everybody may unsubscribe.

Passwords are salted PBKDF2 hashes, and taken over as such. What the plugin skips without a word is listed.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

from tidegate.errors import ConfigError
from tidegate.importing.dynsec_policies import (
    RECEIVE,
    SEND,
    SUBSCRIBE_LITERAL,
    SUBSCRIBE_PATTERN,
    Acl,
    Defaults,
    Person,
    Role,
    Writer,
)
from tidegate.importing.imported_policies import Imported, ImportReport, by_line, unspeakable
from tidegate.importing.mosquitto_passwords import pbkdf2

_KINDS: Final = {kind.lower(): kind for kind in (SEND, RECEIVE, SUBSCRIBE_LITERAL, SUBSCRIBE_PATTERN)}
_UNSUBSCRIBE: Final = ("unsubscribeliteral", "unsubscribepattern")
_NO_UNSUBSCRIBE: Final = "here everybody may unsubscribe"
MAX_DEPTH: Final = 50

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


class Entry:
    """An object of JSON that knows the line it begins in.

    Keys are read without regard to case, and of several equal ones the first counts, as Mosquitto's parser has it.
    """

    __slots__ = ("line", "values")

    def __init__(self, pairs: list[tuple[str, Any]], line: int) -> None:
        self.line = line
        self.values: dict[str, Any] = {}
        for key, value in pairs:
            self.values.setdefault(key.lower(), value)

    def get(self, key: str) -> Any:
        """The value, or None."""
        return self.values.get(key.lower())

    def text(self, key: str) -> str | None:
        """The value if it is a text."""
        value = self.get(key)
        return value if isinstance(value, str) else None

    def switch(self, key: str) -> bool:
        """Whether it says true, and nothing but that."""
        return self.get(key) is True

    def number(self, key: str, default: int) -> int:
        """The value if it is a number, as a whole one within 32 bits."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return default
        return int(max(-(1 << 31), min((1 << 31) - 1, value)))

    def entries(self, key: str) -> list[Entry]:
        """The objects in a list; what is no object in it, or no list, does not count."""
        value = self.get(key)
        return [each for each in value if isinstance(each, Entry)] if isinstance(value, list) else []


def _parse(text: str, source: str) -> Entry:
    """The object that the text is. ConfigError tells the line. Depth is bounded before anything recurses."""
    starts = _starts(text, source)
    ends = [newline.start() for newline in re.finditer("\n", text)]
    order = iter(starts)

    def entry(pairs: list[tuple[str, Any]]) -> Entry:
        return Entry(pairs, bisect_right(ends, next(order)) + 1)

    def refused(constant: str) -> NoReturn:
        raise ValueError(f"`{constant}` is no number of JSON")

    try:
        value = json.loads(text, object_pairs_hook=entry, parse_constant=refused)
    except json.JSONDecodeError as wrong:
        raise ConfigError(f"no JSON: {wrong.msg}; mend it there", file=source, line=wrong.lineno) from None
    except ValueError as wrong:  # numbers that are none, or far too long
        raise ConfigError(f"no JSON: {wrong}; mend it", file=source) from None
    if not isinstance(value, Entry):
        raise ConfigError("no JSON object; is it the right file?", file=source, line=1)
    return value


def _starts(text: str, source: str) -> list[int]:
    """Where objects begin, in the order in which they end, which is the order in which they are made."""
    opened: list[int] = []
    starts: list[int] = []
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "{" | "[":
                opened.append(token.start())
                if len(opened) > MAX_DEPTH:
                    line = text.count("\n", 0, token.start()) + 1
                    raise ConfigError(f"nested deeper than {MAX_DEPTH} levels; flatten it", file=source, line=line)
            case "}" | "]" if opened:
                start = opened.pop()
                if token[0] == "}":
                    starts.append(start)
            case _:
                pass
    return starts


def read(text: str, source: str) -> Imported:
    """The policies and the directory that do what the plugin does."""
    tree = _parse(text, source)
    reader = _Reader(tree, source)
    writer = Writer(reader.roles, reader.defaults, source)
    policies = tuple(writer.policies(reader.people.values(), reader.anonymous))
    return Imported(
        policies=policies,
        combining="first-applicable",
        users={
            name: reader.passwords.get(name, {}) | dict(writer.entry(person)) for name, person in reader.people.items()
        },
        notes=tuple(_notes(reader)),
        left=by_line([*reader.left, *writer.left]),
    )


def _notes(reader: _Reader) -> list[str]:
    notes = ["A subscription is judged here by the topics it can deliver, not by its filter."]
    if reader.people.keys() - reader.passwords.keys():
        notes.append("Some users have no passwords: add `password` to each, as `tidegate passwd NAME` prints it.")
    if reader.anonymous or any((reader.defaults.send, reader.defaults.receive and reader.defaults.subscribe)):
        notes.append("Clients without a user name need a listener with `anonymous: true`, as `allow_anonymous` did.")
    return notes


class _Reader(ImportReport):
    """The file as a model: roles, people with the roles they have in order, defaults."""

    def __init__(self, tree: Entry, source: str) -> None:
        super().__init__(source)
        self.roles: dict[str, Role] = {}
        self.people: dict[str, Person] = {}
        self.passwords: dict[str, dict[str, str]] = {}
        """The key `password` of each user whose hash can be taken over."""
        self.anonymous: tuple[str, ...] = ()
        if not any(isinstance(tree.get(key), list) for key in ("roles", "groups", "clients")):
            text = "has no `roles`, `groups` or `clients`; is it the file of the plugin?"
            raise ConfigError(text, file=source, line=tree.line)
        self.defaults = self._default_access(tree)
        self._read_roles(tree)
        groups = {name: self._roles_of(entry) for name, entry in self._named(tree, "groups", "groupname")}
        self._read_people(tree, groups)
        name = tree.text("anonymousGroup")
        if name is not None and name in groups:
            self.anonymous = groups[name]

    def _default_access(self, tree: Entry) -> Defaults:
        access = tree.get("defaultACLAccess")
        if not isinstance(access, Entry):
            return Defaults(send=False, receive=False, subscribe=False)
        if not access.switch("unsubscribe"):
            self.leave(access.line, "defaultACLAccess: unsubscribe false", _NO_UNSUBSCRIBE)
        return Defaults(
            send=access.switch(SEND),
            receive=access.switch(RECEIVE),
            subscribe=access.switch("subscribe"),
            line=access.line,
        )

    def _read_roles(self, tree: Entry) -> None:
        taken = {entry.text("rolename") for entry in tree.entries("roles")}
        for name, entry in self._named(tree, "roles", "rolename"):
            shown = self._shown(name, entry, taken)
            self.roles[name] = Role(name=name, shown=shown, acls=tuple(self._acls(entry)))

    def _shown(self, name: str, entry: Entry, taken: set[str | None]) -> str:
        """A name for a role that no policy can speak of by its own: one that no other role has."""
        if unspeakable("role", name) is None:
            return name
        names = (f"role-{entry.line}", *(f"role-{entry.line}-{count}" for count in range(2, len(taken) + 3)))
        shown = next(name for name in names if name not in taken)
        taken.add(shown)
        return shown

    def _acls(self, role: Entry) -> Iterable[Acl]:
        acls: list[Acl] = []
        for entry in role.entries("acls"):
            kind, topic, allow = entry.text("acltype"), entry.text("topic"), entry.switch("allow")
            what = f"{kind} {topic}"
            if kind is None or topic is None:
                self.leave(entry.line, what, "a rule without `acltype` or `topic`; the plugin skips it")
            elif kind.lower() in _UNSUBSCRIBE:
                if not allow:
                    self.leave(entry.line, f"{what} deny", _NO_UNSUBSCRIBE)
            elif kind.lower() not in _KINDS:
                self.leave(entry.line, what, "no kind of rule; the plugin skips it")
            else:
                number = entry.number("priority", 0)
                acls.append(Acl(kind=_KINDS[kind.lower()], topic=topic, priority=number, allow=allow, line=entry.line))
        return sorted(acls, key=lambda acl: -acl.priority)

    def _read_people(self, tree: Entry, groups: dict[str, tuple[str, ...]]) -> None:
        members: dict[str, dict[str, int]] = {}
        for entry in tree.entries("groups"):
            group = entry.text("groupname")
            for member in entry.entries("clients"):
                user = member.text("username")
                if user is not None and group is not None:
                    members.setdefault(user, {}).setdefault(group, member.number("priority", -1))
        for name, entry in self._named(tree, "clients", "username"):
            if entry.switch("disabled"):
                self.leave(entry.line, f"client {name}", "disabled; it is not written, so it cannot connect")
                continue
            if problem := unspeakable("user", name):
                self.leave(entry.line, f"client {name}", f"not written: {problem}")
                continue
            priorities = members.get(name, {})
            belongs = sorted(priorities, key=lambda group: (-priorities[group], group.encode()))
            roles = [*self._roles_of(entry), *(role for group in belongs for role in groups[group])]
            self.people[name] = Person(
                name=name,
                roles=tuple(dict.fromkeys(roles)),
                groups=tuple(group for group in belongs if unspeakable("group", group) is None),
                client=entry.text("clientid"),
                line=entry.line,
            )
            if entry.get("password") is not None:
                self._password(name, entry)

    def _password(self, name: str, entry: Entry) -> None:
        parts = entry.number("iterations", 101), entry.text("salt") or "", entry.text("password") or ""
        if (stored := pbkdf2(*parts)) is not None:
            self.passwords[name] = {"password": stored}
        else:
            self.leave(entry.line, f"password of {name}", "no PBKDF2 hash; set a new one with `tidegate passwd NAME`")

    def _roles_of(self, entry: Entry) -> tuple[str, ...]:
        """The roles of a client or a group, as the plugin asks them."""
        priorities: dict[str, int] = {}
        for each in entry.entries("roles"):
            name = each.text("rolename")
            if name is None or name not in self.roles:
                self.leave(each.line, f"role {name}", "there is no such role; the plugin skips it")
            else:
                priorities.setdefault(name, each.number("priority", -1))
        return tuple(sorted(priorities, key=lambda name: (-priorities[name], name.encode())))

    def _named(self, tree: Entry, section: str, key: str) -> Iterator[tuple[str, Entry]]:
        """The entries of a section, by their names."""
        taken: set[str] = set()
        for entry in tree.entries(section):
            name = entry.text(key)
            if name is None:
                self.leave(entry.line, f"an entry without `{key}`", "the plugin skips it")
                continue
            if name in taken:
                text = f"`{name}` comes twice as a `{key}`; remove one of them"
                raise ConfigError(text, file=self.source, line=entry.line)
            taken.add(name)
            yield name, entry
