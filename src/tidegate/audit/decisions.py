"""Decisions as rows: the first of its kind is written at once, repeats are counted and written as one row at a flush.

A denial is of the same kind as another if link, publisher, action, topic, stage, rule and version are the same. See
`rate_limit` for the limits.

- A denial because a condition failed is one row of kind `deny` whose `detail` is the error; kind `error` is for
  conditions that failed and counted as false, which by itself denies nothing.
- A refused connection is a denial by the rule `connect`, by a capability, or by a bound. Whoever is refused may choose
  any name, so rows are limited by address as well: what exceeds it is one row per address, rule and flush.
- Denials are counted by stage and rule, for as many rules as `SERIES`; the others together (`OTHERS`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import structlog

from tidegate.addresses import network
from tidegate.audit.rate_limit import RateLimit
from tidegate.bounded import Newest
from tidegate.gate import Deny, Step
from tidegate.session import Bucket, Link, Message, NodeLinkEnd, Site
from tidegate.store.journal.rows import AuditRow, Kind
from tidegate.wire import Reason

LONG = 1000  # characters of a text in a row; clients choose how long these are:
CHOSEN_BY_CLIENTS = frozenset({"link", "user", "client", "topic", "detail", "publisher"})
CONNECT = "connect"
PROTOCOL = "protocol"  # somebody does not speak MQTT

log = structlog.get_logger("tidegate.audit")
SERIES = 200  # pairs of a stage and a rule that are counted by themselves: clients choose the names of some rules
OF_PUBLISHERS = "rule:*"
OTHERS = "others"
ADDRESSES = 10_000  # whose refused connections are limited; the least recently seen are forgotten
BURST = 10.0  # seconds of the rate of an address that may come at once


class DecisionLog:
    """Makes the rows and keeps them within the limits. `version` is that of the rules in force."""

    def __init__(self, write: Callable[[AuditRow], None], site: Site, *, node: str, rate: float) -> None:
        self.version = ""
        self.records_allowed = False  # whether what was allowed is written, too
        self.denials = RateLimit(write, node=node, rate=rate)
        self._allowed = RateLimit(write, node=node)
        self.address_rate = 1.0  # refused connections of one address a second that are written in full
        self.addresses: Newest[str, Bucket] = Newest(ADDRESSES)
        self.unwritten = 0  # refused connections that exceeded it
        self.by_rule: dict[tuple[str, str], int] = {}  # denials by stage and rule
        self.shadowed: dict[tuple[str, str], int] = {}  # and what would be denied, where that is not enforced
        self._site = site
        self._node = node

    def row(self, kind: Kind, link: Link | None = None, **columns: Any) -> AuditRow:
        """A row of this moment with these columns of `AuditRow`; the link says which user and client."""
        if link is not None:
            columns |= {"link": str(link), "user": link.subject.user, "client": link.subject.client}
        for name in CHOSEN_BY_CLIENTS & columns.keys():
            if (text := columns[name]) is not None and len(text) > LONG:
                columns[name] = f"{text[: LONG - 1]}…"
        return AuditRow(self._site.wall, self._node, kind.value, **{"policy_version": self.version, **columns})

    # -- denials ---------------------------------------------------------------------------------------------------

    def denied(
        self,
        action: str,
        link: Link,
        topic: str,
        why: Deny,
        publishers: str | None = None,
        times: int = 1,
        version: str = "",
        message: Message | None = None,
        shadow: bool = False,
    ) -> None:
        # hot: a repeated denial is one lookup and one increment
        subject = link.subject
        stage = why.step._value_  # the hash of an Enum is computed in Python, that of its value is not
        version = version or self.version
        self._count(self.shadowed if shadow else self.by_rule, stage, why.rule, times)
        who = (subject.client, subject.user, subject.scope, subject.kind)
        detail = why.error or why.detail
        if publishers is None and action == "write":
            publishers = subject.full_name
        key = (*who, publishers, action, topic, why.rule, stage, detail, version, shadow)
        if not self.denials.again(key, times):
            if message is not None and (isinstance(link, NodeLinkEnd) or message.origin.node != self._site.origin.node):
                detail = f"{detail}; message {message.id}" if detail else f"message {message.id}"  # as at the other end
            kind = Kind.SHADOW if shadow else Kind.DENY
            self._first(key, kind, link, action, topic, stage, why.rule, detail, times, version, publishers)

    def failed(self, link: Link, topic: str, errors: Iterable[tuple[str, str]]) -> None:
        subject = link.subject
        for rule, text in errors:
            key = ("error", subject.client, subject.user, subject.scope, subject.kind, topic, rule, self.version)
            if not self.denials.again(key):
                self._first(key, Kind.ERROR, link, "read", topic, Step.READ.value, rule, text, 1, self.version)

    def _first(
        self,
        key: Hashable,
        kind: Kind,
        link: Link,
        action: str,
        topic: str,
        stage: str,
        rule: str,
        detail: str,
        times: int,
        version: str,
        publishers: str | None = None,
    ) -> None:
        if self.denials.admits(self._site.now, kind.value, rule, action, stage, version, times):
            columns = {"action": action, "topic": topic, "stage": stage, "rule": rule, "detail": detail or None}
            row = self.row(kind, link, **columns, policy_version=version, count=times, publisher=publishers)
            weight = len(topic) + len(link.subject.client) + len(link.subject.user or "") + len(publishers or "")
            self.denials.first(key, row, weight=weight)

    def _count(self, by_rule: dict[tuple[str, str], int], stage: str, rule: str, times: int) -> None:
        # those of publishers are one: they choose the names, and who reads metrics is not to learn who has some
        key = (stage, OF_PUBLISHERS if rule.startswith("rule:") else rule)
        if key not in by_rule and len(by_rule) >= SERIES:
            key = (stage, OTHERS)
        by_rule[key] = by_rule.get(key, 0) + times

    def refused(self, address: str, client: str, user: str | None, reason: int, text: str, rule: str = CONNECT) -> None:
        self._count(self.by_rule, CONNECT, rule, 1)
        key = (CONNECT, address, client, user, reason, rule, text, self.version)
        if self.denials.again(key):
            return
        if not self._affords(address):
            self._summarise(address, rule)
        elif self.denials.admits(self._site.now, Kind.DENY.value, rule, CONNECT, CONNECT, self.version):
            detail = f"{text or reason_text(reason)}, from {address}"
            row = self.row(Kind.DENY, user=user, client=client, action=CONNECT, stage=CONNECT, rule=rule, detail=detail)
            self.denials.first(key, row, weight=len(client) + len(user or ""))
            if rule == PROTOCOL:
                log.warning("not MQTT", reason=text, address=address)

    def _affords(self, address: str) -> bool:
        """Whether one more refused connection from an address is written in full."""
        source, now = network(address), self._site.now
        bucket = self.addresses.get(source)
        if bucket is None or bucket.rate != self.address_rate:
            bucket = self.addresses[source] = Bucket(self.address_rate, max(self.address_rate * BURST, 1.0), now)
        self.addresses.move_to_end(source)
        return bucket.afford(now)

    def _summarise(self, address: str, rule: str) -> None:
        self.unwritten += 1
        source = network(address)
        key = (CONNECT, source, rule, self.version)
        if not self.denials.again(key):
            detail = f"more refused connections, from {source}"
            row = self.row(Kind.DENY, action=CONNECT, stage=CONNECT, rule=rule, detail=detail, count=1)
            self.denials.quietly(key, row)

    # -- what was allowed, and what happened -----------------------------------------------------------------------

    def delivered(self, link: Link, topic: str, publishers: str, times: int = 1, version: str = "") -> None:
        """Counts messages that were passed on to a receiver."""
        subject, version = link.subject, version or self.version
        key = (publishers, subject.client, subject.user, subject.scope, topic, version)
        if not self._allowed.again(key, times):
            columns = {"action": "read", "topic": topic, "publisher": publishers or None}
            row = self.row(Kind.ALLOWED, link, **columns, policy_version=version, count=times)
            self._allowed.quietly(key, row, weight=len(topic) + len(subject.client) + len(publishers))

    def allowed(self, link: Link, action: str, topic: str, detail: str | None = None) -> None:
        row = self.row(Kind.ALLOWED, link, action=action, topic=topic, detail=detail)
        key = row[3:]
        if not self._allowed.again(key):
            self._allowed.first(key, row, weight=len(row.topic or "") + len(row.client or ""))

    def happened(self, row: AuditRow) -> None:
        """Writes an event that is not counted, within the limits of its rule."""
        self.denials.once(row, self._site.now)

    def flush(self) -> Iterator[None]:
        """Writes everything that was only counted, in pieces."""
        for rate_limit in (self.denials, self._allowed):
            yield from rate_limit.flush(lambda: self._site.wall)


def reason_text(code: int) -> str:
    match code:
        case Reason.SUCCESS:
            return "the client left"
        case Reason.UNSPECIFIED_ERROR:
            return "connection lost"
        case _:
            return f"{Reason(code).name.lower().replace('_', ' ')} (0x{code:02x})"
