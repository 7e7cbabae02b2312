"""A plan: what remains to be done for a message of one topic from one kind of source.

Everything that can be decided before the message comes has been decided: targets that are denied for good are not
in it. Peers follow `fast` and `cross` without asking; the scope follows the rest.

Where links lead on to other scopes a plan has branches, and each scope behind them has a plan of its own for what comes
over such a link. Of a plan that a client's messages take, what all these say together is known (`flat`), as long as
nothing on the way has to see the message: the fast lane leads through any number of scopes at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tidegate.gate.asked import Asked, asked
from tidegate.gate.decision import PartialDecision
from tidegate.gate.key_groups import Protection
from tidegate.gate.scope_links import Branch, Guard, ScopeExit
from tidegate.gate.verdict import FOREVER, Deny, Residual
from tidegate.monitor import Attachment, Glance, ModeCounts, ModeRevision, calm_modes
from tidegate.routing import Group
from tidegate.session import Grant, Link, LinkSession, Session
from tidegate.session.host import LINKS
from tidegate.wire import NONE, V5, Properties, encode_properties

if TYPE_CHECKING:
    from tidegate.gate.lane import Lane
    from tidegate.gate.plan_cache import PlanCache

LONG = 128  # characters of a topic that count like one target: topics may have 65,535 bytes

_NO_POSTS = ModeRevision()

Members = dict[Session, PartialDecision | Deny]


class Undecided(Mapping[Hashable, int]):
    """Those of some sessions that are still owed QoS 0 messages which wait to be decided: modes in which no fast lane
    leads to them."""

    def __init__(self, sessions: frozenset[Session]) -> None:
        self._sessions = sessions

    def __iter__(self) -> Iterator[Session]:
        self._sessions = frozenset(session for session in self._sessions if session.postponed)
        return iter(self._sessions)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, session: Hashable) -> int:
        return 1


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Plan:
    """See the module. `cost` is what it counts for against the bound on all plans."""

    topic: str
    version: int  # of the policies
    passed: int = 0
    apart: int = 0  # of those, which did not take `flat` with it, because each scope was asked by itself
    counted: tuple[int, int] = (0, 0)  # of both, how many have been accounted for
    until: float = FOREVER  # wall clock: it is made anew then
    clocked: bool = False  # or when that is put back
    refusal: Deny | None = None
    admission: tuple[Residual, ...] = ()
    control: bool = False  # it is for the node itself: rules of a publisher, a request for a key
    sealing: Protection | None = None  # how its messages are protected, which are not yet
    ingested: bool = False  # each message is written down before it is acknowledged
    targets: tuple[Grant, ...] = ()
    conditional: tuple[tuple[PartialDecision, ...], ...] = ()  # those of one session together
    groups: tuple[tuple[Group[Session, Grant], Members], ...] = ()
    unwanted: int = 0  # sessions whose subscriptions alone say that they do not want it: nobody is told
    overlapping: int = 0  # filters that matched beyond one for each session
    deferred: tuple[tuple[Deny, tuple[PartialDecision, ...]], ...] = ()
    """Sessions whose present connections are too weak, and that outlive them: QoS 1 and 2 wait for better ones."""
    postponed: tuple[Grant, ...] = ()
    """Of sessions that the plan says nothing of, because to decide for all would take too long: decided one by one."""
    denied: tuple[tuple[Link, Deny], ...] = ()
    failed: tuple[tuple[Session, tuple[tuple[str, str], ...]], ...] = ()  # conditions, and what went wrong
    local: bool = False  # some target does not want its own messages
    durable: bool = False
    refusing: tuple[LinkSession, ...] = ()  # links and guarded brokers without which nobody is to have it
    floor_properties: Properties = NONE  # what MQTT 5 subscribers are told of its floor, if that is announced
    certain: bool = False  # its targets are all who get a message here, and all that is done with it
    immediate: bool = False  # nothing is decided or done on the way in: steps 1 to 5 are empty
    fast: tuple[Session, ...] | None = None
    asked: Asked | None = None  # nothing but residuals keeps it off the fast lane
    cross: tuple[tuple[bytes | None, tuple[Session, ...]], ...] = ()
    carried: bool = False  # some of these are links to other nodes,
    relayed: bool = False  # and all of those leave this scope, and do not lead to the broker that it guards
    monitored: bool = False  # those of the link it comes over have to see each message
    glances: tuple[tuple[int, Glance | None, bool], ...] = ()  # of those: what tells that messages pass; see `Asked`
    hearing: tuple[ModeCounts, ...] = ()  # those of links it may leave over
    guarded: bool = False  # one of these listens
    quiet: tuple[Guard, ...] = ()
    still: tuple[tuple[int, frozenset[Hashable]], ...] = ()  # by position on the link: when nothing happens
    mode_revision: ModeRevision = _NO_POSTS
    calmed: int = 0  # the revision in which all of `quiet` and `afar` were
    branches: tuple[Branch, ...] = ()  # to other scopes
    flat: tuple[tuple[Branch, Plan], ...] = ()  # the plans there, and by which branch each is reached
    busy: tuple[tuple[ScopeExit, Plan], ...] = ()  # of `flat`, those that a message can reach anybody by
    plain: bool = False  # and all of them are reached by every message as it is
    twice: bool = False  # several of them are of one scope, by different ways
    afar: tuple[Guard, ...] = ()  # monitors of links between scopes, and of links that leave those
    shadow: Plan | None = None  # what would be decided if the scope enforced its rules: counted, and not obeyed
    observed: bool = False  # and that one has to see each message; if not,
    would: tuple[tuple[Link, Deny], ...] = ()  # who would be denied every message
    users: WeakKeyDictionary[Plan, tuple[PlanCache, Lane, bytes]] | None = None  # plans that lead on to this one
    cost: int = 1

    def __post_init__(self) -> None:
        self.cost += len(self.topic) // LONG

    def copied(self) -> Plan:
        """The same for one source alone, whose messages it counts; it leads to no other scope."""
        made = copy(self)
        made.passed, made.apart, made.counted = 0, 0, (0, 0)
        made.users, made.failed, made.overlapping = None, (), 0
        made.cost = 1 + len(self.topic) // LONG  # what it refers to is counted
        return made

    @property
    def denies(self) -> bool:
        """Somebody is denied every message, here or in a scope that it leads to, or would be."""
        return bool(self.denied or self.would) or any(plan.denied for _, plan in self.flat)

    @property
    def uncounted(self) -> bool:
        """Messages took it that have not been accounted for."""
        return self.counted != (self.passed, self.apart)

    def take_counts(self) -> Iterator[tuple[int, Plan]]:
        """How many took it since the last time, and whatever of it they took with it."""
        together, apart = self.passed - self.counted[0], self.apart - self.counted[1]
        self.counted = self.passed, self.apart
        if together + apart:
            yield together + apart, self
        if together:
            yield from ((together, plan) for _, plan in self.flat)

    @property
    def asks(self) -> bool:
        """As the shadow of another: whether it has more to say than whom every message would be denied."""
        on_the_way_in = self.refusal or self.admission or self.control or self.sealing is not None or self.monitored
        return bool(on_the_way_in or not self.simple or self.hearing or self.branches)

    def follow(self, shadow: Plan, cache: PlanCache, lane: Lane, name: bytes) -> None:
        """What would be decided, by the plan of the shadow; this one is made anew with that. `name`: where it is."""
        self.shadow, self.observed = shadow, shadow.asks
        self.immediate = self.immediate and not self.observed
        if not self.observed:
            really = {link for link, _ in self.denied}
            self.would = tuple(each for each in shadow.denied if each[0] not in really)
        self.until, self.clocked = min(self.until, shadow.until), self.clocked or shadow.clocked
        if shadow.users is None:
            shadow.users = WeakKeyDictionary()
        shadow.users[self] = (cache, lane, name)

    def watch(self, topic: str, monitors: tuple[Attachment, ...], posts: tuple[ModeCounts, ...]) -> None:
        """Which monitors listen to this topic, and in which modes they do nothing."""
        self.still = tuple(
            (position, calm_modes(one.monitor, topic))
            for position, one in enumerate(monitors)
            if one.monitor.hears(topic)
        )
        self.monitored = bool(self.still)
        machines = [(at, monitors[at].monitor) for at, _ in self.still]
        self.glances = tuple((at, machine.glance(topic), machine.passes(topic)) for at, machine in machines)
        self.hearing = tuple(post for post in posts if post.attachment.monitor.hears(topic))
        self.quiet = tuple((post.modes, calm_modes(post.attachment.monitor, topic)) for post in self.hearing)
        self.guarded = bool(self.still or self.hearing)
        self.certain = self.certain and not self.hearing
        if self.hearing:
            self.mode_revision, self.calmed = self.hearing[0].shift, -1

    def calm(self, source: Session) -> bool:
        """Nothing happens in any monitor if a message comes now."""
        # hot: a set lookup for each monitor of the link it comes over, one comparison for all links it may leave over
        for position, states in self.still:
            if source.entering[position].mode not in states:
                return False
        return self.calmed == self.mode_revision.number or self._calmed()

    def _calmed(self) -> bool:
        """The same of links it may leave over. It stays true until another mode appears at one of the posts."""
        if not all(modes.keys() <= states for modes, states in (*self.quiet, *self.afar)):
            return False
        self.calmed = self.mode_revision.number
        return True

    def lead(self, behind: Sequence[tuple[Branch, Plan]], mode_revision: ModeRevision) -> bool:
        """What lies behind its branches; whether the fast lane may lead there while monitors on the way are calm."""
        self.flat = tuple(behind)
        self.busy = tuple((branch.exit, plan) for branch, plan in behind if not plan.idle)
        self.plain = all(branch.plain for branch, _ in behind)
        self.twice = len({branch.exit.gate for branch, _ in behind}) < len(behind)
        self.durable = any(plan.durable for _, plan in behind)
        self.refusing = tuple(link for _, plan in behind for link in plan.refusing)
        self.cost += len(behind)
        guards: list[Guard] = []
        for branch, plan in behind:
            if branch.guards is None or branch.renamed or not branch.clear or not plan.simple:
                return False
            guards += (*branch.guards, *plan.quiet)
        self.afar = tuple(guards)
        if guards:
            self.guarded = True
            self.mode_revision, self.calmed = mode_revision, -1
        return all(states for _, states in guards)

    @property
    def idle(self) -> bool:
        """Nobody is there whom a message could reach."""
        receivers = self.targets or self.conditional or self.groups or self.deferred or self.postponed
        return not (receivers or self.hearing or self.unwanted)

    @property
    def simple(self) -> bool:
        """Whatever it says is said before the message comes, and for everybody alike."""
        return not (self.conditional or self.groups or self.deferred or self.postponed)

    def _only_asks(self) -> bool:
        """Nothing is done with its messages but to ask the residuals, and to send them."""
        inward = self.refusal or self.control or self.sealing is not None or self.ingested
        elsewhere = self.branches or self.hearing or not (self.admission or self.conditional or self.monitored)
        slow = any(glance is None for _, glance, _ in self.glances)
        return not (inward or elsewhere or slow or self.groups or self.deferred or self.postponed)

    def settle(
        self, protocol: int, floor_properties: Properties, watched: bool, leads: bool = True, relayed: bool = False
    ) -> None:
        """Decides which lane a QoS 0 publish of this protocol version takes. `watched`: each is written down.

        `leads`: the fast lane may lead to what lies behind the branches. `relayed`: whoever publishes has a connection
        to a guarded broker, so that nothing waits there for room.
        """
        targets = self.targets
        conditional = self.conditional
        self.certain = self.simple and not self.hearing
        self.floor_properties = floor_properties
        self.cost += len(targets) + sum(map(len, conditional)) + len(self.denied) + len(self.postponed)
        self.cost += sum(len(ways) for _, ways in self.deferred)
        self.cost += sum(1 + len(members) for _, members in self.groups)
        self.local = any(grant.no_local or grant.own for grant in targets) or any(
            # a member of a role receives elsewhere than where it publishes
            (grant.no_local or grant.own) and grant.session.inward.scope != grant.session.home
            for _, plan in self.flat
            for grant in plan.targets
        )
        self.durable = (
            self.durable
            or bool(self.groups)
            or any(grant.session.row for grant in targets)
            or any(one.grant is not None and one.grant.session.row for ways in conditional for one in ways)
            or any(ways[0].session.row for _, ways in self.deferred)
            or any(grant.session.row for grant in self.postponed)
        )
        sessions = [
            *(grant.session for grant in targets),
            *(ways[0].session for ways in (*conditional, *(ways for _, ways in self.deferred))),
            *(grant.session for grant in self.postponed),
        ]
        links_here = [one for one in sessions if isinstance(one, LinkSession) and one.refusing]
        self.refusing += tuple(one for one in links_here if not (relayed and one.guards))
        self.durable = self.durable or bool(self.refusing)
        open_way = not (self.refusal or self.admission or self.control or self.sealing is not None or self.ingested)
        self.immediate = open_way and not self.monitored
        if relayed and not watched and self._only_asks():
            self.asked = asked(
                self.topic, self.admission, targets, conditional, protocol=protocol, floor_properties=floor_properties
            )
            if self.asked is not None:
                self.asked.glances = self.glances
        if not open_way or not self.simple or self.local or watched or not leads:
            return
        if not all(states for _, states in (*self.still, *self.quiet)):
            return  # a monitor that has to see every message
        links: dict[Session, None] = {}
        same: dict[Session, None] = {}
        older: dict[Session, None] = {}
        newer: dict[Session, None] = {}
        beyond = [grant for _, plan in self.flat for grant in plan.targets]
        if any(isinstance(grant.session, LinkSession) and grant.session.guards for grant in beyond):
            return
        for grant in (*targets, *beyond):
            session = grant.session
            if isinstance(session, LinkSession):
                links[session] = None
                continue
            if grant.ids or not session.plain:
                return
            if session.version == protocol and (session.version != V5 or floor_properties is NONE):
                same[session] = None
            else:
                (newer if session.version == V5 else older)[session] = None
        if sum(isinstance(session, LinkSession) and session.ringed for session in links) > 1:
            return  # it needs one id over all of them
        self.fast = tuple(same)
        block = b"\0" if floor_properties is NONE else encode_properties(floor_properties)
        others: list[tuple[bytes | None, tuple[Session, ...]]] = [
            (None, tuple(older)),
            (block, tuple(newer)),
            (LINKS, tuple(links)),
        ]
        self.carried = bool(links)
        behind = any(isinstance(grant.session, LinkSession) for grant in beyond)
        self.relayed = not behind and not any(isinstance(one, LinkSession) and one.guards for one in links)
        self.cross = tuple(one for one in others if one[1])
        late = frozenset(grant.session for grant in (*targets, *beyond) if grant.session.postponed)
        if late:  # what they were owed under the rules before goes first, and until then what follows waits behind it
            self.afar += ((Undecided(late), frozenset()),)
            self.guarded, self.calmed = True, -1
