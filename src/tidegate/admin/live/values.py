"""What is retained, as a delivery to a person: steps 6 to 11 of the path, over the connection of their browser.

Nobody sees a value here who would not be sent it as a client. What somebody is shown is audited like a delivery to them
(`read`), and so is what they are denied; their monitors see it. What somebody else *would* be sent is decided by the
same steps up to 10, for people who ask about their own data: nothing is sent then, and nothing audited.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final, Protocol

from tidegate.admin.http_subjects import HttpNode, http_subject
from tidegate.admin.live.commands import ReadTopic
from tidegate.audit.auditor import Auditor
from tidegate.bounded import Bounded
from tidegate.errors import Problem
from tidegate.gate import Deny, Step
from tidegate.net.control_command import typed
from tidegate.net.control_socket import Command
from tidegate.scope import Scope
from tidegate.session import Delivery, Grant, Message, Session, Site
from tidegate.store.journal.rows import Kind
from tidegate.wire import Subscription

CLIENT: Final = ""
"""They have no client of their own; one of the directory would have attributes that a browser has not proved."""
LOOPBACK: Final = "127.0.0.1"
SHOWN: Final = 64 << 10
"""Bytes of one payload that are told."""
SESSIONS: Final = 1000
_Key = tuple[str, str, str, str, str]


class ViewingNode(HttpNode, Protocol):
    """What is needed of a node."""

    scopes: dict[str, Scope]
    site: Site
    audit: Auditor

    async def stored(self) -> None:
        """Until everything noted so far is on the disk."""


class Values:
    """Retained messages as people would be sent them."""

    def __init__(self, node: ViewingNode) -> None:
        self._node = node
        self._sessions: Bounded[_Key, Session] = Bounded(SESSIONS)

    def commands(self) -> dict[str, Command]:
        return dict((typed(ReadTopic, self.read),))

    async def read(self, command: ReadTopic) -> dict[str, Any]:
        """In each scope where there is one: what they are sent, or the step and the rule that deny it."""
        node, topic = self._node, command.topic
        names = list(node.scopes) if command.scope is None else [command.scope]
        node.site.open()
        values = []
        for scope in (node.scopes[name] for name in names if name in node.scopes):
            message = scope.retained.get(topic)
            if message is not None and (message.expires is None or message.expires > node.site.now):
                values.append({"scope": scope.name, **self._read(scope, message, command)})
        await node.stored()
        return {"topic": topic, "user": command.user, "values": values}

    def _read(self, scope: Scope, message: Message, command: ReadTopic) -> dict[str, Any]:
        try:
            session = self.session(scope, command.user, command.identity, command.address, command.level)
        except Problem as problem:
            return {"denied": {"step": "connect", "rule": str(problem)}}
        verdict = scope.gate.stored.over(session.outward, message)
        if isinstance(verdict, Deny):
            scope.report("read", session.outward, message.topic, verdict, message.context, message)
            return {"denied": {"step": verdict.step.value, "rule": verdict.rule}}
        states = scope.path.monitoring.states
        session.leaving = states.chain(scope.gate.monitors(session.outward), session.outward, session.principal)
        try:
            sent = scope.path.egress.monitored(session, Delivery(message, message.qos, True), verdict)
        finally:
            states.parted(session.leaving)
            session.leaving = ()
        shown = [scope.gate.stored.over(session.outward, each) if each is not verdict else each for _, each in sent]
        rows = [told(each) for each in shown if isinstance(each, Message)]
        if not rows:
            return {"denied": {"step": Step.MONITOR_OUT.value, "rule": ""}}
        audit = self._node.audit
        publishers = scope.gate.attributes.context(message).publishers
        about = {"action": "read", "topic": message.topic, "publisher": publishers or None, "count": len(rows)}
        audit.sink.write(audit.log.row(Kind.ALLOWED, session.outward, **about, detail="shown in the console"))
        return {"sent": rows}

    def would_be_sent(self, scope: Scope, user: str, message: Message, level: str) -> dict[str, Any] | None:
        """A message as somebody would be sent it now who comes over such a connection; None: not at all."""
        try:
            session = self.session(scope, user, self._node.identities.owner(user), LOOPBACK, level)
        except Problem:
            return None
        shown = scope.gate.stored.over(session.outward, message)
        return None if isinstance(shown, Deny) else told(shown)

    def session(self, scope: Scope, user: str, identity: str, address: str, level: str) -> Session:
        """Theirs in a scope, over HTTP: it stands in no list, and nothing is queued for it."""
        node, key = self._node, (scope.name, user, identity, address, level)
        session = self._sessions.get(key)
        if session is not None and session.generation == node.site.generation:
            return session
        front = scope.subjects.front
        if not any(each.scope == front for each in node.config.listeners):
            raise Problem(f"nobody connects to the scope {scope.name}", problem="denied")
        if user not in node.config.directory.users or node.identities.owner(user) != identity:
            raise Problem("only people of the directory of this node are sent anything here", problem="denied")
        there, subject = http_subject(node, user, client=CLIENT, address=address, level=level, at=front)
        if there is not scope:
            raise Problem(f"{user} is in the scope {there.name}", problem="denied")
        session = scope.session(f"user:{user}", CLIENT, subject)
        node.site.accounts.settle(session.usage)  # it holds nothing
        session.identify(subject, None, b"", scope.gate.rules.brokering.types(subject))
        session.generation = node.site.generation
        session.subscriptions = {"#": Grant(session, Subscription(filter="#", qos=2), 2, None)}
        self._sessions[key] = session
        return session


def told(message: Message) -> dict[str, Any]:
    """A message as it is sent to somebody, with the beginning of its payload."""
    return {
        "topic": message.topic,
        "payload": b64encode(message.payload[:SHOWN]).decode(),
        "bytes": len(message.payload),
        "qos": message.qos,
        "published": message.published,
    }
