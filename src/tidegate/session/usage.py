"""What each user and the whole node hold, as integers that change where something is stored and where it is freed.

- A user is a principal: somebody with a name, or with a certificate. Anonymous clients together are one user: whoever
  may make up names must not become many users by doing so.
- Nothing is stored here. After a restart everything is counted again as sessions and retained messages are loaded.
- A user who holds nothing is forgotten.
- What the node itself keeps (`$SYS/`) belongs to no user and has no bound.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The most that somebody may hold; the same names as in `Usage`."""

    sessions: int = 100_000
    queued_messages: int = 1_000_000
    queued_bytes: int = 2**30
    unreleased: int = 100_000
    unreleased_bytes: int = 256 * 2**20
    retained: int = 500_000
    retained_bytes: int = 512 * 2**20
    subscriptions: int = 1_000_000
    conditions: int = 250


USER_BOUNDS: Final = Bounds()
NODE_BOUNDS: Final = Bounds(
    sessions=200_000,
    queued_messages=4_000_000,
    queued_bytes=4 * 2**30,
    unreleased=400_000,
    unreleased_bytes=2**30,
    retained=1_000_000,
    retained_bytes=2**30,
    subscriptions=2_000_000,
    conditions=25_000,
)
NAMES: Final = tuple(field.name for field in fields(Bounds))
LONG: Final = 256  # characters of a filter or a client identifier that count like another subscription or session

FEW: Final = 3  # `+` in a filter that cost nothing
PLUS: Final = 20  # and each further one counts like so many subscriptions
WAY: Final = 16  # levels of a filter with `+`; each four more count like another subscription


def name_weight(name: str) -> int:
    """What a session counts for by its client identifier: strangers choose how long it is."""
    return 1 + len(name) // LONG


def filter_weight(filter: str) -> int:
    """What a subscription counts for: its length, and what it may cost to find it.

    With all filters of `n` levels that are `a` or `+`, a look-up goes 2^n ways: many `+` count, and so do long ways.
    """
    weight = name_weight(filter)
    if many := filter.count("+"):
        weight += PLUS * max(0, many - FEW) + max(0, filter.count("/") - WAY) // 4
    return weight


class Usage:
    """What one user, or the node, holds."""

    __slots__ = (
        "conditions",
        "name",
        "node",
        "queued_bytes",
        "queued_messages",
        "retained",
        "retained_bytes",
        "sessions",
        "subscriptions",
        "unreleased",
        "unreleased_bytes",
    )

    def __init__(self, name: str, node: Usage | None = None) -> None:
        self.name = name
        self.node = self if node is None else node  # what all users hold together
        self.sessions = 0
        self.queued_messages = 0  # that wait; those under way are bounded by the windows of the sessions
        self.queued_bytes = 0  # of those that wait, of the payloads under way, and of large wills
        self.unreleased = 0
        self.unreleased_bytes = 0
        self.retained = 0
        self.retained_bytes = 0
        self.subscriptions = 0
        self.conditions = 0  # `where` of these

    @property
    def empty(self) -> bool:
        return not (self.sessions or self.retained)


class Accounts:
    """The node and its users."""

    __slots__ = ("node", "reached", "users")

    def __init__(self) -> None:
        self.node = Usage("")
        self.users: dict[str, Usage] = {}
        self.reached: Counter[str] = Counter()  # how often something was refused or dropped at a bound, by its name

    def of(self, principal: str) -> Usage:
        """That of a user, who may be new."""
        usage = self.users.get(principal)
        if usage is None:
            usage = self.users[principal] = Usage(principal, self.node)
        return usage

    def seen(self, principal: str) -> Usage:
        """That of a user, only to look at: whoever holds nothing is not remembered."""
        usage = self.users.get(principal)
        return Usage(principal, self.node) if usage is None else usage

    def settle(self, usage: Usage) -> None:
        """Forgets a user who holds nothing any more."""
        if usage.empty and self.users.get(usage.name) is usage:
            del self.users[usage.name]

    def full(self, usage: Usage, user: Bounds, node: Bounds, name: str, more: int = 1) -> str:
        """The bound that so much more of something would break; empty if none."""
        if getattr(usage, name) + more > getattr(user, name):
            bound = f"limits.user.{name}"
        elif getattr(self.node, name) + more > getattr(node, name):
            bound = f"limits.node.{name}"
        else:
            return ""
        self.reached[name] += 1
        return bound

    def add(self, usage: Usage, name: str, more: int = 1) -> None:
        """Somebody holds more, or less, of something."""
        for each in (usage, self.node):
            setattr(each, name, getattr(each, name) + more)

    def state(self, user: Bounds, node: Bounds) -> dict[str, Any]:
        """For `tidegate status`: what the node holds, the bounds, and how often one was reached."""
        return {
            name: {
                "used": getattr(self.node, name),
                "limit": getattr(node, name),
                "user_limit": getattr(user, name),
                "reached": self.reached[name],
            }
            for name in NAMES
        }
