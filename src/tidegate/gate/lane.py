"""A lane: the plans of all sources that every stage decides alike, by topic."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from tidegate.bounded import Bounded
from tidegate.gate.plan import Plan
from tidegate.monitor import Attachment
from tidegate.session import Context, NodeLinkEnd, Subject
from tidegate.wire import Properties

NOWHERE = -1  # the version of a lane that nobody may take


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Lane:
    """The plans of sources that are decided alike, speak the same protocol version and send the same options."""

    context: Context  # of a representative: stages look only at what `cache_key` compares
    link: str
    protocol: int
    floor_properties: Properties
    version: int  # of the rules
    monitors: tuple[Attachment, ...] = ()  # of the source link
    ruled: bool = True  # the publisher has rules of its own; if not, none count, whoever represents the others
    writer: Subject | None = None  # the monitor or service that writes what takes this lane
    cost: int = 0  # what each plan counts for because the lane is large, and is kept with it
    importer: NodeLinkEnd | None = None  # the link from another node that its messages come over
    admitted: bool = False  # its messages have passed the steps on the way in
    onward: dict[Hashable, Lane] | None = None  # the lanes of the same sources in other scopes, by link
    own: bool = False  # one source alone takes it, so that what its plans count is what that one sent
    shared: Lane | None = None  # of an own lane: that of all sources which are decided alike
    samples: Bounded[bytes, Lane] | None = None  # of a shared lane and its own ones: by topic, one of these that has it
    holder: dict[Any, Lane] | None = None  # the dict that has it under `key` while it has plans
    key: Hashable = None
    shadow: Lane | None = None  # where the shadow of the scope has its plans, which decide and are not obeyed
    plans: dict[bytes, Plan] = field(default_factory=dict)
    variants: dict[Any, Lane] | None = None  # by the options of a message

    @property
    def entrance(self) -> bool:
        """Whether messages take it first, and not after they have crossed a link from another scope."""
        return not self.admitted or self.writer is not None
