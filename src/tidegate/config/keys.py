"""Topic keys, in the configuration: which topics are protected, how long keys last, and who keeps them.

What cannot be kept together with a key is refused: who has it sees everything that is sealed with it, and nobody else
on the way sees anything. So no view, no payload condition, and no condition on what differs from message to message
can hold for a protected topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from tidegate import policy, topics
from tidegate.config import files
from tidegate.config.policies import Filter
from tidegate.config.section import FilePath, Section
from tidegate.config.units import Count, Duration, refusal
from tidegate.gate.protection import of_each
from tidegate.keys import ROTATE, USES
from tidegate.keys.ring import GROUPS, MOST_USES
from tidegate.monitor.automaton import Automaton

if TYPE_CHECKING:
    from tidegate.config.checks import Finding
    from tidegate.config.model import Config
    from tidegate.monitor import Attachment
    from tidegate.monitor.machine import Machine

OVERLAP: Final = 3600.0
PORT: Final = 8450
_EXAMPLE: Final = "write for example `tls://127.0.0.1:8450`"
_YEAR: Final = 366 * 86400.0
_BETWEEN: Final = frozenset(("scope", "link"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsAddress:
    """Host and port of a service that speaks TLS."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tls://{host}:{self.port}"


def parse_tls(written: object) -> TlsAddress:
    """The address that a URL names, or a refusal that says what is wrong with it."""
    if isinstance(written, TlsAddress):
        return written
    if not isinstance(written, str):
        raise refusal(f"must be a URL; {_EXAMPLE}")
    try:
        parts = urlsplit(written)
        host, port = parts.hostname, parts.port
    except ValueError as broken:
        raise refusal(f"is not a URL ({broken}); {_EXAMPLE}") from None
    if parts.scheme != "tls" or not host or "@" in parts.netloc or parts.path not in ("", "/") or parts.query:
        raise refusal(f"must be tls://, a host and a port; {_EXAMPLE}")
    return TlsAddress(host=host, port=PORT if port is None else port)


TlsUrl = Annotated[
    TlsAddress,
    PlainValidator(parse_tls),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^tls://[^/\s]+/?$", "title": "URL"}),
]


class Ktm(Section):
    """The key service, if it is a process of its own (`tidegate ktm`)."""

    url: TlsUrl
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
    rotate: Duration = Field(default=ROTATE, ge=1, le=_YEAR)
    """How long a key encrypts new messages."""
    overlap: Duration = Field(default=OVERLAP, ge=0, le=_YEAR)
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


def unreadable_files(config: Config) -> Iterator[Finding]:
    """Files that cannot be read."""
    if config.keys.ktm is not None:
        yield from files.unreadable_files(config.keys.ktm, ("cert", "key", "ca"), "keys", "ktm")


def conflicts(
    config: Config,
    policies: Sequence[policy.Policy],
    preferences: Sequence[policy.Preference],
    views: Sequence[policy.Row],
    monitors: Sequence[Attachment],
) -> Iterator[Finding]:
    """What cannot hold for protected topics. The rules are those of the file, in its order."""
    filters = (*config.keys.protect, *config.keys.end_to_end)
    if not filters:
        return
    for index, one in enumerate(policies):
        hit = _hit(filters, "/".join(one.topic.levels))
        if hit is None or one.when is None:
            continue
        if policy.Action.READ in one.action:
            if path := of_each(one.when.reads):
                yield ("policies", index, "when"), _each(path, hit)
        elif _payload(one.when.reads) and any(term.sort in _BETWEEN for term in one.subject.terms):
            yield ("policies", index, "when"), _unseen(hit)
    for index, each in enumerate(preferences):
        hit = _hit(filters, each.topic)
        if hit is None:
            continue
        if not each.keep.shows_all:
            yield ("preferences", index, "keep"), f"cannot show parts of what `{hit}` protects; {_WHOLE}"
        if each.when is None:
            continue
        if each.to is not None and _payload(each.when.reads):
            yield ("preferences", index, "when"), _unseen(hit)
        elif each.to is None and (path := of_each(each.when.reads)):
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
    return (
        f"reads `{path}`, which differs from message to message; the key of what `{hit}` protects is for all of them:"
        " name other topics, or leave that out"
    )


def _unseen(hit: str) -> str:
    return f"reads the payload of what `{hit}` protects, which nobody can look into; name other topics"


def _hit(filters: Sequence[str], topic: str) -> str | None:
    return next((filter for filter in filters if topics.overlaps(filter, topic)), None)


def _payload(reads: frozenset[str]) -> bool:
    return any(path in ("o", "o.payload") or path.startswith("o.payload.") for path in reads)


def _heard(filters: Sequence[str], machine: Machine) -> str | None:
    """Which of the filters protects something that a machine reads the payload of."""
    if not isinstance(machine, Automaton):
        return next((filter for filter in filters if machine.hears(_some(filter))), None)
    asking = (
        topic
        for transitions in machine.states.values()
        for each in transitions
        if any(_payload(when.reads) for when in each.when)
        for topic in each.on
    )
    return next((hit for topic in asking if (hit := _hit(filters, topic)) is not None), None)


def _some(filter: str) -> str:
    """A topic that a filter matches."""
    return "/".join("x" if level in ("+", "#") else level for level in filter.split("/"))
