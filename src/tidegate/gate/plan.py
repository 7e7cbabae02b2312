"""A plan: what remains to be done for a message of one topic from one kind of source.

Everything that can be decided before the message comes has been decided: targets that are denied for good are not
in it. Peers follow `fast` and `cross` without asking; the scope follows the rest.
"""

from __future__ import annotations

from tidegate.gate.verdict import ALLOW, Deny, Residual
from tidegate.routing import Group
from tidegate.session import Grant, Message, Session

LONG = 128  # characters of a topic that count like one target: topics may have 65,535 bytes


class Plan:
    """See the module. `cost` is what it counts for against the bound on all plans."""

    __slots__ = (
        "admission",
        "conditional",
        "cost",
        "cross",
        "denied",
        "durable",
        "fast",
        "groups",
        "local",
        "passed",
        "refusal",
        "targets",
        "topic",
        "version",
    )

    def __init__(self, topic: str, version: int) -> None:
        self.topic = topic
        self.version = version  # of the policies
        self.passed = 0
        self.refusal: Deny | None = None
        self.admission: tuple[Residual, ...] = ()
        self.targets: tuple[Grant, ...] = ()
        self.conditional: tuple[tuple[Grant, tuple[Residual, ...]], ...] = ()
        self.groups: tuple[Group[Session, Grant], ...] = ()
        self.denied: tuple[tuple[Grant, Deny], ...] = ()
        self.local = False  # some target does not want its own messages
        self.durable = False
        self.fast: tuple[Session, ...] | None = None
        self.cross: tuple[Session, ...] = ()
        self.cost = 1 + len(topic) // LONG

    @property
    def asks(self) -> bool:
        return bool(self.admission)

    def settle(self, protocol: int) -> None:
        """Decides which lane a QoS 0 publish of this protocol version takes."""
        targets = self.targets
        self.cost += len(targets) + len(self.conditional) + len(self.denied) + len(self.groups)
        self.local = any(grant.no_local or grant.own for grant in targets)
        self.durable = bool(self.groups) or any(grant.session.row for grant in targets)
        if self.refusal or self.admission or self.conditional or self.groups or self.local:
            return
        same: list[Session] = []
        cross: list[Session] = []
        for grant in targets:
            session = grant.session
            if grant.ids or not session.plain:
                return
            (same if session.version == protocol else cross).append(session)
        self.fast = tuple(same)
        self.cross = tuple(cross)


def combine(grants: list[Grant]) -> Grant:
    """One delivery for several overlapping subscriptions of a session.

    The highest QoS of them, all their identifiers [MQTT-3.3.4-2, MQTT-3.3.4-4].
    """
    best = max(grants, key=lambda grant: grant.qos)
    made = Grant(best.session, best.subscription(), best.qos, None)
    made.ids = tuple(sorted({number for grant in grants for number in grant.ids}))
    made.retain_as_published = any(grant.retain_as_published for grant in grants)
    made.no_local = all(grant.no_local for grant in grants)
    others = [grant for grant in grants if not grant.no_local]
    if others and len(others) < len(grants):
        made.own = combine(others)
    return made


def undecided(residuals: tuple[Residual, ...], message: Message) -> Deny | None:
    """Asks each; the first denial counts."""
    for residual in residuals:
        answer = residual.decide(message)
        if answer is not ALLOW:
            assert isinstance(answer, Deny)
            return answer
    return None
