"""Where a client is, or would be: by which scope it publishes, by which it receives, and the types of both links.

Both scopes are the same but for clients that are placed by their role: these publish into one scope of the role and
receive from the other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """A client at a scope."""

    client: str
    """By its full name, such as `client:MD`."""
    enters: str
    """The scope that it publishes into, by its bare name."""
    leaves: str
    """The scope that it receives from."""
    inward: str
    """The type of the link to `enters`."""
    outward: str
    """The type of the link from `leaves`."""
