"""Retained messages: kept by topic, within limits, and sent to whoever subscribes.

A look-up with wildcards may visit every retained topic, and a client may ask for thousands of them at once. So
what one session asked for is one piece of work, sent as fast as the client takes it; each message is looked up and
decided when it is its turn. A turn spends at most `WALK` visits, unless one filter alone costs more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush

from tidegate.gate import Deny, Step
from tidegate.policy.brokering import SEVERAL, came_over
from tidegate.routing import TopicTree
from tidegate.routing.topic_names import TopicNames
from tidegate.session import Connection, Context, Grant, Message, Session, Site
from tidegate.wire import Reason

PIECE = 100  # messages sent per turn to one subscriber; each is decided, which takes some 20 µs
PIECE_BYTES = 256 * 1024  # and bytes of them: what does not fit its socket waits here, not in its outbox
PIECE_EFFORT = 400  # and microseconds: a subscription may have a condition, and a message may be decided by many
WALK = 20_000  # topics looked at per turn

Send = Callable[[Session, Grant, Message], None]
Choice = Callable[[Message], bool]
"""Which of the messages that match are sent."""


class Retained:
    """The retained messages of a scope."""

    def __init__(self, site: Site, send: Send, owner: Callable[[Message], str | None], scope: str) -> None:
        """`owner`: whom a message counts for; None: the node itself."""
        self.bytes = 0
        self._owner = owner
        self._site = site
        self._send = send
        self._scope = scope
        self._tree: TopicTree[Message] = TopicTree()
        self.names = TopicNames()
        self._expiring: list[tuple[float, str]] = []  # by when they expire
        self._replays: dict[Session, Replay] = {}
        self._walked = 0
        self._walked_at = -1.0

    def __len__(self) -> int:
        return len(self._tree)

    def get(self, topic: str) -> Message | None:
        return self._tree.get(topic)

    def holds(self, topic: str, message: Message) -> bool:
        """Whether it is this message that is kept under a topic."""
        kept = self._tree.get(topic)
        return kept is not None and (kept.origin.key, kept.number, kept.output) == (
            message.origin.key,
            message.number,
            message.output,
        )

    def refusal(self, message: Message) -> Deny | None:
        """Why it cannot be kept, if it should be. It may be delivered all the same."""
        if not message.retain or not message.payload or not self._over(message):
            return None
        self._expire(100)
        bound = self._over(message)
        if not bound:
            return None
        self._site.accounts.reached["retained_bytes" if bound.endswith("bytes") else "retained"] += 1
        return Deny(step=Step.WRITE, rule=bound, reason=Reason.QUOTA_EXCEEDED)

    def _over(self, message: Message) -> str:
        """The bound that it would break; empty if none."""
        limits, accounts = self._site.limits, self._site.accounts
        old = self._tree.get(message.topic)
        new, size = int(old is None), message.size
        more = size - (0 if old is None else old.size)
        if len(self._tree) + new > limits.retained:
            return "limits.retained"
        if self.bytes + more > limits.retained_bytes:
            return "limits.retained_bytes"
        owner = self._owner(message)
        if owner is None:
            return ""
        if accounts.node.retained + new > limits.node.retained:
            return "limits.node.retained"
        if accounts.node.retained_bytes + more > limits.node.retained_bytes:
            return "limits.node.retained_bytes"
        if old is not None and self._owner(old) != owner:
            new, more = 1, size  # it was somebody else's
        usage = accounts.seen(owner)
        if usage.retained + new > limits.user.retained:
            return "limits.user.retained"
        return "limits.user.retained_bytes" if usage.retained_bytes + more > limits.user.retained_bytes else ""

    def _count(self, message: Message, number: int) -> None:
        """One more of its owner is kept, or one fewer."""
        size = number * message.size
        self.bytes += size
        owner, accounts = self._owner(message), self._site.accounts
        if owner is not None:
            usage = accounts.of(owner)
            accounts.add(usage, "retained", number)
            accounts.add(usage, "retained_bytes", size)
            accounts.settle(usage)

    def keep(self, message: Message) -> None:
        """Sets it, or with an empty payload clears its topic [MQTT-3.3.1-6]."""
        self._expire(2)  # more than can come with one message, so they do not pile up
        topic = message.topic
        store = self._site.store
        lasting = not topic.startswith("$SYS/")  # statistics are made anew after a restart
        if message.payload:
            self.restore(message)
            if lasting:
                store.retain(self._scope, topic, message)
        elif self._pop(topic) and lasting:
            store.retain(self._scope, topic, None)

    def drop(self, topic: str) -> None:
        """Lets go of what is kept for a topic."""
        if self._pop(topic):
            self._site.store.retain(self._scope, topic, None)

    def came_over(self, message: Message) -> None:
        """The message that is kept has come over another link, too: it keeps the types of both."""
        kept = self._tree.get(message.topic)
        if kept is None or not self.holds(message.topic, message):
            return
        types = came_over(kept.link)
        if message.link in types or kept.payload != message.payload or _whose(kept) != _whose(message):
            return  # it is not the same on both ways: what has come first is kept
        link = SEVERAL.join((*types, message.link))
        self.keep(kept.across(kept.topic, kept.qos, kept.context, link, kept.properties))

    def restore(self, message: Message) -> None:
        old = self._tree.get(message.topic)
        self._count(message, 1)
        if old is not None:
            self._count(old, -1)
        else:
            self.names.add(message.topic)
        self._tree.set(message.topic, message)
        if message.expires is None:
            return
        expiring = self._expiring
        heappush(expiring, (message.expires, message.topic))
        if len(expiring) > 2 * len(self._tree) + 1024:  # most of them were replaced since
            expiring[:] = [(m.expires, t) for t, m in self._tree.items() if m.expires is not None]
            heapify(expiring)

    def _expire(self, most: int) -> None:
        """What has expired goes, a few at a time."""
        now = self._site.now
        while most and self._expiring and self._expiring[0][0] <= now:
            most -= 1
            topic = heappop(self._expiring)[1]
            message = self._tree.get(topic)
            if message is not None and message.expires is not None and message.expires <= now and self._pop(topic):
                self._site.store.retain(self._scope, topic, None)

    def _pop(self, topic: str) -> bool:
        old = self._tree.pop(topic)
        if old is None:
            return False
        self.names.remove(topic)
        self._count(old, -1)
        return True

    def replay(
        self,
        session: Session,
        connection: Connection,
        granted: list[Grant],
        choice: Choice | None = None,
        then: Callable[[], bool] | None = None,
    ) -> None:
        """Sends what matches these subscriptions, now or in pieces; with a `choice`, only what that chooses.

        `then` is called when all of it has been handed to the session, and again as long as it says so.
        """
        if not granted or not len(self._tree):
            if then is not None and then():
                self._site.unfinished.append(then)
            return
        known = self._replays.get(session)
        if known is not None and known.connection is connection:
            known.wanted.extend((grant, choice) for grant in granted)
            known.then = then or known.then
            return
        replay = self._replays[session] = Replay(self, session, connection, [(grant, choice) for grant in granted])
        replay.then = then
        if replay.piece():
            self._site.unfinished.append(replay.piece)

    def forget(self, replay: Replay) -> bool:
        """It is done."""
        if self._replays.get(replay.session) is replay:
            del self._replays[replay.session]
        if replay.then is not None and replay.session.connection is replay.connection and replay.then():
            self._site.unfinished.append(replay.then)
        return False

    def may_walk(self, filter: str) -> bool:
        """Whether this turn has room for a look-up; takes it if so."""
        cost = len(self._tree) if "+" in filter or "#" in filter else 1
        if self._walked_at != self._site.now:
            self._walked_at = self._site.now
            self._walked = 0
        if self._walked and self._walked + cost > WALK:
            return False
        self._walked += cost
        return True

    def matching(self, filter: str) -> Iterator[tuple[str, Message]]:
        return self._tree.iterate(filter)

    def send(self, session: Session, grant: Grant, message: Message) -> None:
        if message.expires is not None and message.expires <= self._site.now:
            self._pop(message.topic)
            self._site.store.retain(self._scope, message.topic, None)
        else:
            self._send(session, grant, message)


def _whose(message: Message) -> bytes:
    """Its context, whatever QoS links have left it, whether or not they have renamed it and back, and whichever way it
    has come through other nodes."""
    context = Context.decode(message.context).called(message.topic)
    return replace(context, qos=None, path=(), attested=b"").encode()


class Replay:
    """What one connection asked for and has not been sent yet."""

    __slots__ = ("choice", "connection", "found", "grant", "retained", "session", "then", "wanted")

    def __init__(
        self,
        retained: Retained,
        session: Session,
        connection: Connection,
        granted: list[tuple[Grant, Choice | None]],
    ) -> None:
        self.retained = retained
        self.session = session
        self.connection = connection
        self.wanted = deque(granted)
        self.grant: Grant | None = None
        self.choice: Choice | None = None
        self.found: Iterator[tuple[str, Message]] = iter(())
        self.then: Callable[[], bool] | None = None

    def piece(self) -> bool:
        """A share of the work; True if there is more."""
        retained = self.retained
        session = self.session
        if session.connection is not self.connection:
            return retained.forget(self)
        if session.shut or session.queued > PIECE:
            return True  # wait until it has read some
        sent = size = 0
        site = session.site
        before = site.effort
        while True:
            if self.grant is None:
                if not self.wanted:
                    return retained.forget(self)
                if not retained.may_walk(self.wanted[0][0].filter):
                    return True
                self.grant, self.choice = self.wanted.popleft()
                self.found = retained.matching(self.grant.filter)
            if (session.subscriptions or {}).get(self.grant.filter) is not self.grant:
                self.grant = None  # unsubscribed, or subscribed anew: that one is still to come
                continue
            entry = next(self.found, None)
            if entry is None:
                self.grant = None
                continue
            message = entry[1]
            if self.choice is None or self.choice(message):
                retained.send(session, self.grant, message)
            sent += 1
            size += message.size
            if sent == PIECE or size > PIECE_BYTES or site.effort - before > PIECE_EFFORT:
                return True
