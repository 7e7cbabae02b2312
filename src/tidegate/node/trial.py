"""Trying the rules of a configuration without running it: who would be allowed what, and why.

Subjects are built from the directory as for a connection: by default to the first listener, from this machine. What
is decided is decided by the stages of the gate (`gate.explain`). Nothing is opened, started or changed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from tidegate import topics
from tidegate.config import Asked, ClientCert, Config, Listener, Who, parse_who
from tidegate.config.checks import unknown
from tidegate.errors import ConfigError
from tidegate.gate import Rules
from tidegate.gate.explain import Explainer
from tidegate.gate.explanation import Explanation, Publication
from tidegate.gate.where import WHERE, condition
from tidegate.node.assumed import TLS, Assumed, assume, merged, tls_of
from tidegate.policy import Class, Classification, Environment, Facts
from tidegate.policy.predicate import Predicate
from tidegate.session import NO_TERMS, Link, Subject, Terms
from tidegate.wire import NONE, Properties

UNKNOWN: Final = "unknown"
"""The client identifier of whoever has none that matters."""
LOOPBACK: Final = "127.0.0.1"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May somebody do something with a topic?"""

    subject: str
    """As on the command line: `user:mary/client:tr1`."""
    action: Asked
    topic: str
    """For `subscribe` the filter."""
    publisher: str | None = None
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Pairs = ()
    """User properties of the message."""
    terms: Pairs = ()
    """User properties of the subscription: `where`, `require`."""
    at: float | None = None
    """Seconds since 1970; None: now."""
    assumed: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """Attributes to assume, by path: `s.level`."""


class Trial:
    """Answers questions about one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.rules = config.built.rules
        self._explainer = Explainer(self.rules)

    def explain(self, question: Question) -> Explanation:
        """The verdict and how it came about. ConfigError if that cannot be asked, with the remedy."""
        _check_topic(question)
        rules = self.rules
        at = time.time() if question.at is None else question.at
        assumed = Assumed(question.assumed, question.action)
        if assumed.category is not None:
            only = Class(topic=topics.share(question.topic)[1], category=assumed.category)
            rules = replace(rules, classification=Classification((only,)))
        subject, notes = self._subject(question.subject, assumed.s, "s")
        here = self._within(rules, subject, assumed.e)
        match question.action:
            case Asked.WRITE:
                found = here.write(_publication(question, subject), at)
            case Asked.SUBSCRIBE:
                self._terms(question.terms)
                found = here.subscribe(question.topic, Link(subject, False, "out"), at)
            case Asked.READ:
                terms, where = self._terms(question.terms)
                publisher, more = self._subject(question.publisher or f"client:{UNKNOWN}", assumed.p, "p")
                notes += more if question.publisher is not None else ()
                there = self._within(rules, publisher, assumed.around)
                published = at if assumed.time is None else assumed.time
                written = there.write(_publication(question, publisher), published)
                found = here.read(written, Link(subject, False, "out"), at, terms, where)
                if question.publisher is None:
                    self._check_anonymous(written, found)
        return replace(found, notes=(*found.notes, *notes))

    # -- who -----------------------------------------------------------------------------------------------------

    def _subject(self, text: str, assumed: Mapping[str, Any], root: str) -> tuple[Subject, tuple[str, ...]]:
        """Somebody as the directory knows them, with what is assumed instead; and what should be said about it."""
        config, directory, levels = self.config, self.config.built.directory, self.rules.levels
        who = parse_who(text)
        listener = self._listener(assumed.get("listener"), root)
        subject = Subject(
            kind=who.kind,
            client=who.name or UNKNOWN,
            user=who.user,
            scope=listener.scope,
            node=config.node.name,
            domain=who.domain or self.rules.domain,
        )
        notes: tuple[str, ...] = ()
        if who.kind == "service":
            # links inside a node have the highest level (semantics, *Levels and demands*)
            return assume(replace(subject, level=levels.highest), assumed, self.rules, root), notes
        if subject.domain == self.rules.domain:
            notes = self._known(text, who)
            known = directory.known(user=who.user, client=who.name or None, as_client=who.user is None)
            subject = replace(
                subject,
                user=known.user,
                roles=known.roles,
                groups=known.groups,
                attributes=known.attributes,
                impostor=known.impostor,
                # a client of the directory without a user proves who it is by its certificate
                principal=f"certificate:{who.name}" if known.user is None and who.name in directory.clients else "",
            )
        tls = {**(TLS if listener.url.tls else {}), **tls_of(assumed, root)}
        address = str(assumed.get("address", LOOPBACK))
        facts = Facts(
            listener=str(listener.url),
            address=address,
            tls_version=tls.get("version"),
            tls_cipher=tls.get("cipher"),
            certificate=listener.client_cert is ClientCert.REQUIRED,
        )
        level = levels.level_of(facts)
        subject = replace(subject, level=level, address=address, listener=str(listener.url), tls=tls)
        return assume(subject, assumed, self.rules, root), notes

    def _known(self, text: str, who: Who) -> tuple[str, ...]:
        directory = self.config.built.directory
        if who.user is not None and who.user not in directory.users:
            if not self.config.authentication.methods:
                raise ConfigError(f"`{text}` {unknown('user', who.user, tuple(directory.users), 'directory.users')}")
            return (f"`user:{who.user}` is not in the directory: only an authentication method knows more",)
        entry = directory.clients.get(who.name)
        if who.user is None and entry is None and who.name:
            return (f"`client:{who.name}` is not in the directory: an anonymous client",)
        if who.user is not None and entry is not None and entry.user != who.user:
            theirs = f"what the directory says of `client:{who.name}` does not apply, nor any rule about it"
            return (f"{theirs}: it is not of `{who.user}`",)
        return ()

    def _listener(self, name: object, root: str) -> Listener:
        listeners = {str(each.url): each for each in self.config.listeners}
        if name is None:
            return self.config.listeners[0]
        found = listeners.get(str(name))
        if found is None:
            raise ConfigError(f"`{root}.listener` is none of the file's: write one of {', '.join(listeners)}")
        return found

    # -- what ----------------------------------------------------------------------------------------------------

    def _within(self, rules: Rules, subject: Subject, added: Mapping[str, Any]) -> Explainer:
        """Explains in the surroundings of one subject, with what is assumed of them."""
        if added:
            around = rules.surroundings(subject.listener)
            extended = Environment({**around.added, **merged(around.added, added)}, zone=around.zone)
            rules = replace(rules, environment=extended, environments=MappingProxyType({}))
        return self._explainer if rules is self.rules else Explainer(rules)

    def _terms(self, pairs: Pairs) -> tuple[Terms, Predicate | None]:
        conditions = [value for name, value in pairs if name == WHERE]
        if len(conditions) > 1:
            raise ConfigError("a subscription has one `where`: join the conditions with &&")
        text = conditions[0] if conditions else None
        terms = Terms(self.rules.levels.demand(pairs), text)
        if text is None:
            return (terms if terms.asks else NO_TERMS), None
        try:
            return terms, condition(text, self.rules.functions)
        except ConfigError as error:
            raise ConfigError(f"`where` is no condition: {error}") from error

    def _check_anonymous(self, written: Explanation, found: Explanation) -> None:
        """Whoever published it was not named: an answer stands only if that does not matter."""
        why = ""
        read = found.lines[len(written.lines) :]
        if not written.allowed:
            why = f"an unknown client may not publish it ({written.headline})"
        elif any(topics.matches(each.topic, written.topic) for each in self.rules.preferences.preferences):
            why = "there are preferences for this topic"
        elif not self.rules.brokering.open:
            why = "brokering asks over which link it came"
        elif self.rules.levels.implied:
            why = "levels are implied"
        elif any(path.partition(".")[0] == "p" for line in read for path in (*line.knew, *line.absent)):
            why = "policies read `p`"
        if why:
            raise ConfigError(f"it matters who published the message: {why}; say who with `from`")


def _check_topic(question: Question) -> None:
    topic = question.topic
    if question.action is Asked.SUBSCRIBE:
        if not topics.valid_filter(topic):
            raise ConfigError(f"`{topic}` is no topic filter; `+` is a whole level, `#` the whole last one")
    elif not topics.valid_topic(topic):
        raise ConfigError(f"`{topic}` is no topic, and `{question.action}` is of one; write it without `+` and `#`")


def _publication(question: Question, subject: Subject) -> Publication:
    properties = Properties(user_properties=question.properties) if question.properties else NONE
    return Publication(
        link=Link(subject, True, "in"),
        topic=question.topic,
        payload=question.payload,
        qos=question.qos,
        retain=question.retain,
        properties=properties,
    )
