"""The control commands of the live view. The HTTP interface and the command line send them; `view` answers them."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Le, MinLen
from pydantic import Strict

from tidegate.net.control_command import ControlCommand, Flag, SignedCommand, Text, command

MOST = 500  # rows of a page: an answer of that many is written in less than a millisecond
Limit = Annotated[int, Strict(), Ge(1), Le(MOST)]
Name = Annotated[str, MinLen(1)]


@command("client_list")
class ListClients(ControlCommand):
    """Who is connected, by client identifier; `after` is the `next` of the last page."""

    scope: Name | None = None
    user: Name | None = None
    after: Name | None = None
    limit: Limit = 100


@command("session_list")
class ListSessions(ControlCommand):
    """All sessions, also of those who are away."""

    scope: Name | None = None
    user: Name | None = None
    away: Flag = False  # only those without a connection
    after: Name | None = None
    limit: Limit = 100


@command("subscription_list")
class ListSubscriptions(ControlCommand):
    """Subscriptions by client; with a `topic` those that match it."""

    scope: Name | None = None
    user: Name | None = None
    client: Name | None = None
    topic: Name | None = None
    after: Name | None = None
    limit: Limit = 100


@command("topic_list")
class ListTopics(ControlCommand):
    """Retained messages as a tree: the names right below `under`, or on the first level."""

    scope: Name | None = None
    under: str | None = None
    after: Name | None = None
    limit: Limit = 100


@command("client_show")
class ShowClient(ControlCommand):
    client: Text
    scope: Name | None = None
    user: Name | None = None
    connected: Flag = True  # False: its session also counts while it is away


@command("topic_show")
class ShowTopic(ControlCommand):
    topic: Text
    scope: Name | None = None


@command("topic_read")
class ReadTopic(ControlCommand):
    """What is retained there, as it would be sent to whoever asks, over this connection."""

    topic: Text
    scope: Name | None = None
    user: Text
    identity: str
    address: Text = "unknown"
    level: Text = "plain"


@command("client_disconnect")
class DisconnectClient(SignedCommand):
    """Its session stays, as after any disconnection; its will is due."""

    client: Text
    scope: Name | None = None
    user: Name | None = None


@command("session_drop")
class DropSession(SignedCommand):
    """With its subscriptions and everything that it is owed."""

    client: Text
    scope: Name | None = None
    user: Name | None = None


@command("topic_clear")
class ClearTopic(SignedCommand):
    """Removes a retained message, in one scope or in all."""

    topic: Text
    scope: Name | None = None
