"""The control commands about topic keys. The HTTP interface sends them; the key service of the node answers them."""

from __future__ import annotations

from tidegate.net.control_command import ControlCommand, Counter, SignedCommand, Text, command


@command("key_get")
class GetKey(ControlCommand):
    """A reader asks for the key of a message. `level` and `address` say how the request came, `capability` and `proof`
    are what it shows."""

    user: str
    key: str
    request: str
    level: str
    address: str
    capability: str | None = None
    proof: str | None = None


@command("key_publish")
class GetPublishingKey(ControlCommand):
    """A publisher asks for the key to seal with on a topic."""

    user: str
    topic: str
    request: str
    level: str
    address: str
    capability: str | None = None
    proof: str | None = None


@command("key_list")
class ListKeys(ControlCommand):
    """Without a limit all, in no order; with one as many by their ids, those behind `after`."""

    after: str | None = None
    limit: Counter | None = None


@command("key_rotate")
class RotateKeys(SignedCommand):
    """Other keys from the next message on: for all, for an entry of `keys.protect`, for what a user could read."""

    filter: Text | None = None
    user: Text | None = None


@command("key_revoke")
class RevokeKey(SignedCommand):
    id: str
