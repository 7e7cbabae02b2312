"""The control commands about somebody's own data. `user` and `identity` are those of the caller (`permissions`)."""

from __future__ import annotations

from typing import Annotated, Final

from annotated_types import Ge, Le, Len
from pydantic import Strict

from tidegate.net.control_command import ControlCommand, Counter, Flag, Seconds, SignedCommand, Text, command

READING: Final = 20.0  # seconds that reading the lake may take
MOST: Final = 1000
"""Entries of one answer."""
Limit = Annotated[int, Strict(), Ge(1), Le(MOST)]


@command("me_readers")
class ListReaders(ControlCommand):
    """Who can read a topic of theirs; `client`: as published by that client; `device`: by that device or source."""

    user: Text
    identity: str
    topic: Text
    client: Text | None = None
    device: Text | None = None


@command("me_deliveries")
class ListDeliveries(ControlCommand):
    """Who has received what of theirs, by reader and topic; `topic` is a filter."""

    user: Text
    identity: str
    since: Seconds | None = None
    until: Seconds | None = None
    topic: Text | None = None
    limit: Limit = 100
    single: Flag = False
    """Each row as it was written down, instead of sums."""


@command("me_history")
class GetOwnHistory(ControlCommand):
    """What their preferences were, the newest change first."""

    user: Text
    identity: str
    limit: Limit = 100


@command("me_retained")
class ListOwnRetained(ControlCommand):
    """The topics under which something of theirs is retained; the first ones."""

    user: Text
    identity: str
    limit: Limit = 100


@command("me_shown")
class ShowOwn(ControlCommand):
    """The newest message that is retained of theirs under some topics, and what of it these people would be sent."""

    user: Text
    identity: str
    topics: Annotated[tuple[Text, ...], Len(0, 50)] = ()
    readers: Annotated[tuple[Text, ...], Len(0, 50)] = ()
    level: Text = "plain"


@command("me_export")
class ExportOwn(ControlCommand):
    """Everything that the node has of them."""

    user: Text
    identity: str


@command("me_notices")
class ListNotices(ControlCommand):
    """What they were told when somebody new could read a topic of theirs, the newest first."""

    user: Text
    identity: str
    limit: Limit = 100


@command("me_notices_follow")
class FollowNotices(ControlCommand):
    """Notices as they come; with `since`, first those after that number."""

    user: Text
    identity: str
    since: Counter | None = None


@command("me_erase")
class EraseOwn(ControlCommand):
    """What is theirs shall go. `signed_in`: when they have signed in with a password, if they have."""

    user: Text
    identity: str
    password: Text | None = None
    signed_in: Seconds | None = None
    address: Text = "unknown"
    why: str = ""


@command("me_erasures")
class ListOwnErasures(ControlCommand):
    """What they have asked to be erased, and the receipts; the newest first."""

    user: Text
    identity: str
    limit: Limit = 100


@command("erasure_list")
class ListErasures(ControlCommand):
    """What people have asked to be erased, and the receipts; the newest first."""

    limit: Limit = 100


@command("erasure_decide")
class DecideErasure(SignedCommand):
    """A request is granted, or refused."""

    id: Text
    grant: Flag
