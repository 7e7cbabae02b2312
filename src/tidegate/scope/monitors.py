"""The monitors of a scope at work: what they are shown, and what becomes of what they make.

On the way in a monitor sees what the client of its link has been admitted to write; what it changes or adds must be
writable by `monitor:ID`, and has the context of what caused it. On the way out it sees what may be sent over its link,
in the order in which it comes; and, if it waits for it, what its client has not subscribed to. What it changes or adds
there needs a subscription, and is decided like anything else that is sent, but not shown to the monitors of that link
again.

On a link between scopes, those that act where it leaves one see what is forwarded, and what they make has to be shared
and allowed over that link; those that act where it enters the other see what comes, under the names that it has there.

A publisher's handshake is not touched: it is told of a suppressed message like of one that nobody wants, or that it
was refused. Whose state it is and how it is kept is in `states`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tidegate.bounded import Bounded
from tidegate.gate import Deny, Lane, Plan, ScopeExit, Step, action_over, combine, undecided
from tidegate.monitor import NO_SCENE, Attachment, Each, Event, Instance, ModeCounts, MonitorFailed, State
from tidegate.monitor.python import PythonMonitor
from tidegate.scope.derived_by_services import renumbered
from tidegate.scope.monitor_states import States
from tidegate.scope.python_mixing import mixes
from tidegate.scope.remembered_contexts import PUBLISHERS, RememberedContexts, Sources
from tidegate.scope.timer_context import Cause
from tidegate.session import Context, Delivery, Grant, Link, Message, Session, Subject
from tidegate.wire import Reason

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

CONTEXTS: Final = 10_000  # of what was derived, kept for the next of the same kind
MOST: Final = 1000  # outputs of all monitors of a link for one event

LINK: Final = ""
"""Whose state it is that watches a link between scopes: nobody's, who could authenticate."""

UNWRITABLE: Final = Deny(step=Step.MONITOR_IN, rule="monitor", reason=Reason.NO_MATCHING_SUBSCRIBERS)

Made = tuple[Message, Plan | None]  # and the plan it follows, on the way in


class Crossing:
    """One event on its way over one link."""

    __slots__ = ("came", "count", "link", "message", "overheard", "principal", "refusal", "root")

    def __init__(
        self, link: Link, principal: str, message: Message, count: int = 0, root: Message | None = None
    ) -> None:
        self.link = link
        self.root = root or message  # what outputs are numbered after, however many links it has crossed
        self.principal = principal
        self.message = message
        self.came = link.type if link.inward else message.link  # over a link of this type
        self.count = count  # of outputs that have been numbered
        self.overheard = False  # nobody wants it: it is not sent, and nobody is told if it is suppressed
        self.refusal = UNWRITABLE  # why nothing goes on, if nothing does

    @property
    def step(self) -> Step:
        return Step.MONITOR_IN if self.link.inward else Step.MONITOR_OUT

    @property
    def action(self) -> str:
        return action_over(self.link, "write" if self.link.inward else "read")

    def suppress(self, attachment: Attachment, error: str = "") -> Deny:
        """What its publisher and the audit are told of an event that a monitor suppresses."""
        reason = attachment.suppressed.reason
        self.refusal = Deny(step=self.step, rule=attachment.id, reason=reason, error=error)
        return self.refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """What a monitor's timer has put out, and where."""

    cause: Message
    """The message that set the timer."""
    link: Link
    inward: bool
    exit: ScopeExit | None
    """The link between scopes that it is; None: a client's."""
    session: Session | None
    emitted: list[Made]

    @property
    def messages(self) -> list[Message]:
        return [message for message, _ in self.emitted]


class Monitoring:
    """The monitors of all links of a scope. `tick` is called when a timer of one is due."""

    def __init__(self, scope: Scope, stopwatch: Callable[[], float], tick: Callable[[Instance], None]) -> None:
        self.scope = scope
        self.site = scope.site
        self._sources = RememberedContexts(scope)
        self.states = States(scope, tick, scope.gate.compiler.mode_revision, self._sources)
        self._stopwatch = stopwatch
        self._contexts: Bounded[tuple[bytes, str, int | None, bool], tuple[bytes, Context]] = Bounded(CONTEXTS)
        self._heard: Bounded[tuple[str, str], bool] = Bounded(CONTEXTS)  # by monitor and topic
        self._passing: Bounded[tuple[str, str], bool] = Bounded(CONTEXTS)  # by the same: whatever the state
        self._ways: Bounded[tuple[object, ...], tuple[bytes, Lane | None, bytes]] = Bounded(CONTEXTS)
        self._ways_at = (-1, -1)  # what they hold for
        self._roots: dict[str, frozenset[str]] = {}
        self._writers: dict[str, Subject] = {}
        self._foreign: frozenset[str] = frozenset()  # written in Python by administrators
        self.joined: dict[
            tuple[str, bool], ScopeExit
        ] = {}  # links with other scopes, by name, and whether it enters here

    def change(self) -> None:
        """Other rules are in force."""
        monitors = self.scope.gate.rules.monitors
        self._contexts.clear()
        self._heard.clear()
        self._passing.clear()
        self._sources.change()
        self._roots = {one.id: frozenset(path.partition(".")[0] for path in one.monitor.reads) for one in monitors}
        self._foreign = frozenset(one.id for one in monitors if isinstance(one.monitor, PythonMonitor))
        self._writers = {
            one.id: Subject(
                kind="monitor",
                client=one.id,
                user=None,
                scope=self.scope.name,
                node=self.scope.node,
                domain=self.scope.gate.rules.domain,
                level=self.scope.gate.rules.levels.highest,
                facts=self.scope.gate.rules.levels.facts,
            )
            for one in monitors
        }
        self.states.change()

    # -- on the way in -------------------------------------------------------------------------------------------

    def enter(self, link: Link, message: Message, plan: Plan, session: Session | None) -> tuple[list[Made], Deny]:
        """Step 2: what goes on of a message that came over a link, and why it was suppressed if that is nothing.

        Without a session its client sends without being connected.
        """
        if session is None:
            principal = f"user:{link.subject.user}"
            chain = self.states.chain(self.scope.gate.monitors(link), link, principal)
            if (principal, link.subject.client) not in self.scope.sessions:
                self.site.timers.at(self.site.now, self.states.parted, chain)
        else:
            principal, chain = session.principal, session.entering
        crossing = Crossing(link, principal, message)
        outputs = self._run(chain, [(message, plan)], crossing)
        message.outputs = crossing.count
        return outputs, crossing.refusal

    # -- on the way out ------------------------------------------------------------------------------------------

    def leave(self, session: Session, delivery: Delivery, shown: Message, overheard: bool) -> list[Message]:
        """Step 11: what is sent in place of a message that a client may be shown; itself if nothing happens to it."""
        crossing = Crossing(session.outward, session.principal, shown)
        crossing.overheard = overheard
        by = delivery.by
        chain = [each for each in session.leaving if each.attachment.id not in by] if by else session.leaving
        return [event for event, _ in self._run(chain, [(shown, None)], crossing)]

    def overhear(self, plan: Plan, message: Message, seen: set[tuple[object, int]] | None = None) -> None:
        """Monitors that listen to it see it, also on links whose clients have not subscribed to it.

        `seen`: who has been delivered it or has overheard it, if it comes more than once.
        """
        offered = (message.number, message.output)
        for post, (modes, calm) in zip(plan.hearing, plan.quiet, strict=True):
            if modes.keys() <= calm or not post.attachment.monitor.overhears:
                continue  # nothing happens in any of them, and there may be one for each client
            for session in self.states.listening(post):
                if session.offered == offered or session.connection is None or self._idle(post, session, calm):
                    continue
                if not self.scope.subjects.fresh(session) or self._idle(post, session, calm):
                    continue  # under the rules in force another state may be its
                heard = (session.outward, message.output)
                if seen is not None and (heard in seen or (session, message.output) in seen):
                    continue
                session.offered = offered
                delivery = Delivery(message, 0)
                delivery.overheard = True
                session.offer(delivery)
                if seen is not None and session.offered == offered:
                    seen.add(heard)

    @staticmethod
    def _idle(post: ModeCounts, session: Session, calm: frozenset[Hashable]) -> bool:
        """Nothing happens in the monitor of that link, or it is not watched."""
        instance = post.sessions.get(session)
        return instance is None or (instance.mode in calm and not session.lagging)

    def delivery(
        self, session: Session, message: Message, grants: list[Grant], retain: bool, group: tuple[str, str] | None
    ) -> Delivery:
        """A message that monitors made, owed to a client by some of its subscriptions."""
        grant = combine(grants)
        kept = message.retain and (retain or grant.retain_as_published)
        delivery = Delivery(message, min(message.qos, grant.qos), kept, grant.ids, group)
        delivery.seen = True
        delivery.by = self.ids(session)
        return delivery

    def leaving(self, session: Session) -> Sequence[Instance]:
        """The monitors of a client's link from the scope."""
        return session.leaving

    def ids(self, session: Session) -> tuple[str, ...]:
        """The monitors of a client's link from the scope."""
        return tuple(instance.attachment.id for instance in session.leaving)

    # -- between scopes ------------------------------------------------------------------------------------------

    def export(self, exit: ScopeExit, message: Message, root: Message) -> list[Message]:
        """What leaves over a link to another scope in place of a message. `root`: what outputs are numbered after."""
        crossing = Crossing(exit.outward, LINK, message, root.outputs, root)
        made = self._run(exit.leaving, [(message, None)], crossing)
        root.outputs = crossing.count
        root.noted = root.noted or message.noted
        return [one for one, _ in made]

    def arrive(self, exit: ScopeExit, message: Message, root: Message) -> list[Made]:
        """What goes on here of a message that has come over a link from another scope; itself without a route."""
        crossing = Crossing(exit.inward, LINK, message, root.outputs, root)
        made = self._run(exit.entering, [(message, None)], crossing)
        root.outputs = crossing.count
        return made

    # -- the machine ---------------------------------------------------------------------------------------------

    def _run(self, chain: Iterable[Instance], made: list[Made], crossing: Crossing) -> list[Made]:
        """What comes out of several monitors, each of which sees what the one before it put out."""
        heard = self._heard
        for instance in chain:
            attachment = instance.attachment
            if crossing.overheard and not attachment.monitor.overhears:
                continue
            following: list[Made] = []
            for one in made:
                hears = heard.get((attachment.id, one[0].topic))  # hot: as `_hears`, without the call
                if self._hears(attachment, one[0].topic) if hears is None else hears:
                    following += self._step(instance, one, crossing)
                else:
                    following.append(one)
            made = following
        return made

    def listened(self, session: Session, topic: str) -> bool:
        return any(self._hears(instance.attachment, topic) for instance in session.leaving)

    def _hears(self, attachment: Attachment, topic: str) -> bool:
        key = (attachment.id, topic)
        found = self._heard.get(key)
        if found is None:
            found = self._heard[key] = attachment.monitor.hears(topic)
        return found

    def _step(self, instance: Instance, one: Made, crossing: Crossing) -> list[Made]:
        message = one[0]
        attachment = instance.attachment
        scene = self._scene(attachment, message, crossing.link) if self._roots[attachment.id] else NO_SCENE
        event = Event(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            self.site.steady,
            scene,
            crossing.overheard,
        )
        sources: Sources = instance.sources  # that its state comes from
        outputs = self._asked(instance, event, message, crossing)
        if outputs is None:
            return []
        if len(outputs) == 1 and outputs[0] is event and not sources:
            return [one]  # hot: it passes
        if not outputs:
            self.states.tallies[attachment.id].suppressed += 1
            why = crossing.suppress(attachment)
            if not crossing.overheard and not attachment.silent:
                self.scope.report(crossing.action, crossing.link, message.topic, why, message.context)
        made: list[Made] = []
        for output in outputs:
            if output is not event:
                each = self._made(instance, output, message, crossing, sources)
            else:
                each = self._passed(instance, one, crossing, sources) if sources else one
            if each is not None:
                made.append(each)
        return made

    def _passed(self, instance: Instance, one: Made, crossing: Crossing, sources: Sources) -> Made | None:
        """An event that passes unchanged: with the contexts that the state comes from, if another state would have
        suppressed or changed it."""
        message, attachment = one[0], instance.attachment
        key = (attachment.id, message.topic)
        passing = self._passing.get(key)
        if passing is None:
            passing = self._passing[key] = attachment.monitor.passes(message.topic)
        if passing:
            return one
        data = self._sources.carried(message, crossing.came, sources)
        if data is None:
            self._excessive(attachment, message.topic, message, crossing)
            return None
        if data == message.context:
            return one
        gate = self.scope.gate
        context = gate.attributes.decoded(data)
        properties = gate.with_floor(message.properties, context)
        carrying = message.across(message.topic, message.qos, data, crossing.came, properties)
        if not crossing.link.inward:
            return carrying, None
        lane = gate.derived_lane(data, context, crossing.came, None)
        return carrying, self.scope.plans.of(lane, message.topic.encode())

    def _excessive(self, attachment: Attachment, topic: str, message: Message, crossing: Crossing) -> None:
        """What comes from the events of too many is not published."""
        why = crossing.suppress(attachment, f"more than {PUBLISHERS} publishers have led it here: let it begin anew")
        self.scope.report(crossing.action, crossing.link, topic, why, message.context)

    def _asked(self, instance: Instance, event: Event, message: Message, crossing: Crossing) -> Sequence[Event] | None:
        """The outputs of one step; None if it failed, which suppresses the event and leaves the state."""
        attachment = instance.attachment
        tally = self.states.tallies[attachment.id]
        tally.seen += 1
        foreign = attachment.id in self._foreign
        timed = foreign or bool(self._roots.get(attachment.id))  # what conditions cost is for the content to say
        begun = self._stopwatch() if timed else 0.0
        try:
            state, outputs = attachment.monitor.step(instance.state, event)
        except MonitorFailed as error:
            tally.failed += 1
            why = crossing.suppress(attachment, str(error))
            self.scope.report(crossing.action, crossing.link, message.topic, why, message.context)
            return None
        finally:
            if timed:
                spent = self._stopwatch() - begun
                self.site.effort += int(spent * 1e6)
                if foreign:
                    tally.spent += spent
        sources: Sources = instance.sources
        if attachment.monitor.remembers and (sources or state != instance.state):
            sources = self.remembered(instance, state, message, crossing.came)
        if attachment.monitor.due(state) is not None:
            if event.is_tick:
                instance.cause = replace(instance.cause, ticked=(crossing.count + len(outputs)) % MOST)
            else:
                crossing.count += 1
                instance.cause = Cause.of(message, crossing.principal, crossing.link, crossing.count)
        at_once = event.qos > 0
        # most have stayed where they were: what is the same need not be compared
        still = state is instance.state and sources is instance.sources
        if not still and self.states.move(instance, state, sources, at_once=at_once) and at_once:
            crossing.message.noted = True
        return outputs

    def remembered(self, instance: Instance, state: State, message: Message, came: str) -> Sources:
        """The contexts that a state comes from which the instance goes to. `came`: over a link of this type."""
        monitor, before = instance.attachment.monitor, instance.state
        sources: Sources = instance.sources
        if monitor.rests(state):
            return ()
        if not monitor.moved(before, state):
            return sources
        own = self._sources.of(message, came)
        return self._sources.joined(sources, own, wound=bool(sources) and monitor.wound(before, state))

    def _of(self, message: Message, crossing: Crossing) -> Sources:
        """All contexts of a message on its way over a link."""
        return self._sources.of(message, crossing.came)

    def _scene(self, attachment: Attachment, message: Message, link: Link) -> Any:
        """The roots that its conditions read."""
        roots = self._roots[attachment.id]
        attributes = self.scope.gate.attributes
        found: dict[str, Any] = {}
        if "s" in roots:
            found["s"] = attributes.subject(link.subject)
        if "o" in roots:
            found["o"] = attributes.facts(message)
        if "e" in roots:
            found["e"] = attributes.now(attributes.environment(link.subject))
        if "p" in roots:
            found["p"] = attributes.published(message)
        return found

    def _made(
        self, instance: Instance, output: Event, shown: Message, crossing: Crossing, sources: Sources
    ) -> Made | None:
        """An output as a message; on the way in, if the monitor may write it. `shown`: what the monitor made it of,
        which may be what the one before it made. `sources`: what else it comes from."""
        attachment = instance.attachment
        scope = self.scope
        tally = self.states.tallies[attachment.id]
        crossing.count += 1
        if crossing.count > MOST:
            why = Deny(step=crossing.step, rule=attachment.id, error=f"more than {MOST} outputs of one event")
            scope.report(crossing.action, crossing.link, output.topic, why, shown.context)
            return None
        limits, topic = self.site.limits, output.topic
        renamed = topic != shown.topic
        if renamed and len(topic) > limits.short_topic and (excess := limits.excess(topic)):
            why = crossing.suppress(attachment, f"puts out a topic of {excess}")
            scope.report(crossing.action, crossing.link, output.topic, why, shown.context)
            return None
        cause = crossing.message
        root = crossing.root
        number = root.numbered(crossing.count) if root.output else crossing.count  # hot: most are made of no output
        if number is None:
            why = crossing.suppress(attachment, "made it of what too many others have made, one after the other")
            scope.report(crossing.action, crossing.link, output.topic, why, shown.context)
            return None
        if attachment.id in self._foreign and mixes(scope, (*sources, *self._of(shown, crossing))):
            why = crossing.suppress(attachment, "made it of messages that are restricted differently")
            scope.report(crossing.action, crossing.link, output.topic, why, shown.context)
            return None
        whose = self._sources.carried(shown, crossing.came, sources) if sources else shown.context
        if whose is None:
            self._excessive(attachment, output.topic, shown, crossing)
            return None
        rewritten = output.payload is not shown.payload
        changed = renamed or rewritten or output.qos != shown.qos or output.retain != shown.retain
        data, lane, name = self._way(attachment.id, whose, cause.topic, output.topic, crossing, rewritten, changed)
        qos, retain = min(output.qos, limits.max_qos), output.retain and limits.retain
        message = cause.derived(number, output.topic, output.payload, qos, retain, data, crossing.came)
        if message.properties.user_properties:
            context = scope.gate.attributes.decoded(data)
            if context.scored:
                message.properties = renumbered(message)
            message.properties = scope.gate.with_floor(message.properties, context)
        tally.added += 1
        if lane is None:
            scope.path.protector.rename(message)
            return message, None
        plan = lane.plans.get(name) or scope.plans.of(lane, name)
        refusal = plan.refusal
        if refusal is None and plan.admission:
            refusal = undecided(plan.admission, message)
        if refusal is not None:
            link = Link(self._writers[attachment.id], True, crossing.came)
            scope.report("write", link, output.topic, refusal, message.context)
            return None
        return message, plan

    def _way(
        self, id: str, whose: bytes, before: str, after: str, crossing: Crossing, rewritten: bool, changed: bool
    ) -> tuple[bytes, Lane | None, bytes]:
        """The context of what a monitor makes, and on the way in the lane that it takes.

        `rewritten`: the payload is the monitor's own. `changed`: it is not as its publisher signed it.
        """
        gate = self.scope.gate
        at = (gate.cache.epoch, self.scope.publishers.revision)
        if self._ways_at != at:
            self._ways_at = at
            self._ways.clear()
        inward = crossing.link.inward
        key = (id, whose, before, after, crossing.came, inward, rewritten, changed)
        found = self._ways.get(key)
        if found is None:
            data, context = self.context(self._unproven(whose, rewritten, changed), before, after)
            lane = gate.derived_lane(data, context, crossing.came, self._writers[id]) if inward else None
            found = self._ways[key] = (data, lane, after.encode())
        return found

    def _unproven(self, data: bytes, rewritten: bool, changed: bool) -> bytes:
        """The context of what a monitor says itself: its publisher has neither signed it nor, if it was rewritten,
        sealed it."""
        context = self.scope.gate.attributes.decoded(data)
        if rewritten and context.sealed:
            context = replace(context, sealed=False, under=None)
        return replace(context, signed=context.signed and not changed, token="", attested=b"").encode()

    def context(
        self, data: bytes, before: str, topic: str, qos: int | None = None, *, crossed: bool = False
    ) -> tuple[bytes, Context]:
        """That of what caused it, which also says what it was published under, and with which QoS, if that is gone.

        `crossed`: it has come over a link between scopes.
        """
        key = (data, before if topic != before else "", qos, crossed)
        found = self._contexts.get(key)
        if found is None:
            context = self.scope.gate.attributes.decoded(data)
            if key[1]:
                context = context.called(before)
            if qos is not None and context.qos is None:
                context = replace(context, qos=qos)
            if crossed:
                context = context.crossed()
            data = context.encode()
            found = self._contexts[key] = (data, context)
        return found

    # -- timers --------------------------------------------------------------------------------------------------

    def tick(self, instance: Instance) -> Emission | None:
        """It is due: what it emits has the context of the message that set its timer."""
        cause: Cause | None = instance.cause
        if cause is None:
            return None  # nothing has reached it since the rules changed
        scope = self.scope
        message = cause.message()
        context = scope.gate.attributes.context(message)
        publisher = context.subject
        message.properties = scope.gate.floor_properties(context)
        exit: ScopeExit | None = None
        link: Link
        session: Session | None = None
        chain: Sequence[Instance] = ()
        if cause.principal == LINK:
            exit = self.joined.get((cause.client, cause.inward))
            if exit is None:
                return None  # the rules have changed
            chain = exit.entering if cause.inward else exit.leaving
            link = exit.inward if cause.inward else exit.outward
        else:
            session = scope.sessions.get((cause.principal, cause.client))
            if cause.inward:
                # its client may be gone: that it is silent is what somebody waits for
                link = Link(publisher, True, cause.link)
                chain = self.states.chain(scope.gate.monitors(link), link, cause.principal)
                if session is None:
                    self.site.timers.at(self.site.now, self.states.parted, chain)
            elif session is not None and session.connection is not None and scope.subjects.fresh(session):
                link, chain = session.outward, self.leaving(session)
            elif instance.attachment.each is Each.SCOPE:
                # the link that it would speak over is down; the time of others goes on
                link, chain, session = Link(publisher, False, cause.link), (instance,), None
            else:
                return None
        if instance not in chain:
            return None  # the rules have changed
        crossing = Crossing(link, cause.principal, message, cause.ticked)
        sources: Sources = instance.sources
        outputs = self._asked(instance, Event.tick(self.site.steady), message, crossing)
        first = [self._made(instance, output, message, crossing, sources) for output in outputs or ()]
        rest = chain[chain.index(instance) + 1 :]
        emitted = self._run(rest, [each for each in first if each is not None], crossing)
        message.outputs = crossing.count
        return Emission(cause=message, link=link, inward=cause.inward, exit=exit, session=session, emitted=emitted)
