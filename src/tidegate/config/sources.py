"""Sources that send data over HTTP: who may register, who may send, and where what they send goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field

from tidegate import topics
from tidegate.config.problems import Finding, refusal
from tidegate.config.section import Section
from tidegate.config.units import Count, Duration, Size

if TYPE_CHECKING:
    from tidegate.config.model import Config

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_KNOWN: Final = ("type", "source")


def _topic(written: str) -> str:
    for name in _PLACEHOLDER.findall(written):
        if name not in _KNOWN:
            raise refusal(f"has `{{{name}}}`; write `{{type}}` for the NodeType, `{{source}}` for the NodeId")
    sample = _PLACEHOLDER.sub("x", written)
    if "{" in sample or "}" in sample:
        raise refusal("has a single brace; write for example `raw/{type}/{source}`")
    if not topics.valid_topic(sample) or written.startswith(("$", "{")):
        raise refusal("must be a topic that begins with a name; write for example `raw/{type}/{source}`")
    return written


class Registration(StrEnum):
    """Who may register a source that is not known yet."""

    ADMIN = "admin"
    OPEN = "open"


class Unregistered(StrEnum):
    """What becomes of data without a token."""

    REFUSE = "refuse"
    ACCEPT = "accept"


class Ingest(Section):
    """The record of what sources have sent, from which it is worked on."""

    keep: Duration = Field(default=7 * 86400.0, gt=0)
    """How long it is kept."""
    size: Size = Field(default=10 << 30, ge=1 << 20)
    """How large it may become; the oldest records go first."""


class Sources(Section):
    """Sources that register and send data over HTTP."""

    registration: Registration = Registration.ADMIN
    """Who may register a source: `admin`: administrators. `open`: everybody who reaches the address, a few at a time.
    A source that is registered may always renew its own credentials."""
    most: Count = Field(default=2000, ge=1, le=1_000_000)
    """Sources at a time that have registered without an administrator; further ones are refused with 507."""
    unregistered: Unregistered = Unregistered.REFUSE
    """Whether data without a token is taken: `refuse`, or `accept`, and marked as such."""
    topic: Annotated[str, AfterValidator(_topic)] | None = None
    """Where each record is published as it came, such as `raw/{type}/{source}`, if the policies let its source write
    there; what they deny is refused. Default: it is only recorded."""
    max_records: Count = Field(default=10_000, ge=1, le=100_000)
    """Records in one request."""
    max_expanded: Size = Field(default=8 << 20, ge=1 << 10, le=64 << 20)
    """Largest request after it was decompressed."""
    ingest: Ingest = Field(default_factory=Ingest)
    """The record of what sources have sent."""


def problems(config: Config) -> Iterator[Finding]:
    """Settings for sources that no interface can use."""
    if not config.administered and config.pipeline is None and "sources" in config.model_fields_set:
        yield ("sources",), "has no effect without `http` or `pipeline`; add one, or remove it"


def warnings(config: Config) -> Iterator[Finding]:
    """Interfaces that are open to the whole network."""
    if config.http is None or config.http.url.loopback:
        return
    if config.sources.unregistered is Unregistered.ACCEPT:
        yield ("sources", "unregistered"), "lets everybody who reaches the address send data; use `refuse`"
    if config.sources.registration is Registration.OPEN:
        yield ("sources", "registration"), "lets everybody who reaches the address register; use `admin`"
