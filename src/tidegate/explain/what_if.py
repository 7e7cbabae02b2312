"""Trying the rules of a configuration without running it: who would be allowed what, and why.

Subjects are built from the directory as for a connection: by default to the first listener, from this machine, or to
the first of the scopes that the directory names for a client. What is decided is decided by the stages of the gate
(`explainer`). Nothing is opened, started or changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from tidegate import topics
from tidegate.config import ClientCert, Config, Listener, Operation, SubjectName, parse_subject_name
from tidegate.config.problems import unknown
from tidegate.errors import ConfigError
from tidegate.explain.explainer import Explainer
from tidegate.explain.explanation import Explanation, ExtraStep, Line, Verdict
from tidegate.explain.overrides import TLS, Overrides, apply_overrides, merged, tls_of
from tidegate.explain.question import Pairs, Question
from tidegate.gate import RuleSet
from tidegate.gate.scope_links import link_ends
from tidegate.gate.stages.read_preferences import ForeignOwners
from tidegate.gate.stages.where import WHERE, condition
from tidegate.policy import Action, Class, Classification, Transport
from tidegate.policy.brokering import PLAIN
from tidegate.policy.demands import read_demand
from tidegate.predicate import Predicate
from tidegate.session import NO_TERMS, Link, Message, NodeLinkEnd, Subject, Terms
from tidegate.wire import NONE, Properties, Publish

UNKNOWN: Final = "unknown"
"""The client identifier of whoever has none that matters."""
LOOPBACK: Final = "127.0.0.1"
CONNECT: Final = "connect"
"""The rule by which somebody is not let in."""
_BETWEEN: Final = frozenset(("scope", "link"))
"""Kinds of those who act between scopes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connected:
    """Somebody as if connected."""

    subject: Subject
    enters: str
    """The scope that it publishes into."""
    notes: tuple[str, ...] = ()
    refusal: str = ""
    """Why a node does not let it in; empty if it does."""


class WhatIf:
    def __init__(self, config: Config, foreign: ForeignOwners | None = None) -> None:
        """`foreign`: what is known of owners of other domains; None: their messages do not come."""
        self.config = config
        self.rules = config.built.rules
        self._foreign = foreign
        self._explainer = Explainer(self.rules, config.node.name, foreign)

    def explain(self, question: Question) -> Explanation:
        """The verdict and how it came about. ConfigError if that cannot be asked, with the remedy."""
        _check_topic(question)
        rules = self.rules
        at = time.time() if question.at is None else question.at
        overrides = Overrides(question.overrides, question.action)
        rules = self._categorised(rules, question.topic, overrides)
        if parse_subject_name(question.subject).kind in _BETWEEN:
            return self._between(question, rules, overrides, at)
        actor = self._subject(question.subject, overrides.s, "s")
        subject, notes = actor.subject, actor.notes
        here = self._within(rules, subject, overrides.e)
        if question.action is not Operation.READ and actor.refusal:
            explanation = self._refused(question, actor, at)
        elif question.action is Operation.WRITE:
            explanation = here.write(*_published(question, actor), at)
        elif question.action is Operation.SUBSCRIBE:
            self._terms(question.terms)
            explanation = here.subscribe(question.topic, Link(subject, False, "out"), at)
        else:
            terms, where = self._terms(question.terms)
            author = self._publisher(question, overrides)
            notes += author.notes if question.publisher is not None else ()
            if author.refusal or actor.refusal:
                refused = author if author.refusal else actor
                explanation = replace(self._refused(question, refused, at), subject=subject, publisher=author.subject)
            else:
                there = self._within(rules, author.subject, overrides.around)
                published = at if overrides.time is None else overrides.time
                written = there.write(*_published(question, author), published)
                explanation = here.read(written, Link(subject, False, "out"), at, terms, where)
                if question.publisher is None:
                    self._check_anonymous(written, explanation, overrides)
        return replace(explanation, notes=(*explanation.notes, *notes))

    @staticmethod
    def _categorised(rules: RuleSet, topic: str, overrides: Overrides) -> RuleSet:
        if overrides.category is None:
            return rules
        only = Class(topic=topics.share(topic)[1], category=overrides.category)
        return replace(rules, classification=Classification((only,)))

    def _refused(self, question: Question, actor: _Connected, at: float) -> Explanation:
        """A node does not let somebody in, so nothing else is asked."""
        why = f"{actor.subject.name} is not let in: {actor.refusal}"
        line = Line(step=ExtraStep.CONNECT, verdict=Verdict.DENY, rule=CONNECT, notes=(why,))
        return Explanation(
            action=question.action.value,
            topic=question.topic,
            subject=actor.subject,
            at=at,
            version=self.rules.version,
            lines=(line,),
            allowed=False,
            decided=line,
            rules=frozenset((CONNECT,)),
        )

    # -- between nodes -------------------------------------------------------------------------------------------

    def leaving(self, question: Question, end: NodeLinkEnd) -> Explanation:
        """May what somebody publishes here leave over a link to another node? The question is about the publisher."""
        _check_topic(question)
        at = time.time() if question.at is None else question.at
        overrides = Overrides(question.overrides, question.action)
        author = self._subject(_person(question.subject), overrides.s, "s")
        if author.refusal:
            return self._refused(question, author, at)
        rules = self._categorised(self.rules, question.topic, overrides)
        here = self._within(rules, author.subject, overrides.e)
        explanation = here.read(here.write(*_published(question, author), at), end, at)
        return replace(explanation, notes=(*explanation.notes, *author.notes))

    def arriving(self, message: Message, end: NodeLinkEnd, reader: Question | None) -> Explanation:
        """May a message of another node enter over a link, and may somebody here read it then?"""
        at = time.time() if reader is None or reader.at is None else reader.at
        if reader is None:
            return self._explainer.arrive(message, end, at)
        overrides = Overrides(reader.overrides, reader.action)
        actor = self._subject(_person(reader.subject), overrides.s, "s")
        if actor.refusal:
            return self._refused(reader, actor, at)
        terms, where = self._terms(reader.terms)
        here = self._within(self._categorised(self.rules, message.topic, overrides), actor.subject, overrides.e)
        arrived = here.arrive(message, end, at)
        explanation = here.read(arrived, Link(actor.subject, False, "out"), at, terms, where)
        return replace(explanation, notes=(*explanation.notes, *actor.notes))

    # -- between scopes ------------------------------------------------------------------------------------------

    def _between(self, question: Question, rules: RuleSet, overrides: Overrides, at: float) -> Explanation:
        """Whether a scope or a link may forward something, or import it."""
        if question.action is Operation.SUBSCRIBE:
            raise ConfigError(f"`{question.subject}` does not subscribe; ask whether it may `read` or `write`")
        if question.terms:
            raise ConfigError(f"`{question.subject}` has no subscription; leave `where` and `require` out")
        if overrides.s:
            raise ConfigError(
                f"nothing can be overridden for `{question.subject}`; leave `s.{next(iter(overrides.s))}` out"
            )
        action = Action(question.action.value)
        end = self._end(question.subject, action)
        author = self._publisher(question, overrides)
        published = at if overrides.time is None else overrides.time
        here = self._within(rules, end.subject, overrides.e)
        explanation = here.cross(action, end, *_published(question, author), published)
        if question.publisher is not None:
            return replace(explanation, publisher=author.subject, notes=(*explanation.notes, *author.notes))
        why = _reads_publisher(explanation.lines)
        if action is Action.WRITE:
            remedy = "ask what somebody else reads of it, which shows every link"
        else:
            remedy = "say who with `from`"
            why = self._preferred(question.topic) or why
        if why:
            raise ConfigError(f"it matters who published the message: {why}; {remedy}")
        return explanation

    def _end(self, text: str, action: Action) -> Link:
        """The end of a link at which it acts: it forwards from the one scope, and imports into the other."""
        who, space = parse_subject_name(text), self.rules.space
        if who.kind == "link":
            links = {link.name: link for link in space.links}
            if any(who.name == link.name for remote in space.remote for link in remote.directions):
                raise ConfigError(f"`{text}` leads to another node; ask a running node, with `through`")
            if who.name not in links:
                raise ConfigError(f"`{text}` {unknown('link', who.name, tuple(links), 'links')}")
            outward, inward = link_ends(links[who.name], self.rules, self.config.node.name)
            return outward if action is Action.WRITE else inward
        if who.name not in space.scopes:
            raise ConfigError(f"`{text}` {unknown('scope', who.name, space.scopes, 'scopes')}")
        scope = Subject(
            kind="scope",
            client=who.name,
            user=None,
            scope=who.name,
            node=self.config.node.name,
            domain=self.rules.domain,
            level=self.rules.levels.highest,
            facts=self.rules.levels.facts,
        )
        return Link(scope, action is Action.READ, PLAIN.inward)

    # -- who -----------------------------------------------------------------------------------------------------

    def _publisher(self, question: Question, overrides: Overrides) -> _Connected:
        return self._subject(_person(question.publisher or f"client:{UNKNOWN}"), overrides.p, "p")

    def _subject(self, text: str, overrides: Mapping[str, Any], root: str) -> _Connected:
        """Somebody as the directory knows them, with these overrides; and what should be said about it."""
        config, directory, levels = self.config, self.config.built.directory, self.rules.levels
        who = parse_subject_name(text)
        within = directory.clients[who.name].scopes if who.kind == "client" and who.name in directory.clients else ()
        listener, front = self._entrance(overrides, within, root)
        subject = Subject(
            kind=who.kind,
            client=who.name or UNKNOWN,
            user=who.user,
            scope=front,
            node=config.node.name,
            domain=who.domain or self.rules.domain,
        )
        notes: tuple[str, ...] = ()
        if who.kind == "service":
            # links inside a node have the highest level and all facts (semantics, *Levels and demands*)
            inside = replace(subject, level=levels.highest, facts=levels.facts)
            service = apply_overrides(inside, overrides, self.rules, root)
            return _Connected(subject=service, enters=front)
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
                # a client of the directory that is asked for without a user proves who it is by its certificate
                principal=f"certificate:{who.name}" if who.user is None and who.name in directory.clients else "",
            )
        tls = {**(TLS if listener.url.tls else {}), **tls_of(overrides, root)}
        address = str(overrides.get("address", LOOPBACK))
        transport = Transport(
            listener=str(listener.url),
            address=address,
            tls_version=tls.get("version"),
            tls_cipher=tls.get("cipher"),
            certificate=listener.client_cert is ClientCert.REQUIRED,
        )
        subject = replace(
            subject,
            level=levels.level_of(transport),
            facts=levels.facts_of(transport),
            address=address,
            listener=str(listener.url),
            tls=tls,
        )
        subject = apply_overrides(subject, overrides, self.rules, root)
        refusal = "" if not within or front in within else f"you may not connect to the scope {front}"
        refusal = refusal or self.rules.brokering.objection(subject)
        placed = self.rules.space.place(front, subject.roles)
        if isinstance(placed, str):
            return _Connected(subject=subject, enters=front, notes=notes, refusal=refusal or placed)
        subject = replace(subject, scope=placed.receiving)
        return _Connected(subject=subject, enters=placed.publishing, notes=notes, refusal=refusal)

    def _entrance(self, overrides: Mapping[str, Any], within: tuple[str, ...], root: str) -> tuple[Listener, str]:
        """The listener and the scope to which somebody connects, who may connect only to some scopes or to all."""
        listeners, scopes = self.config.listeners, tuple(self.config.scopes)
        scope = str(overrides["scope"]) if "scope" in overrides else ""
        if scope and scope not in scopes:
            raise ConfigError(f"`{root}.scope` {unknown('scope', scope, scopes, 'scopes')}")
        if "listener" in overrides:
            by_url = {str(each.url): each for each in listeners}
            listener = by_url.get(str(overrides["listener"]))
            if listener is None:
                raise ConfigError(f"`{root}.listener` is none of the file's: write one of {', '.join(by_url)}")
            return listener, scope or listener.scope
        scope = scope or (within[0] if within else listeners[0].scope)
        return next((each for each in listeners if each.scope == scope), listeners[0]), scope

    def _known(self, text: str, who: SubjectName) -> tuple[str, ...]:
        directory = self.config.built.directory
        if who.user is not None and who.user not in directory.users:
            if any(scope.asks_broker for scope in self.config.scopes.values()):
                return (f"`user:{who.user}` is not in the directory: only the guarded broker knows the name",)
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

    # -- what ----------------------------------------------------------------------------------------------------

    def _within(self, rules: RuleSet, subject: Subject, added: Mapping[str, Any]) -> Explainer:
        """Explains in the surroundings of one subject, with these attributes added to them and to the node."""
        if added:
            node, around = rules.environment, rules.surroundings(subject.listener)
            there = {subject.listener: around.extended(merged(around.added, added))}
            node = node.extended(merged(node.added, added))
            rules = replace(rules, environment=node, environments=MappingProxyType(there))
        return self._explainer if rules is self.rules else Explainer(rules, self.config.node.name, self._foreign)

    def _terms(self, pairs: Pairs) -> tuple[Terms, Predicate | None]:
        conditions = [value for name, value in pairs if name == WHERE]
        if len(conditions) > 1:
            raise ConfigError("a subscription has one `where`: join the conditions with &&")
        text = conditions[0] if conditions else None
        terms = Terms(read_demand(self.rules.levels, pairs), text)
        if text is None:
            return (terms if terms.asks else NO_TERMS), None
        try:
            return terms, condition(text, self.rules.functions)
        except ConfigError as error:
            raise ConfigError(f"`where` is no condition: {error}") from error

    def _check_anonymous(self, written: Explanation, explanation: Explanation, overrides: Overrides) -> None:
        """Whoever published it was not named: an answer stands only if that does not matter."""
        why = ""
        if not written.allowed:
            why = f"an unknown client may not publish it ({written.headline})"
        elif preferred := self._preferred(written.topic):
            why = preferred
        elif not self.rules.brokering.open:
            why = "brokering asks over which link it came"
        elif self.rules.levels.implied:
            why = "levels are implied"
        elif len(self.rules.space.scopes) > 1 and "scope" not in overrides.p:
            why = "there are several scopes, and it was published in one of them"
        else:
            why = _reads_publisher(explanation.lines[len(written.lines) :])
        if why:
            raise ConfigError(f"it matters who published the message: {why}; say who with `from`")

    def _preferred(self, topic: str) -> str:
        preferences = self.rules.preferences.preferences
        there = any(topics.matches(each.topic, topic) for each in preferences)
        return "there are preferences for this topic" if there else ""


def _reads_publisher(lines: Iterable[Line]) -> str:
    read = any(path.partition(".")[0] == "p" for line in lines for path in (*line.knew, *line.absent))
    return "policies read `p`" if read else ""


def _person(text: str) -> str:
    """Somebody who publishes, or receives."""
    if parse_subject_name(text).kind in _BETWEEN:
        raise ConfigError(f"`{text}` forwards messages and publishes none; say in `from` who published it")
    return text


def _check_topic(question: Question) -> None:
    topic = question.topic
    if question.action is Operation.SUBSCRIBE:
        if not topics.valid_filter(topic):
            raise ConfigError(f"`{topic}` is no topic filter; `+` is a whole level, `#` the whole last one")
    elif not topics.valid_topic(topic):
        raise ConfigError(f"`{topic}` is no topic, and `{question.action}` is of one; write it without `+` and `#`")


def _published(question: Question, actor: _Connected) -> tuple[Link, Publish]:
    """The message of a question, and the link that it comes over."""
    packet = Publish(
        topic=question.topic,
        payload=question.payload,
        qos=question.qos,
        retain=question.retain,
        properties=Properties(user_properties=question.properties) if question.properties else NONE,
    )
    return Link(actor.subject, True, "in", scope=actor.enters), packet
