"""Connections of a link that are open beside the one that carries (SEC-REDS, 3.2).

A standby connection has been greeted and tested as any other, and has a session of its own, to which nothing is routed.
It becomes the default when the end that connects asks for it (`StandbyEnd.ask`) and the other one confirms: then the
session of the link goes on over it, as it would over a new connection.

- The question and the answer go over the connection that is to carry, so that it is known to work in both directions.
- In each direction there is one packet behind which everything belongs to the session of the link: the question of the
  end that connects, and the answer. Between the two the end that connects sends nothing.
- Nothing is lost and nothing is there twice: what was on its way goes again, with the same identifiers, and what has
  come another way is known by its id.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final, cast

from tidegate.errors import ProtocolError
from tidegate.policy import Subject
from tidegate.scope.link_control import DEFAULT
from tidegate.scope.link_greeting import Peer
from tidegate.scope.node_links import LinkEnd
from tidegate.scope.untrusted_link import BETTER
from tidegate.session import Connection, Delivery, Host, LinkSession, Message, NodeLinkEnd, Site
from tidegate.session.decider import Decider
from tidegate.session.phase import Hold, Phase
from tidegate.wire import V5, Connect, Disconnect, Publish, Reason, encode

STANDBY: Final = "tidegate-standby"
"""The user property of CONNECT: which connection of the link it is."""
_NAME: Final = re.compile("[0-9]{1,2}")
_ASKED, _CONFIRMED, _REFUSED = b"ask", b"confirm", b"refuse "


class StandbySession(LinkSession):
    """What a standby connection carries: copies of what the connection that carries is too weak for. It ends with the
    connection, and is never stored."""

    __slots__ = ("settled",)

    def __init__(self, *, site: Site, decider: Decider, principal: str, name: str, subject: Subject) -> None:
        self.settled: Callable[[Delivery], None] = lambda delivery: None  # told what has been acknowledged
        super().__init__(site=site, decider=decider, principal=principal, name=name, subject=subject)

    def save(self) -> None:
        pass

    @property
    def takes_more(self) -> bool:
        return self.connection is not None and not self.shut and self.window > 0 and self.may_fly()

    def take(self, copy: Delivery, shown: Message) -> None:
        """Sends what has been decided."""
        link = self.outward
        assert isinstance(link, NodeLinkEnd)
        copy.qos = min(copy.qos, link.qos(copy.message.topic))
        if copy.qos:
            self._transmit(copy, shown)
        else:
            self._send_unacknowledged(shown, copy.retain, copy.ids)
            self.settled(copy)

    def acknowledged(self, pid: int) -> None:
        delivery = (self._inflight or {}).get(pid)
        super().acknowledged(pid)
        self._look(pid, delivery)

    def received(self, pid: int, reason: int = 0) -> None:
        delivery = (self._inflight or {}).get(pid)
        super().received(pid, reason)
        self._look(pid, delivery)

    def completed(self, pid: int) -> None:
        delivery = (self._inflight or {}).get(pid)
        super().completed(pid)
        self._look(pid, delivery)

    def _forget(self, delivery: Delivery) -> None:
        super()._forget(delivery)
        self.settled(delivery)  # also what is not sent any more, or is refused: it does not wait for that

    def _look(self, pid: int, delivery: Delivery | None) -> None:
        if delivery is not None and pid not in (self._inflight or {}):
            self.settled(delivery)


class StandbyEnd(LinkEnd):
    """This node's end of one connection of a link that is open beside the one that carries."""

    session_type = StandbySession
    session: StandbySession

    def __init__(self, main: LinkEnd, name: str) -> None:
        self.main = main
        self.name = name
        self.answered: Callable[[str], None] = lambda why: None
        """Told what the other end has answered: why not, or nothing."""
        super().__init__(main.link, main.scope, main.links)
        self.plans.seen_ids = main.plans.seen_ids  # a link has one share of what is remembered
        self.session.settled = main.better.settled

    def identify(self) -> None:
        super().identify()
        if self.session.leaving:  # they belong to the session of the link, which has shown them everything
            self.scope.path.monitoring.states.down(self.session)
            self.session.leaving = ()

    def greeting(self, peer: Peer | None = None) -> Connect:
        said = super().greeting(peer)
        pairs = (*said.properties.user_properties, (STANDBY, self.name))
        return replace(said, properties=replace(said.properties, user_properties=pairs))

    def _resume(self, connection: Connection) -> None:
        """It is open. Nothing waits for it, and nothing is told: the connection that carries does that."""
        if self.session.connection is connection:
            self.control.tell_signers()
            self.main.standbys[self.name] = self
            self.main.better.look()

    def disconnected(self, connection: Connection, packet: Disconnect | None, reason: Reason) -> None:
        if self.session.connection is not connection:
            return
        super().disconnected(connection, packet, reason)
        self.session.clear()
        if self.main.standbys.get(self.name) is self:
            del self.main.standbys[self.name]
        self.main.better.lost(self)
        self._say("the connection has ended")

    # -- it becomes the default ------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Asks the other end that the link goes on over this connection; `answered` is told."""
        session, connection = self.session, self.session.connection
        if connection is None or connection.phase is not Phase.OPEN:
            self._say("the connection has ended")
            return
        self.main.standbys.pop(self.name, None)  # nothing more takes it
        session.pause()  # writes what waits
        session.write = _nowhere  # from now on what is sent here is of the session of the link
        connection.write(_about_default(_ASKED))

    def told_of_default(self, payload: bytes) -> None:
        """The other end asks, or answers."""
        connection = self.session.connection
        if connection is None:
            return
        if self.link.via:  # this end has asked
            if payload == _CONFIRMED:
                self._next(connection)
            elif payload.startswith(_REFUSED):
                self._say(payload[len(_REFUSED) :].decode(errors="replace")[:200])
            else:
                raise ProtocolError("the end that connects chooses the default connection")
        elif payload == _ASKED and self.untrusted and self.main.trusted:
            connection.write(_about_default(_REFUSED + BETTER.encode()))  # nobody is put out by whom nobody knows
        elif payload == _ASKED:
            self._next(connection)
        else:
            raise ProtocolError("an answer about the default connection that nobody has asked for")

    def _next(self, connection: Connection) -> None:
        """What comes behind this packet is of the session of the link: nothing more is read before that has the
        connection."""
        connection.publishing.stalled = True
        connection.hold_reading(Hold.HANDSHAKE)

        def go_on() -> bool:
            if self.session.connection is connection and connection.phase is Phase.OPEN:
                self._become_default(connection)
            return False

        self.site.unfinished.append(go_on)

    def _become_default(self, connection: Connection) -> None:
        peer, greeted, main, session = self.peer, self.greeted, self.main, self.session
        assert peer is not None
        assert greeted is not None
        answer = b"" if self.link.via else _about_default(_CONFIRMED)
        session.detach()
        session.clear()
        self.scope.credential_expiry.left(session)
        self.scope.connected -= 1
        self.peer = None
        main.standbys.pop(self.name, None)
        main.better.lost(self)
        connection.host = cast(Host, main)
        main.attach(connection, peer, greeted, self.terms, answer)
        main.carried_by = self.name
        self._say("")

    def _say(self, answer: str) -> None:
        answered, self.answered = self.answered, lambda why: None
        answered(answer)


def standby_of(end: LinkEnd, pairs: tuple[tuple[str, str], ...]) -> LinkEnd:
    """The end that a connection is for, by the user properties of its CONNECT: the link itself, or a standby of it."""
    name = next((value for name, value in pairs if name == STANDBY), None)
    if name is None:
        return end
    if not _NAME.fullmatch(name):
        raise ProtocolError(f"`{STANDBY}` names no connection")
    known = end.standbys.get(name)
    return StandbyEnd(end, name) if known is None else known


def _about_default(payload: bytes) -> bytes:
    return encode(Publish(topic=DEFAULT, payload=payload, qos=0), V5)


def _nowhere(data: bytes) -> None:
    pass
