"""The states of monitors: whose they are, how long they are kept, and when they are written down.

A state is kept for as long as it differs from the start: a client cannot shake off its past by coming back. It is in
the store with the commit of the QoS 1 or 2 message that changed it, otherwise soon (`SOON`). When the rules change a
monitor keeps its state if the new definition knows it, and begins anew otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import cbor2

from tidegate.gate import ScopeExit
from tidegate.monitor import Attachment, Each, Instance, ModeCounts, ModeRevision, State
from tidegate.scope.idle_states import IdleStates, Where
from tidegate.scope.remembered_contexts import RememberedContexts, Sources
from tidegate.scope.timer_context import Cause
from tidegate.session import Link, Session

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

ROOM: Final = "monitor"  # in the store, with the scope's name behind it
VERSION: Final = b"\x02"
READ: Final = (b"\x01", VERSION)  # the one before kept no types of links with the contexts
SEPARATOR: Final = "\n"  # no id has one
SOON: Final = 0.02  # seconds until a state that no acknowledgement waits for is noted; its commit takes some more
PIECE: Final = 500  # states looked at or written in one go: well below a millisecond
UNSETTLED: Final = object()  # modes in which nobody is calm: after a change of the rules
BEHIND: Final = object()  # and while something waits that a link's monitors have not seen


class Tally:
    """What one monitor did since the node was started."""

    __slots__ = ("added", "failed", "seen", "spent", "suppressed")

    def __init__(self) -> None:
        self.seen = 0
        self.suppressed = 0
        self.added = 0  # changed or added
        self.failed = 0
        self.spent = 0.0  # seconds in an administrator's Python


class States:
    """All instances of a scope's monitors."""

    def __init__(
        self, scope: Scope, tick: Callable[[Instance], None], shift: ModeRevision, contexts: RememberedContexts
    ) -> None:
        self.scope = scope
        self.contexts = contexts
        self.site = scope.site
        self.room = f"{ROOM}/{scope.name}"
        self.instances: dict[Where, Instance] = {}
        self.tallies: dict[str, Tally] = {}
        self._tick = tick
        self._idle = IdleStates()
        self._dirty: list[Instance] = []
        self._soon = 0.0  # when those are written down
        self._posts: dict[str, ModeCounts] = {}
        self._shift = shift
        self._settled = True
        self.kept = True  # in the store
        self._placed: tuple[object, ...] = ()  # where the monitors act

    # -- when the rules change -----------------------------------------------------------------------------------

    def change(self) -> None:
        """Other rules are in force. Sessions find their monitors anew as they are brought up to them."""
        gate = self.scope.gate
        monitors = gate.rules.monitors
        self.tallies = {one.id: self.tallies.get(one.id) or Tally() for one in monitors}
        here = f"scope:{self.scope.name}"
        posted = [
            one
            for one in monitors
            if (one.link is not None and one.link[0] == here and not one.link[1].startswith("scope:"))
            or (one.direction is not None and not one.direction.enters and one.scope == self.scope.name)
        ]
        placed = tuple(
            (one.id, one.link, one.leaves, one.scope, one.direction, one.each, one.default) for one in monitors
        )
        same, self._placed = placed == self._placed, placed
        if same:  # on the same links: what is counted of them stays right while sessions are brought up to the rules
            for one in posted:
                self._posts[one.id].attachment = one
        else:
            self._posts = {one.id: ModeCounts(one, self._shift) for one in posted}
            self._settled = not (self.scope.connected and self._posts)
            if not self._settled:
                for post in self._posts.values():
                    post.enter(UNSETTLED)
        gate.compiler.mode_counts = tuple(self._posts.values())
        if self.instances:
            self.site.unfinished.append(self._reviewed().__next__)

    def renamed(self) -> None:
        """Users are called otherwise: other states may be theirs after the next change of the rules."""
        self._placed = ()

    def settle(self) -> None:
        """Every session has been brought up to the rules."""
        if not self._settled:
            self._settled = True
            for post in self._posts.values():
                post.leave(UNSETTLED)

    def _reviewed(self) -> Iterator[bool]:
        """Lets go of the states of monitors that are gone, a piece at a time."""
        monitors = self.scope.gate.rules.monitors
        for number, (where, instance) in enumerate(list(self.instances.items()), 1):
            if monitors is not self.scope.gate.rules.monitors:
                break  # another change has begun another review
            attachment = monitors.by_id.get(where[0])
            if attachment is None:
                self._drop(where)
            else:
                self._adopt(instance, attachment)
            if number % PIECE == 0:
                yield True
        yield False

    def _adopt(self, instance: Instance, attachment: Attachment) -> None:
        """Another definition: the state stays if that knows it."""
        if instance.attachment is attachment:
            return
        instance.attachment = attachment
        if not attachment.monitor.accepts(instance.state):
            self.reset(instance, at_once=False)
        elif attachment.monitor.rests(instance.state) or not attachment.monitor.remembers:
            instance.sources = ()
        self.load(instance, None)
        self._arm(instance)

    # -- whose ---------------------------------------------------------------------------------------------------

    def attach(self, session: Session) -> None:
        """Finds the monitors of a session's links."""
        gate = self.scope.gate
        if not session.entering and not session.leaving and not len(gate.rules.monitors):
            return
        up = session.connection is not None
        if up:
            self.down(session)
        entrance = self.scope.entrance
        entering = entrance.gate.monitors(session.inward)
        states = entrance.path.monitoring.states
        session.entering = states.chain(entering, session.inward, session.principal)
        for instance in session.entering:
            alone = instance.attachment.each is not Each.SCOPE
            states.load(instance, (session.context, session.inward.type) if alone else None)
        before = {one.attachment.id for one in session.leaving}
        session.leaving = self.chain(gate.monitors(session.outward), session.outward, session.principal)
        if session.queued and any(one.attachment.id not in before for one in session.leaving):
            session.unsee()  # those that were there before are not shown it again
        if up:
            self.up(session)

    def join(self, exit: ScopeExit, attachments: Iterable[Attachment], *, entering: bool) -> tuple[Instance, ...]:
        """Finds the monitors of a link with another scope, at this end of it."""
        chain = self.chain(attachments, exit.inward if entering else exit.outward, "")
        for instance in chain:
            if instance.attachment.each is Each.LINK:
                post = exit.posts[instance] = ModeCounts(instance.attachment, self._shift)
                post.add(exit, instance)
            self._arm(instance)
        return chain

    def up(self, session: Session) -> None:
        """Its links are there."""
        for instance in session.leaving:
            post = self._posts.get(instance.attachment.id)
            if post is not None:
                post.add(session, instance)
                if session.behind:
                    post.enter(BEHIND)
            self._arm(instance)
        session.lagging = session.behind and bool(session.leaving)

    def down(self, session: Session) -> None:
        """They are gone; what they remember stays."""
        for instance in session.leaving:
            post = self._posts.get(instance.attachment.id)
            if post is not None and session in post.sessions:
                post.remove(session, instance)
                if session.lagging:
                    post.leave(BEHIND)
        session.lagging = False

    def caught_up(self, session: Session) -> None:
        """They have seen everything that waited for their client."""
        session.lagging = False
        for instance in session.leaving:
            post = self._posts.get(instance.attachment.id)
            if post is not None and session in post.sessions:
                post.leave(BEHIND)

    def ended(self, session: Session) -> None:
        """A session is over. What is remembered of its client stays, within bounds."""
        if self.scope.shadow is not None:
            self.scope.shadow.path.monitoring.parted(session)
        self.scope.entrance.path.monitoring.states.parted(session.entering)
        self.parted(session.leaving)
        session.entering = session.leaving = ()

    def parted(self, instances: Iterable[Instance]) -> None:
        """Those of a client that is gone: what is at its start is let go of, the rest stays within bounds."""
        for instance in instances:
            where = (instance.attachment.id, instance.key)
            if instance.attachment.each is Each.SCOPE or where not in self.instances:
                continue
            if instance.timer is None and instance.state == instance.attachment.monitor.start():
                self._drop(where)
            else:
                self._idle.add(where, instance.principal, instance.state)
        for where in self._idle.excess():
            self._drop(where)

    def listening(self, post: ModeCounts) -> list[Session]:
        """Those whose links are watched by it. After a change nobody knows before each has been looked at."""
        if not self._settled:
            for session in list(self.scope.sessions.values()):
                if session.connection is not None:
                    self.scope.subjects.fresh(session)
            self.settle()
        return list(post.sessions)

    def chain(self, attachments: Iterable[Attachment], link: Link, principal: str) -> tuple[Instance, ...]:
        """The instances of a link's monitors."""
        return tuple(self._instance(one, link, principal) for one in attachments)

    def _instance(self, attachment: Attachment, link: Link, principal: str) -> Instance:
        match attachment.each:
            case Each.LINK:
                key = f"{principal} {link}" if principal else str(link)  # one between scopes is nobody's
            case Each.CLIENT:
                key = f"{principal} {link.subject.name}"
            case Each.SCOPE:
                key = f"scope:{self.scope.name}"
        where = (attachment.id, key)
        identity, whose = ("", "") if attachment.each is Each.SCOPE else (link.subject.identity, principal)
        self._idle.discard(where)
        found = self.instances.get(where)
        if found is not None and found.identity not in ("", identity):
            self._drop(where)  # it is of somebody who had this name before
            found = None
        if found is None:
            found = self.instances[where] = Instance(attachment, key, attachment.monitor.start())
        else:
            self._adopt(found, attachment)
        found.identity, found.principal = identity, whose
        return found

    # -- steps ---------------------------------------------------------------------------------------------------

    def load(self, instance: Instance, own: tuple[bytes, str] | None) -> None:
        """Decides whether what passes it has to carry what it remembers.

        `own`: the context of the only one whose events reach it, and the type of that link; None: there may be several.
        """
        instance.own = own
        instance.lade(not self.contexts.harmless(instance.sources, own))

    def move(self, instance: Instance, state: State, sources: Sources, *, at_once: bool) -> bool:
        """To another state, which is written down with what is noted now, or soon; whether it is another.

        `sources`: the contexts that it comes from.
        """
        if sources is not instance.sources:
            instance.sources = sources
            instance.lade(not self.contexts.harmless(sources, instance.own))
        if not instance.move(state):
            return False
        if at_once:
            self._keep(instance)
        elif not instance.dirty:
            instance.dirty = True
            if not self._dirty:
                self._soon = self.site.now + SOON
                # not by a timer: those are looked at too seldom for what has to be on disk within 50 ms
                self.site.unfinished.append(self._flush)
            self._dirty.append(instance)
        self._arm(instance)
        return True

    def reset(self, instance: Instance, *, at_once: bool = True) -> None:
        """Back to the start."""
        self.move(instance, instance.attachment.monitor.start(), (), at_once=at_once)

    def _flush(self) -> bool:
        """When it is time, writes down some of what has changed; whether there is more."""
        if self.site.now < self._soon:
            return True
        for instance in self._dirty[-PIECE:]:
            if instance.dirty:
                self._keep(instance)
        del self._dirty[-PIECE:]
        return bool(self._dirty)

    def finish(self) -> None:
        """The node stops: everything at once."""
        self._soon = 0.0
        while self._flush():
            pass

    def _keep(self, instance: Instance) -> None:
        instance.dirty = False
        if not self.kept:
            return
        where = (instance.attachment.id, instance.key)
        if self.instances.get(where) is not instance:
            return  # it was let go of meanwhile
        value: bytes | None = None
        if instance.state != instance.attachment.monitor.start():
            cause: Cause | None = instance.cause
            known = {
                "state": instance.state,
                "cause": None if cause is None else cause.fields(),
                "sources": [source.fields() for source in instance.sources],
                "whose": [instance.identity, instance.principal],
            }
            value = VERSION + cbor2.dumps(known)
        if value is not None or instance.stored:
            self.site.store.keep(self.room, SEPARATOR.join(where), value)
            instance.stored = value is not None

    def _drop(self, where: Where) -> None:
        self._idle.discard(where)
        instance = self.instances.pop(where, None)
        if instance is None:
            return
        self.site.timers.cancel(instance.timer)
        instance.timer = None
        if instance.stored:
            self.site.store.keep(self.room, SEPARATOR.join(where), None)
            instance.stored = False

    def restore(self, records: Mapping[str, bytes]) -> None:
        """What the store kept."""
        monitors = self.scope.gate.rules.monitors
        for name, value in records.items():
            id, _, key = name.partition(SEPARATOR)
            attachment = monitors.by_id.get(id)
            if attachment is None or value[:1] not in READ:
                self.site.store.keep(self.room, name, None)
                continue
            known = cbor2.loads(value[1:])
            accepted = attachment.monitor.accepts(known["state"])
            if not accepted:
                self.site.store.keep(self.room, name, None)
                continue
            instance = self.instances.get((id, key))
            joined = instance is not None  # of a link with another scope, which is there before any client is
            if instance is None:
                instance = Instance(attachment, key, known["state"])
            instance.move(known["state"])
            instance.stored = True
            instance.cause = None if known["cause"] is None else Cause(*known["cause"])
            instance.sources = self.contexts.restored(known.get("sources", ()))
            instance.identity, instance.principal = known.get("whose", ("", ""))
            self.load(instance, None)
            self.instances[id, key] = instance
            if attachment.each is not Each.SCOPE and not joined:
                self._idle.add((id, key), instance.principal, instance.state)
            self._arm(instance)

    def rename(self, names: Mapping[str, str]) -> None:
        """Users, by their ids, are called otherwise: what is remembered of them stays theirs."""
        moved: list[tuple[Instance, bool]] = []
        for where, instance in list(self.instances.items()):
            name = names.get(instance.identity)
            if name is None or not instance.principal.startswith("user:") or instance.principal == f"user:{name}":
                continue
            moved.append((instance, where in self._idle))
            self._idle.discard(where)
            del self.instances[where]
            if instance.stored:
                self.site.store.keep(self.room, SEPARATOR.join(where), None)
                instance.stored = False
        for instance, idle in moved:
            before, principal = instance.principal, f"user:{names[instance.identity]}"
            instance.key, instance.principal = principal + instance.key.removeprefix(before), principal
            if instance.cause is not None and instance.cause.principal == before:
                instance.cause = replace(instance.cause, principal=principal)
            where = (instance.attachment.id, instance.key)
            self._drop(where)  # it is of somebody who had this name before
            self.instances[where] = instance
            if idle:
                self._idle.add(where, instance.principal, instance.state)
            self._keep(instance)

    # -- timers --------------------------------------------------------------------------------------------------

    def _arm(self, instance: Instance) -> None:
        """A later deadline is found when the timer comes; only an earlier one needs another."""
        due = instance.attachment.monitor.due(instance.state)
        if due is None or (instance.timer is not None and instance.armed <= due):
            return
        timers = self.site.timers
        timers.cancel(instance.timer)
        instance.armed = due
        instance.timer = timers.at(self.site.now + max(0.0, due - self.site.steady), self._due, instance)

    def _due(self, instance: Instance) -> None:
        instance.timer = None
        due = instance.attachment.monitor.due(instance.state)
        if due is None:
            return
        if due <= self.site.steady:
            self._tick(instance)
            due = instance.attachment.monitor.due(instance.state)
        if due is not None and due > self.site.steady:  # else its link is down: see `up`
            self._arm(instance)
