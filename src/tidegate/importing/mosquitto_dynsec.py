"""Mosquitto's dynamic security (`dynamic-security.json`), read as the plugin of Mosquitto 2.0 reads it.

A client is asked about its own roles, then about those of its groups. Roles and groups come by priority, the highest
first, then by name; the rules of a role by priority, then in file order. The first rule that fits decides; where none
does, `defaultACLAccess`. A client without a user name has the roles of `anonymousGroup`.

Of the four kinds of rules
- `publishClientSend` is what policies call `write`;
- `publishClientReceive` and `subscribe…` together are `read`: a message may be read if the one allows its topic, and
  the other allows a subscription to it. See `dynsec_policies`;
- `unsubscribe…` has no equivalent: here everybody may unsubscribe.

Passwords are salted PBKDF2 hashes and cannot be taken over. What the plugin skips without a word is listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.errors import ConfigError
from tidegate.importing import located, policy_text
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
from tidegate.importing.imported_policies import Imported, ImportReport, by_line
from tidegate.importing.located import Entry

_KINDS: Final = {kind.lower(): kind for kind in (SEND, RECEIVE, SUBSCRIBE_LITERAL, SUBSCRIBE_PATTERN)}
_UNSUBSCRIBE: Final = ("unsubscribeliteral", "unsubscribepattern")
_NO_UNSUBSCRIBE: Final = "here everybody may unsubscribe"
_SOME: Final = 5


def read(text: str, source: str) -> Imported:
    """The policies and the directory that do what the plugin does."""
    tree = located.parse(text, source)
    reader = _Reader(tree, source)
    writer = Writer(reader.roles, reader.defaults, source)
    policies = tuple(writer.policies(reader.people.values(), reader.anonymous))
    return Imported(
        policies=policies,
        combining="first-applicable",
        users={name: writer.entry(person) for name, person in reader.people.items()},
        notes=tuple(_notes(reader)),
        left=by_line([*reader.left, *writer.left]),
    )


def _notes(reader: _Reader) -> list[str]:
    notes = ["A subscription is judged here by the topics it can deliver, not by its filter."]
    if reader.people:
        notes.append("Users have no passwords yet: add `password` to each, as `tidegate passwd NAME` prints it.")
    if reader.anonymous or any((reader.defaults.send, reader.defaults.receive and reader.defaults.subscribe)):
        notes.append("Clients without a user name need a listener with `anonymous: true`, as `allow_anonymous` did.")
    return notes


class _Reader(ImportReport):
    """The file as a model: roles, people with the roles they have in order, defaults."""

    def __init__(self, tree: Entry, source: str) -> None:
        super().__init__(source)
        self.roles: dict[str, Role] = {}
        self.people: dict[str, Person] = {}
        self.anonymous: tuple[str, ...] = ()
        if not any(isinstance(tree.get(key), list) for key in ("roles", "groups", "clients")):
            text = "has no `roles`, `groups` or `clients`; is it the file of the plugin?"
            raise ConfigError(text, file=source, line=tree.line)
        self.defaults = self._default_access(tree)
        self._read_roles(tree)
        groups = self._read_groups(tree)
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
        for entry in tree.entries("roles"):
            name = self._named(entry, "rolename", self.roles)
            if name is not None:
                shown = self._shown(name, entry, taken)
                self.roles[name] = Role(name=name, shown=shown, acls=tuple(self._acls(entry)))

    def _shown(self, name: str, entry: Entry, taken: set[str | None]) -> str:
        """A name for a role that no policy can speak of by its own: one that no other role has."""
        if policy_text.unspeakable("role", name) is None:
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

    def _read_groups(self, tree: Entry) -> dict[str, tuple[str, ...]]:
        """The roles of each group."""
        groups: dict[str, tuple[str, ...]] = {}
        for entry in tree.entries("groups"):
            name = self._named(entry, "groupname", groups)
            if name is not None:
                groups[name] = self._roles_of(entry)
        return groups

    def _read_people(self, tree: Entry, groups: dict[str, tuple[str, ...]]) -> None:
        members: dict[str, dict[str, int]] = {}
        for entry in tree.entries("groups"):
            group = entry.text("groupname")
            for member in entry.entries("clients"):
                user = member.text("username")
                if user is not None and group is not None:
                    members.setdefault(user, {}).setdefault(group, member.number("priority", -1))
        with_password: list[Entry] = []
        seen: dict[str, None] = {}
        for entry in tree.entries("clients"):
            name = self._named(entry, "username", seen)
            if name is None:
                continue
            seen[name] = None
            if entry.switch("disabled"):
                self.leave(entry.line, f"client {name}", "disabled; it is not written, so it cannot connect")
                continue
            if problem := policy_text.unspeakable("user", name):
                self.leave(entry.line, f"client {name}", f"not written: {problem}")
                continue
            priorities = members.get(name, {})
            belongs = sorted(priorities, key=lambda group: (-priorities[group], group.encode()))
            roles = [*self._roles_of(entry), *(role for group in belongs for role in groups[group])]
            self.people[name] = Person(
                name=name,
                roles=tuple(dict.fromkeys(roles)),
                groups=tuple(group for group in belongs if policy_text.unspeakable("group", group) is None),
                client=entry.text("clientid"),
                line=entry.line,
            )
            if entry.get("password") is not None:
                with_password.append(entry)
        self._passwords(with_password)

    def _passwords(self, entries: list[Entry]) -> None:
        if entries:
            names = ", ".join(str(entry.text("username")) for entry in entries[:_SOME])
            more = f" and {len(entries) - _SOME} more" if len(entries) > _SOME else ""
            why = "salted PBKDF2 hashes cannot be taken over; set new ones with `tidegate passwd NAME`"
            self.leave(entries[0].line, f"passwords of {names}{more}", why)

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

    def _named(self, entry: Entry, key: str, taken: Iterable[str]) -> str | None:
        name = entry.text(key)
        if name is None:
            self.leave(entry.line, f"an entry without `{key}`", "the plugin skips it")
        elif name in taken:
            text = f"`{name}` comes twice as a `{key}`; remove one of them"
            raise ConfigError(text, file=self.source, line=entry.line)
        return name
