"""All scopes of a node: they share rules, what publishers say of their own messages, and the links between them.

Rules, scopes and links change together, between two messages. A scope that the rules do not name any more is closed:
its clients have to go and nothing is linked with it. What it keeps stays, in case it comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from tidegate.flow.assertions import Assertion, Expect
from tidegate.flow.presence import Presence
from tidegate.flow.watch import Watch, violated
from tidegate.gate import RuleSet, ScopeExit
from tidegate.gate.plan_cache import PLAN_COST
from tidegate.gate.scope_links import link_ends, link_monitors
from tidegate.monitor import ModeRevision
from tidegate.policy.scopes import NodeLink, ScopeLink
from tidegate.scope.authenticator import Authenticator, Identity
from tidegate.scope.bridge import BrokerEnd
from tidegate.scope.decision_reports import Audit
from tidegate.scope.foreign_preferences import ForeignOwners
from tidegate.scope.link_opening import carried
from tidegate.scope.node_links import LinkEnd, NodeLinks
from tidegate.scope.protection import Keyring
from tidegate.scope.scope import NOBODY, Scope
from tidegate.scope.shadow import ShadowScope
from tidegate.scope.stored_publisher_rules import Publishers
from tidegate.session import Site
from tidegate.wire import Reason

LEAST = 1000
"""Of the plans of all scopes together each may have as many."""


def _bridge(link: NodeLink, scope: Scope, links: NodeLinks) -> LinkEnd:
    """The end here of a link to a foreign broker."""
    return BrokerEnd(link, scope, links)


class Realm:
    """The scopes of one node."""

    def __init__(
        self,
        *,
        node: str,
        site: Site,
        authenticator: Authenticator,
        rules: RuleSet,
        audit: Audit = NOBODY,
        stopwatch: Callable[[], float] = lambda: 0.0,
        keyring: Keyring | None = None,
        make_scope: Callable[..., Scope] = Scope,
    ) -> None:
        """`make_scope`: called with what `Scope` is called with; some of them may guard another broker."""
        self._make_scope = make_scope
        self.node = node
        self.site = site
        self.audit = audit
        self.scopes: dict[str, Scope] = {}
        self._authenticator = authenticator
        self._stopwatch = stopwatch
        self._keyring = keyring
        self._shift = ModeRevision()
        self.publishers = Publishers(site, self.scopes, audit)
        self.foreign = ForeignOwners(site, self.scopes)
        self._closed: dict[str, Scope] = {}
        self.node_links = NodeLinks(self.scopes, self.foreign, self.publishers, _bridge)
        self._opened = 0  # links
        self._arrange(rules)

    @property
    def rules(self) -> RuleSet:
        return next(iter(self.scopes.values())).rules

    def scope(self, name: str) -> Scope:
        """One that is there, or is about to be."""
        return self.scopes[name] if name in self.scopes else self._closed[name]

    def has_session(self, principal: str, client: str) -> bool:
        """Whether there is a session of this principal with this client identifier, in any scope."""
        return any((principal, client) in scope.sessions for scope in self.scopes.values())

    def prepare(self, names: Iterable[str]) -> None:
        """Scopes that rules will name soon: whoever enters one before is alone there, under the rules in force."""
        for name in names:
            if name not in self.scopes and name not in self._closed:
                self._closed[name] = self._made(name, self.rules)

    def change(self, rules: RuleSet) -> None:
        """Other rules. The next message is decided by them; who has to go is told so soon after."""
        before = self.rules
        for scope in (*self.scopes.values(), *self._closed.values()):
            scope.adopt(rules)
            self._shadow(scope, rules)
        gone = self._arrange(rules)
        self.publishers.changed(before)
        self.site.generation += 1
        for scope in (*self.scopes.values(), *self._closed.values()):
            scope.review()
        self.open_links(before.space.links)
        for scope in gone:
            for session in list(scope.sessions.values()):
                if session.connection is not None:
                    session.connection.close(Reason.ADMINISTRATIVE_ACTION, "this scope is closed")

    def rename(self, names: Mapping[str, str]) -> None:
        """Users, by their ids, that may be called otherwise from now on."""
        if names:
            for scope in (*self.scopes.values(), *self._closed.values()):
                scope.lifetime.rename(names)
                scope.path.monitoring.states.renamed()

    def open_links(self, before: Iterable[ScopeLink]) -> None:
        """Links that are new or have changed carry what is retained. `before`: those that there were."""
        known = {link.name: link for link in before}
        for link in self.rules.space.links:
            if (old := known.get(link.name)) != link:
                self._opened += 1
                work = carried(partial(self._exit, link), old, self._opened, self._stopwatch)
                self.site.unfinished.append(work.__next__)

    # -- flows -------------------------------------------------------------------------------------------------

    def observe(self, flows: Iterable[Assertion], presences: Iterable[Presence]) -> None:
        """Flows that nobody may open by connecting. `presences` are clients that count whether or not they are here."""
        watch = Watch(self.rules.space, self.rules.brokering, flows, presences)
        for scope in (*self.scopes.values(), *self._closed.values()):
            scope.presences.observe(watch)

    def opened(
        self, rules: RuleSet, flows: Iterable[Assertion], presences: Iterable[Presence], authenticator: Authenticator
    ) -> str:
        """Which forbidden flow would be open to those who are connected, under other rules and by another directory;
        empty if none."""
        forbidden = [one for one in flows if one.expect is Expect.FORBID]
        if not forbidden:
            return ""
        found = violated(rules.space, rules.brokering, [*presences, *self._connected(rules, authenticator)], forbidden)
        return "" if not found else str(found[0])

    def _connected(self, rules: RuleSet, authenticator: Authenticator) -> Iterator[Presence]:
        for scope in self.scopes.values():
            for session in scope.sessions.values():
                if session.connection is None or scope.name not in rules.space.scopes:
                    continue
                found = authenticator.reauthorize(session)
                if isinstance(found, Identity):  # others will have to go
                    old = session.subject
                    subject = scope.subjects.subject(
                        found, client=old.client, address=old.address, listener=old.listener
                    )
                    yield scope.presences.of(subject, rules)

    # -- arranging ---------------------------------------------------------------------------------------------

    def _arrange(self, rules: RuleSet) -> list[Scope]:
        """The scopes and links that the rules name; those that are gone."""
        space = rules.space
        names = space.scopes or ("main",)
        self._let_go()
        gone = [self.scopes.pop(name) for name in list(self.scopes) if name not in names]
        self._closed |= {scope.name: scope for scope in gone}
        for name in names:
            if name not in self.scopes:
                self.scopes[name] = self._closed.pop(name) if name in self._closed else self._made(name, rules)
        for scope in (*self.scopes.values(), *self._closed.values()):
            scope.gate.compiler.exits = ()
            scope.gate.cache.upstream = ()
            scope.path.monitoring.joined = {}
            scope.entrance = scope
            scope.neighbours = self.scopes
            if scope.shadow is not None:
                scope.shadow.unlink()
        for scope in self.scopes.values():
            scope.gate.cache.bound = max(PLAN_COST // len(self.scopes), LEAST)
        for role in space.roles.values():
            self.scopes[role.receiving].entrance = self.scopes[role.publishing]
        for link in space.links:
            self._join(link, rules)
        self.node_links.arrange(rules)
        return gone

    def _let_go(self) -> None:
        """Of scopes that are closed and keep nothing."""
        for name, scope in list(self._closed.items()):
            if not scope.sessions and not len(scope.retained) and name not in self.rules.space.scopes:
                del self._closed[name]
                self.site.on_alarm.remove(scope.gate.cache.tick)
                if scope.shadow is not None:
                    scope.shadow.close()

    def _shadow(self, scope: Scope, rules: RuleSet) -> None:
        """Where rules are not enforced they are decided in the shadow of a scope."""
        shadow = scope.shadow
        if not rules.shadows(scope.name):
            scope.shadow = None
            if shadow is not None:
                shadow.close()
        elif shadow is None:
            scope.shadow = ShadowScope(scope, rules, self._stopwatch)
        else:
            shadow.adopt(rules)

    def _made(self, name: str, rules: RuleSet) -> Scope:
        scope = self._make_scope(
            name=name,
            node=self.node,
            site=self.site,
            authenticator=self._authenticator,
            rules=rules,
            audit=self.audit,
            stopwatch=self._stopwatch,
            publishers=self.publishers,
            foreign=self.foreign,
            shift=self._shift,
            keyring=self._keyring,
        )
        self._shadow(scope, rules)
        return scope

    def _join(self, link: ScopeLink, rules: RuleSet) -> None:
        source, target = self.scopes[link.source], self.scopes[link.target]
        self._join_scopes(link, source, target)
        if source.shadow is not None and target.shadow is not None:
            self._join_scopes(link, source.shadow, target.shadow)

    def _join_scopes(self, link: ScopeLink, source: Scope, target: Scope) -> None:
        exit = ScopeExit(link, *link_ends(link, source.rules, self.node), target.gate, target)
        leaving, _ = link_monitors(link, source.gate.rules)
        _, entering = link_monitors(link, target.gate.rules)
        exit.leaving = source.path.monitoring.states.join(exit, leaving, entering=False)
        exit.entering = target.path.monitoring.states.join(exit, entering, entering=True)
        source.gate.compiler.exits += (exit,)
        target.gate.cache.upstream += (source.gate.cache,)
        source.path.monitoring.joined[link.name, False] = exit
        target.path.monitoring.joined[link.name, True] = exit

    def _exit(self, link: ScopeLink) -> tuple[Scope, ScopeExit] | None:
        """The scope that a link leaves, and the link as it is now."""
        scope = self.scopes.get(link.source)
        exit = None if scope is None else scope.path.monitoring.joined.get((link.name, False))
        return None if scope is None or exit is None else (scope, exit)
