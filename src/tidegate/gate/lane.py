"""A lane: the plans of all sources that every stage decides alike, by topic."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tidegate.gate.plan import Plan
from tidegate.monitor import Attachment
from tidegate.session import Context, Subject
from tidegate.wire import Properties

NOWHERE = -1  # the version of a lane that nobody may take


class Lane:
    """The plans of sources that are decided alike, speak the same protocol version and send the same options."""

    __slots__ = (
        "__weakref__",
        "admitted",
        "context",
        "floor_properties",
        "holder",
        "key",
        "link",
        "monitors",
        "onward",
        "plans",
        "protocol",
        "ruled",
        "variants",
        "version",
        "writer",
    )

    def __init__(self, context: Context, link: str, protocol: int, floor_properties: Properties, version: int) -> None:
        self.version = version  # of the rules
        self.context = context  # of a representative: stages look only at what `cache_key` compares
        self.link = link
        self.protocol = protocol
        self.floor_properties = floor_properties
        self.monitors: tuple[Attachment, ...] = ()  # of the source link
        self.ruled = True  # the publisher has rules of its own; if not, none count, whoever represents the others
        self.writer: Subject | None = None  # the monitor or service that writes what takes this lane
        self.admitted = False  # its messages have passed the steps on the way in
        self.onward: dict[Hashable, Lane] | None = None  # the lanes of the same sources in other scopes, by link
        self.holder: dict[Any, Lane] | None = None  # the dict that has it under `key` while it has plans
        self.key: Hashable = None
        self.plans: dict[bytes, Plan] = {}
        self.variants: dict[Any, Lane] | None = None  # by the options of a message

    @property
    def entrance(self) -> bool:
        """Whether messages take it first, and not after they have crossed a link from another scope."""
        return not self.admitted or self.writer is not None
