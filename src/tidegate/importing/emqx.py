"""EMQX's `acl.conf`: `{allow, {user, "mary"}, publish, ["gym/${username}/#"]}.`

The first rule that matches decides, in EMQX as in `combining: first-applicable`, so each rule becomes policies in its
place. EMQX decides a subscription once, by its filter; here every message is decided by its topic. What is written
lets a client read exactly the topics to which it could subscribe one by one.

Invariants
- What has no equivalent is left out of rules that allow, and makes rules that deny wider.
- `+` and `#` at the beginning of a filter reach topics that begin with `$` in EMQX, not here: rules that deny name
  those of them that the file speaks of, rules that allow do not.

What no rule matches is denied. In EMQX `no_match`, which stands in another file, decides that.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Final, NoReturn

from tidegate import topics
from tidegate.errors import ConfigError
from tidegate.importing import formula as f
from tidegate.importing.erlang import Atom, List, Number, Term, Text, Tuple, terms
from tidegate.importing.imported_policies import (
    Imported,
    ImportedPolicy,
    ImportReport,
    plain_topic,
    quoted,
    unspeakable,
)
from tidegate.policy import Template

MAX_RULES: Final = 20_000
MAX_SHOWN: Final = 100

_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_ATTRIBUTES: Final = {"username": "s.user", "clientid": "s.client"}
_WHOLE_LEVEL: Final = {"%u": "${username}", "%c": "${clientid}"}
_SORTS: Final = {"user": "user", "username": "user", "client": "client", "clientid": "client"}
_WHO: Final = frozenset((*_SORTS, "ipaddr", "ipaddrs", "and", "or"))
_EVERY_QOS: Final = frozenset((0, 1, 2))
_READ: Final = f.Doing(frozenset(("read",)))
_WRITE: Final = f.Doing(frozenset(("write",)))

_DOLLAR: Final = (
    "`#` and `+` at the beginning do not reach topics that begin with `$` here. Whoever shall have those "
    "needs a policy that names them, such as `$SYS/#`."
)
_SUBSCRIBING: Final = (
    "EMQX decides a subscription by its filter, Tidegate each message by its topic: a wide filter delivers what may "
    "be read of it, and nothing else."
)
_NO_LAST: Final = (
    "The file does not end with a rule for everything: what no rule matches is denied here. EMQX does what "
    "`authorization.no_match` says, whose default is to allow."
)
_NAMES: Final = "A name that holds `/`, `+` or `#` fits no placeholder."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    """One topic of a rule, as a template; about clients for which `odd` holds."""

    template: str
    odd: f.Formula = f.ALWAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    allows: bool
    asked: f.Formula
    topics: tuple[_Topic, ...]
    origin: str
    line: int
    everything: bool


def read(text: str, source: str) -> Imported:
    """The policies of a file; ConfigError says where it is wrong."""
    reading = _Reading(source, "acl")
    rules = [reading.rule(term, written) for term, written in terms(text, source)]
    if len(rules) > MAX_RULES:
        raise ConfigError(f"has more than {MAX_RULES} rules; split it", file=source)
    roots = sorted({root for rule in rules for topic in rule.topics if (root := _root(topic.template))})
    policies = [taken for rule in rules for taken in reading.taken(rule, roots)]
    notes = [_SUBSCRIBING] if rules else []
    if any(rule.allows and any(topic.template[0] in "+#" for topic in rule.topics) for rule in rules):
        notes.append(_DOLLAR)
    if any("{s." in topic.template for rule in rules for topic in rule.topics):
        notes.append(_NAMES)
    if not rules or not rules[-1].everything:
        notes.append(_NO_LAST)
    return Imported(
        policies=tuple(policies), combining="first-applicable", notes=tuple(notes), left=tuple(reading.left)
    )


def _root(template: str) -> str | None:
    """The first level of a topic that begins with `$`."""
    return template.partition("/")[0] if template[0] == "$" else None


class _Reading(ImportReport):
    """One file being read, and what is left out of it."""

    def rule(self, term: Term, written: str) -> _Rule:
        who: f.Formula = f.ALWAYS
        asked: f.Formula = f.ALWAYS
        listed: tuple[Term, ...] = (Text("#", term.line),)
        match term:
            case Tuple((Atom("allow" | "deny" as effect, _), Atom("all", _)), line):
                pass
            case Tuple((Atom("allow" | "deny" as effect, _), whom, action, List(items)), line):
                allows = effect == "allow"
                who, asked, listed = self._who(whom, allows), self._action(action, allows), items
            case _:
                self._wrong(term, "is no rule")
        rule_topics = [topic for item in listed for topic in self._topic(item, effect == "allow", asked)]
        return _Rule(
            allows=effect == "allow",
            asked=f.both(who, asked),
            topics=tuple(rule_topics),
            origin=f"line {line}: {_shortened(written)}",
            line=line,
            everything=who == asked == f.ALWAYS and any(topic.template == "#" for topic in rule_topics),
        )

    # -- who and what --------------------------------------------------------------------------------------------

    def _who(self, term: Term, allows: bool) -> f.Formula:
        match term:
            case Atom("all"):
                return f.ALWAYS
            case Tuple((Atom(key), Text(name, line))) if key in _SORTS:
                if (why := unspeakable(_SORTS[key], name)) is not None:
                    self.leave(line, f"{_SORTS[key]} `{_shortened(name)}`", why)
                return f.named(_SORTS[key], name)
            case Tuple((Atom(key), Tuple((Atom("re"), Text(pattern, line))))) if key in _SORTS:
                return self._pattern(f"s.{_SORTS[key]}", pattern, line, allows)
            case Tuple((Atom("ipaddr"), Text() as network)):
                return self._networks([network])
            case Tuple((Atom("ipaddrs"), List(items))):
                return self._networks(items)
            case Tuple((Atom("and"), List(items))):
                return f.both(*(self._who(item, allows) for item in items))
            case Tuple((Atom("or"), List(items))):
                return f.either(*(self._who(item, allows) for item in items))
            case Tuple((Atom(name, line), *_)) if name not in _WHO:
                return self._unsaid(line, f"`{name}`", "not known here", allows)
            case _:
                self._wrong(term, "does not say who")

    def _pattern(self, path: str, pattern: str, line: int, allows: bool) -> f.Formula:
        # EMQX matches bytes, and `\v` means other characters there
        same = pattern.isascii() and "\\v" not in pattern
        test = f.text_fits(path, pattern, within=path) if same else None
        shown = f"`{{re, {_shortened(pattern)}}}`"
        return test or self._unsaid(line, shown, "no pattern in the syntax of RE2", allows)

    def _networks(self, items: Iterable[Term]) -> f.Formula:
        addresses: list[str] = []
        for item in items:
            if not isinstance(item, Text):
                self._wrong(item, "is no network")
            try:
                addresses.append(str(ipaddress.ip_network(item.value, strict=False)))
            except ValueError:
                self._wrong(item, f"has `{item.value[:MAX_SHOWN]}`, which is no network")
        if not addresses:
            return f.NEVER
        listed = ", ".join(map(quoted, addresses))
        networks = listed if len(addresses) == 1 else f"[{listed}]"
        return f.Test(text=f"s.address != '' && cidr(s.address, {networks})", weight=100)

    def _action(self, term: Term, allows: bool) -> f.Formula:
        match term:
            case Atom("publish" | "subscribe" | "all" | "pubsub" as name):
                options: tuple[Term, ...] = ()
            case Tuple((Atom("publish" | "subscribe" | "all" as name), List(options))):
                pass
            case _:
                self._wrong(term, "is no action")
        qos, retain = self._options(options)
        writing: f.Formula = f.ALWAYS
        reading: f.Formula = f.ALWAYS if qos == _EVERY_QOS else f.UNSAID if qos else f.NEVER
        if qos != _EVERY_QOS:
            listed = ", ".join(map(str, sorted(qos)))
            writing = f.Test(text=f"o.qos in [{listed}]") if qos else f.NEVER
        if retain is not None:
            writing = f.both(writing, f.Test(text="o.retain" if retain else "!o.retain"))
        if name == "publish":
            return f.both(_WRITE, writing)
        if reading == f.UNSAID:
            self._unsaid(term.line, "`qos` of a subscription", "not known when a message is delivered", allows)
        if name == "subscribe":
            return f.both(_READ, reading)
        if writing == reading == f.ALWAYS:
            return f.ALWAYS
        return f.either(f.both(_WRITE, writing), f.both(_READ, reading))

    def _options(self, options: Iterable[Term]) -> tuple[frozenset[int], bool | None]:
        qos: set[int] | None = None
        retain: list[bool | None] = []
        for option in options:
            match option:
                case Tuple((Atom("qos"), Number(value))) if value in _EVERY_QOS:
                    qos = (qos or set()) | {value}
                case Tuple((Atom("qos"), List(items))):
                    values = [item.value for item in items if isinstance(item, Number) and item.value in _EVERY_QOS]
                    if len(values) < len(items):
                        self._wrong(option, "has a `qos` other than 0, 1 and 2")
                    qos = (qos or set()) | set(values)
                case Tuple((Atom("retain"), Atom("true" | "false" | "all" as name))):
                    retain.append({"true": True, "false": False, "all": None}[name])
                case _:
                    self._wrong(option, "is no option of an action")
        # of several `retain` EMQX takes the first, of several `qos` all
        return _EVERY_QOS if qos is None else frozenset(qos), retain[0] if retain else None

    # -- topics --------------------------------------------------------------------------------------------------

    def _topic(self, term: Term, allows: bool, asked: f.Formula) -> list[_Topic]:
        match term:
            case Tuple((Atom("eq"), Text(written, line))):
                return self._exactly(written, line, asked)
            case Text(written, line) if written.startswith("eq "):
                return self._exactly(written.removeprefix("eq "), line, asked)
            case Text(written, line):
                return self._filter(written, line, allows)
            case _:
                self._wrong(term, "is no topic")

    def _exactly(self, written: str, line: int, asked: f.Formula) -> list[_Topic]:
        if topics.valid_topic(written):
            return [_Topic(template=plain_topic(written))]
        # no message has such a topic, so for publishing nothing is lost
        if f.settled(asked, "read", upward=True) != f.NEVER:
            why = "means the filter of a subscription and no topic; each message is decided by its own topic here"
            self.leave(line, f'`{{eq, "{_shortened(written)}"}}`', why)
        return []

    def _filter(self, written: str, line: int, allows: bool) -> list[_Topic]:
        levels = [_level(_WHOLE_LEVEL.get(level, level)) for level in written.split("/")]
        used = [name for _, names in levels for name in names]
        filled = next((at for at, (_, names) in enumerate(levels) if names), None)
        widest = None if filled is None else "/".join([*(text for text, _ in levels[:filled]), "#"])
        shown = f'"{_shortened(written)}"'
        if not _ATTRIBUTES.keys() >= set(used):
            what = "has a placeholder other than `${username}` and `${clientid}`"
            self.leave(line, shown, f"{what}; {self._direction(allows)}")
            return [] if allows or widest is None else [_Topic(template=widest)]
        template = "/".join(text for text, _ in levels)
        try:
            Template.parse(template)
        except ConfigError:
            self.leave(line, shown, "is no topic filter and matches nothing; mend it, or remove it")
            return []
        exact = _Topic(template=template)
        if allows or widest is None:
            return [exact]
        why = "a placeholder takes no name with `/`, `+`, `#`, and none that is absent"
        self.leave(line, shown, f"{why}; such clients are denied all of `{widest}`")
        return [exact, _Topic(template=widest, odd=f.either(*(_odd(_ATTRIBUTES[name]) for name in used)))]

    # -- policies ------------------------------------------------------------------------------------------------

    def taken(self, rule: _Rule, roots: list[str]) -> list[ImportedPolicy]:
        def too_large() -> None:
            self._unsaid(rule.line, "its `Who`", "too large for one condition", rule.allows)

        policies: list[ImportedPolicy] = []
        for topic in rule.topics:
            ways = f.flat_by_action(f.both(rule.asked, topic.odd), allows=rule.allows, too_large=too_large)
            flats = [(actions, flat) for actions, way in ways for flat in way]
            for template, (actions, flat) in product(self._templates(rule, topic, roots), flats):
                policies.append(
                    ImportedPolicy(
                        id=self.next_id(rule.line),
                        subject=flat.subject,
                        topic=template,
                        action=actions,
                        effect="allow" if rule.allows else "deny",
                        when=flat.when,
                        origin="" if policies else rule.origin,
                    )
                )
        return policies

    def _templates(self, rule: _Rule, topic: _Topic, roots: list[str]) -> list[str]:
        first, slash, rest = topic.template.partition("/")
        if rule.allows or first not in ("+", "#"):
            return [topic.template]
        return [topic.template, *(f"{root}/#" if first == "#" else f"{root}{slash}{rest}" for root in roots)]

    # -- saying --------------------------------------------------------------------------------------------------

    def _unsaid(self, line: int, what: str, why: str, allows: bool) -> f.Formula:
        self.leave(line, what, f"{why}; {self._direction(allows)}")
        return f.UNSAID

    @staticmethod
    def _direction(allows: bool) -> str:
        return "nothing is allowed by it" if allows else "it denies as if everybody were meant"

    def _wrong(self, term: Term, what: str) -> NoReturn:
        remedy = 'write rules such as `{allow, {user, "mary"}, publish, ["a/#"]}.`'
        raise ConfigError(f"a term {what}; {remedy}", file=self.source, line=term.line)


def _odd(path: str) -> f.Formula:
    """The attribute cannot stand in a topic."""
    there = f.Test(text=f"has({path})")
    return f.either(f.opposite(there), f.Test(text=f"has({path}) && {path}.matches('^$|^[$]|[/+#]')", weight=120))


def _level(written: str) -> tuple[str, list[str]]:
    """One level as a part of a template, and the names of its placeholders."""
    text, names, end = "", [], 0
    for placeholder in _PLACEHOLDER.finditer(written):
        text += plain_topic(written[end : placeholder.start()])
        end = placeholder.end()
        if placeholder[1] == "$":  # how EMQX writes the character itself
            text += "$"
        else:
            names.append(placeholder[1])
            text += f"{{{_ATTRIBUTES.get(placeholder[1], '')}}}"
    return text + plain_topic(written[end:]), names


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}…"
