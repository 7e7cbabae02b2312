"""The links of a node to others: which connections it makes and keeps, and what is told of all of them.

A dialer runs for each link that says where the other node is (`via`); the others wait for the other node to connect.
Both follow the rules. A connection whose other end is not trusted any more, or counts for another level now, is ended;
the end that connects makes another one.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from tidegate.authentication.foreign_broker import foreign_broker
from tidegate.config import Config
from tidegate.config.problems import suggestion
from tidegate.errors import ConfigError
from tidegate.link import Dialer, Failover, State
from tidegate.net import client_context
from tidegate.net.control_socket import Command
from tidegate.node.certificate_trust import CertificateTrust
from tidegate.node.link_explanations import LinkExplanations
from tidegate.node.topology import NodeTopology
from tidegate.policy.scopes import ScopeLink
from tidegate.scope import Refused
from tidegate.scope.node_links import LinkEnd
from tidegate.session import Connection
from tidegate.wire import Reason

if TYPE_CHECKING:
    from tidegate.node.node import Node

ENVELOPE: Final = 64 * 1024  # bytes that a message may have more than a client could send
LARGEST: Final = 2**20  # bytes of a packet, without a listener
log = structlog.get_logger("tidegate.link")

_BRIEF: Final = (
    *("link", "state", "address", "level", "queue", "bytes", "oldest", "round_trip", "error"),
    *("standby", "switches", "on_backup", "degraded"),
)


class LinkConnections:
    """The dialers of a node (`start`, then it follows the rules), and its answers about links."""

    def __init__(self, node: Node) -> None:
        self.dialers: dict[str, Dialer | Failover] = {}  # by the name of the link
        self.explanations = LinkExplanations(node)
        self.certificate_trust = CertificateTrust(node)
        self.topology = NodeTopology(node)
        self._node = node
        self._leaving: set[asyncio.Task[None]] = set()
        self._stopping = False

    # -- following the rules -----------------------------------------------------------------------------------

    def start(self) -> None:
        links = self._node.realm.node_links
        links.on_change.append(self._changed)
        links.answerer = self.explanations.answer
        links.on_end.append(self._ended)
        links.on_lack.append(self._lacking)
        links.on_trust.append(self._trusting)
        self.certificate_trust.start()
        links.capabilities.verify = self._node.authentication.travelled
        self._arrange()

    async def close(self) -> None:
        """Takes leave of all nodes."""
        self._stopping = True
        self.explanations.close()
        for name in list(self.dialers):
            self._stop(name)
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _changed(self) -> None:
        """The rules are being changed, or what is trusted: when that is done, so are the connections."""
        self._node.loop.call_soon(self._node.turns.guarded, self._arrange)

    def _lacking(self, name: str, names: tuple[str, ...]) -> None:
        """The other node does not have what preferences here call: they count as false there."""
        if names:
            log.warning("preferences call what the other node lacks", link=name, lacking=", ".join(names))

    def _trusting(self, name: str, degraded: str) -> None:
        """A link has opened over a connection that is not trusted, or over a trusted one again."""
        log.info("link is degraded" if degraded else "link is trusted", link=name, reason=degraded or None)
        what = f"link {name}: {f'untrusted: {degraded}' if degraded else 'trusted again'}"
        self._node.audit.changed(self._node.audit.version, what, action="degrade" if degraded else "trust")

    def _ended(self, name: str, owed: int) -> None:
        """A link is gone from the rules, and its queue with it."""
        log.info("link removed", link=name, dropped=owed)
        what = f"link {name}: {owed} messages that were owed over it are dropped"
        self._node.audit.changed(self._node.audit.version, what, action="remove")

    def _arrange(self) -> None:
        self.certificate_trust.arrange()
        self.topology.arrange()
        ends = {} if self._stopping else self._node.realm.node_links.ends
        for name, dialer in list(self.dialers.items()):
            end = ends.get(name)
            link = end.link if end is dialer.end else None
            made = (dialer.via, dialer.strategy, dialer.broker)
            if link is None or (link.via, link.failover, link.broker) != made:
                self._stop(name)
        for name, end in ends.items():
            if end.link.via and name not in self.dialers:
                self._dial(end)
            self._review(end)

    def _dial(self, end: LinkEnd) -> None:
        node = self._node
        options: dict[str, Any] = {
            "site": node.site,
            "loop": node.loop,
            "context": lambda: end_certificates(node.config, end),
            "peer": partial(self._peer, end),
            "on_bug": node.bug,
            "max_packet": max((each.max_packet for each in node.config.listeners), default=LARGEST) + ENVELOPE,
        }
        dialer = (
            Dialer(end, **options) if end.link.failover is None else Failover(end, on_switch=self._switched, **options)
        )
        self.dialers[end.link.name] = dialer
        dialer.start()

    def _switched(self, name: str, what: str) -> None:
        """Another connection carries a link."""
        self._node.audit.changed(self._node.audit.version, f"link {name}: {what}", action="failover")

    def _stop(self, name: str) -> None:
        leaving = self._node.loop.create_task(self.dialers.pop(name).close())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    def _peer(self, end: LinkEnd, connection: Connection, expected: str | None) -> Any:
        authentication = self._node.authentication
        if end.link.broker is not None:
            levels = authentication.built.rules.levels
            return foreign_broker(connection, end.link, levels, authentication.revocation)
        return authentication.peer(connection, expected, end.link.plain)

    def _review(self, end: LinkEnd) -> None:
        for standby in tuple(end.standbys.values()):
            open_one = standby.session.connection
            if open_one is not None and self._peer(end, open_one, end.link.peer) != standby.found:
                open_one.close(Reason.ADMINISTRATIVE_ACTION, "the level of this connection has changed")
        connection = end.session.connection
        if connection is None:
            return
        found = self._peer(end, connection, end.link.peer)
        same = end.agreed == end.link.directions
        if found == end.found and same:
            return
        # both ends open it anew, and carry what is retained as it crosses now
        what = "the level of this connection" if same else "what crosses this link"
        reason, text = Reason.ADMINISTRATIVE_ACTION, f"{what} has changed"
        if isinstance(found, Refused):
            reason, text = Reason.NOT_AUTHORIZED, found.text
            self._node.audit.changed(self._node.audit.version, f"link {end.link.name}: {text}", action="close")
        dialer = self.dialers.get(end.link.name)
        if dialer is None:
            connection.close(reason, text)
        else:
            dialer.drop(reason, text)

    # -- what is told ------------------------------------------------------------------------------------------

    def commands(self) -> dict[str, Command]:
        return {
            "link_list": self.listed,
            "link_show": self.show,
            "link_default": self.set_default,
            **self.explanations.commands(),
        }

    async def set_default(self, link: str, address: str, by: str = "") -> dict[str, Any]:
        """Makes an address the default of a link, as soon as the other end has confirmed it."""
        end = self._end(link)
        dialer = self.dialers.get(link)
        if not isinstance(dialer, Failover):
            where = "it has no `failover`" if end.link.via else "the other end connects, and chooses"
            raise ConfigError(f"the link {link} has no default connection here: {where}")
        why = await dialer.use(address)
        if why:
            raise ConfigError(f"{address} does not carry the link {link}: {why}")
        what = f"link {link}: {address} is the default"
        self._node.audit.changed(self._node.audit.version, f"{what}, by {by}" if by else what, action="set-default")
        return self._row(end)

    def _end(self, link: str) -> LinkEnd:
        ends = self._node.realm.node_links.ends
        end = ends.get(link)
        if end is None:
            meant = suggestion(link, ends)
            remedy = f"did you mean {meant}?" if meant else f"there are {', '.join(ends) or 'none'}"
            raise ConfigError(f"there is no link {link} to another node; {remedy}")
        return end

    def listed(self) -> dict[str, Any]:
        """Each link with its state."""
        return {"links": self.rows(), "groups": self.groups()}

    def show(self, link: str) -> dict[str, Any]:
        """One link: its state, who is at the other end, and what crosses."""
        end = self._end(link)
        peer, greeted = end.peer, end.greeted
        return {
            **self._row(end),
            "via": [*end.link.via],
            "peer": None if peer is None else peer.subject,
            "facts": [] if peer is None else [*peer.facts],
            "node": None if greeted is None else greeted.node,
            "domain": None if greeted is None else greeted.domain,
            "overflow": end.link.overflow.value,
            "lacks": [*end.lacks],
            "out": _shares(end.link.out),
            "in": _shares(end.link.into),
        }

    def rows(self) -> list[dict[str, Any]]:
        return [self._row(end) for end in self._node.realm.node_links.ends.values()]

    def status(self) -> dict[str, Any]:
        """What `tidegate status` and the metrics tell of each link, and in which groups the scopes are."""
        return {"links": [{name: row[name] for name in _BRIEF} for row in self.rows()], "groups": self.groups()}

    def groups(self) -> list[list[str]]:
        return [list(group) for group in self._node.realm.node_links.neighbourhood.groups]

    def _row(self, end: LinkEnd) -> dict[str, Any]:
        session, peer, dialer = end.session, end.peer, self.dialers.get(end.link.name)
        connected = session.connection is not None
        oldest = session.oldest
        dialed = {} if dialer is None else dialer.status()
        failover = dialed.get("failover")
        return {
            "link": end.link.name,
            "kind": "node" if end.link.broker is None else "broker",
            "direction": "connects" if end.link.via else "is connected to",
            "state": State.CONNECTED.value if connected else dialed.get("state", State.WAITING.value),
            "address": dialed.get("address") or (None if peer is None else peer.address),
            "level": None if peer is None else peer.level,
            "degraded": end.degraded or None,
            "queue": end.owed,
            "bytes": session.queued_bytes + session.flying,
            "oldest": None if oldest is None else round(max(0.0, time.time() - oldest), 3),
            "round_trip": dialed.get("round_trip"),
            "since": _moment(end.since if connected else session.ended),
            "error": dialed.get("error") or _refused(end),
            "standby": len(end.standbys),
            "switches": 0 if failover is None else dialer.switches,  # type: ignore[union-attr]
            "on_backup": failover is not None and connected and dialed.get("address") != failover["default"],
            "failover": failover,
        }


def certificates(config: Config) -> ssl.SSLContext:
    """What this node shows other nodes, and by which authorities it knows theirs; ConfigError if it cannot be read."""
    node = config.node
    if node.cert is None or node.ca is None:
        raise ConfigError("`node.cert` and `node.ca` are missing, which links to other nodes need")
    context = client_context(cert=node.cert, key=node.key or node.cert, ca=node.ca)
    context.check_hostname = False  # a node is known by the subject of its certificate, wherever it is
    return context


def end_certificates(config: Config, end: LinkEnd) -> ssl.SSLContext:
    """What this node shows whoever is at the other end of a link, and by which authorities it knows them."""
    broker, node = end.link.broker, config.node
    if broker is None:
        return certificates(config)
    return client_context(cert=node.cert, key=node.key, ca=None if broker.ca is None else Path(broker.ca))


def try_certificates(config: Config) -> None:
    """Those that the file names can be read: ConfigError if not."""
    if config.node.cert is not None and config.node.ca is not None:
        certificates(config)


def _refused(end: LinkEnd) -> str | None:
    """Of a foreign broker: what it does not let us have."""
    filters = ", ".join(end.refused_filters)
    return f"the broker refuses to send {filters}" if filters else None


def _shares(link: ScopeLink | None) -> list[dict[str, Any]]:
    shares = () if link is None else link.shares
    return [{"topic": each.here + each.filter, "there": each.there + each.filter, "qos": each.qos} for each in shares]


def _moment(wall: float | None) -> str | None:
    return None if wall is None else datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds")
