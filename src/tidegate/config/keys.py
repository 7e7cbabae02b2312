"""Topic keys, in the configuration: which topics are protected, how long keys last, and who keeps them.

Rules that contradict a key are refused. Whoever has the key sees everything that is sealed with it, and nobody else on
the way sees anything. So no view, no payload condition, and no condition on what differs from message to message can
hold for a protected topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pydantic import Field

from tidegate import policy, topics
from tidegate.config.address import TlsAddress
from tidegate.config.policies import Filter
from tidegate.config.problems import Finding
from tidegate.config.section import FilePath, Section
from tidegate.config.units import Count, Duration
from tidegate.gate.key_groups import of_each
from tidegate.keys import ROTATE, USES
from tidegate.keys.ring import GROUPS, MOST_USES
from tidegate.monitor.automaton import Automaton

if TYPE_CHECKING:
    from tidegate.config.model import Config
    from tidegate.monitor import Attachment
    from tidegate.monitor.machine import Machine

OVERLAP: Final = 3600.0
YEAR: Final = 366 * 86400.0
_BETWEEN: Final = frozenset(("scope", "link"))


class Ktm(Section):
    """The key service, if it is a process of its own (`tidegate ktm`)."""

    url: TlsAddress
    """`tls://`, host and port (default 8450)."""
    cert: FilePath
    """The node's certificate (PEM), by which the key service knows it."""
    key: FilePath | None = None
    """Its private key (PEM). Default: the one in the file of the certificate."""
    ca: FilePath
    """Certificates (PEM) of the authorities, one of which must have signed that of the key service."""


class Keys(Section):
    """Topic keys: what is encrypted, and for how long one key does."""

    protect: tuple[Filter, ...] = ()
    """Topic filters: what is published there is encrypted before it is stored, recorded or delivered. Who may read a
    topic is given its key."""
    end_to_end: tuple[Filter, ...] = ()
    """Topic filters: what is published there comes encrypted by its publisher, or is denied. The node does not see what
    is in it."""
    rotate: Duration = Field(default=ROTATE, ge=1, le=YEAR)
    """How long a key encrypts new messages."""
    overlap: Duration = Field(default=OVERLAP, ge=0, le=YEAR)
    """For how long after that a key is still given to those who may read: as long as messages may wait in queues, or be
    kept as retained ones."""
    uses: Count = Field(default=USES, ge=1, le=MOST_USES)
    """How many messages a key encrypts at most."""
    groups: Count = Field(default=GROUPS, ge=1, le=1 << 20)
    """For how many sorts of messages there are keys at a time. With more, those that were not used longest are
    forgotten."""
    ktm: Ktm | None = None
    """Where keys are kept and shared with other nodes. Default: in this node, and in `store` if that is PostgreSQL."""

    @property
    def any(self) -> bool:
        return bool(self.protect or self.end_to_end)


def conflicts(
    config: Config,
    policies: Sequence[policy.Policy],
    preferences: Sequence[policy.Preference],
    views: Sequence[policy.Row],
    monitors: Sequence[Attachment],
) -> Iterator[Finding]:
    """Rules that cannot hold for protected topics. They are those of the file, in its order."""
    filters = (*config.keys.protect, *config.keys.end_to_end)
    if not filters:
        return
    for index, rule in enumerate(policies):
        hit = _hit(filters, "/".join(rule.topic.levels))
        if hit is None or rule.when is None:
            continue
        if policy.Action.READ in rule.action:
            if path := of_each(rule.when.reads):
                yield ("policies", index, "when"), _each(path, hit)
        elif _payload(rule.when.reads) and any(term.sort in _BETWEEN for term in rule.subject.terms):
            yield ("policies", index, "when"), _unseen(hit)
    for index, preference in enumerate(preferences):
        hit = _hit(filters, preference.topic)
        if hit is None:
            continue
        if not preference.keep.shows_all:
            yield ("preferences", index, "keep"), f"cannot show parts of what `{hit}` protects; {_WHOLE}"
        reads = frozenset[str]() if preference.when is None else preference.when.reads
        if preference.to is not None and _payload(reads):
            yield ("preferences", index, "when"), _unseen(hit)
        elif preference.to is None and (path := of_each(reads)):
            yield ("preferences", index, "when"), _each(path, hit)
    for index, row in enumerate(views):
        if hit := _hit(filters, row.topic):
            yield ("views", index, "topic"), f"speaks of what `{hit}` protects, which nobody can look into; {_WHOLE}"
    for index, written in enumerate(config.monitors):
        if not _payload(monitors[index].monitor.reads):
            continue
        leaves = written.direction is not None and written.direction.value != "im_pub"
        joins = written.link is not None and written.link.partition("->")[0].strip() in config.scopes
        hit = _heard(filters, monitors[index].monitor)
        if hit and (leaves or joins):
            yield ("monitors", index), f"reads the payload of what `{hit}` protects, after it was sealed; {_NARROW}"


_WHOLE: Final = "who has the key reads it whole: remove it, or do not protect that topic"
_NARROW: Final = "name other topics, or let it act where clients publish (`im_pub`)"


def _each(path: str, hit: str) -> str:
    why = f"the key of what `{hit}` protects is for all of them: name other topics, or leave that out"
    return f"reads `{path}`, which differs from message to message; {why}"


def _unseen(hit: str) -> str:
    return f"reads the payload of what `{hit}` protects, which nobody can look into; name other topics"


def _hit(filters: Sequence[str], topic: str) -> str | None:
    return next((filter for filter in filters if topics.overlaps(filter, topic)), None)


def _payload(reads: frozenset[str]) -> bool:
    return any(path in ("o", "o.payload") or path.startswith("o.payload.") for path in reads)


def _heard(filters: Sequence[str], machine: Machine) -> str | None:
    """The filter that protects something whose payload a machine reads."""
    if not isinstance(machine, Automaton):
        samples = {filter: re.sub("[+#]", "x", filter) for filter in filters}
        return next((filter for filter, topic in samples.items() if machine.hears(topic)), None)
    asking = (
        topic
        for transitions in machine.states.values()
        for each in transitions
        if any(_payload(when.reads) for when in each.when)
        for topic in each.on
    )
    return next((hit for topic in asking if (hit := _hit(filters, topic)) is not None), None)
