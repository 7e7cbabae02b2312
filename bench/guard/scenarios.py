"""The nine scenarios of the experiments of *sharing* (table 2): who publishes and subscribes in which environment.

The near environment is the one whose broker has the bridge; the far one is where the bridge connects. A publisher has
one subscriber, in the other environment. The figures of the experiments are pictures: of their values the text tells
only bounds, which are in `SEED`.
"""

from __future__ import annotations

from dataclasses import dataclass

USERS = 100
CLIENTS = (1, 2, 3, 4)
"""Of a user, in turn."""
QOS = (0, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """How many clients of each kind there are."""

    name: str
    near_publishers: int
    near_subscribers: int
    far_publishers: int
    far_subscribers: int

    @property
    def publishers(self) -> int:
        return self.near_publishers + self.far_publishers


def _scenarios() -> tuple[Scenario, ...]:
    found = []
    for option, count in enumerate((20, 100, 200), 1):
        half = count // 2
        for number, (near, far) in enumerate(
            (((0, count), (count, 0)), ((count, 0), (0, count)), ((half,) * 2,) * 2), 1
        ):
            found.append(
                Scenario(
                    name=f"S{option},{number}",
                    near_publishers=near[0],
                    near_subscribers=near[1],
                    far_publishers=far[0],
                    far_subscribers=far[1],
                )
            )
    return tuple(found)


SCENARIOS = _scenarios()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What the text says of a figure, in milliseconds: always below that."""

    figure: str
    added: float
    transmission: float | None = None


SEED = {
    ("bridging", 0): Bound(figure="4", added=37),
    ("bridging", 2): Bound(figure="4", added=45),
    ("all", 0): Bound(figure="6", added=89, transmission=94),
    ("all", 2): Bound(figure="6", added=89, transmission=94),
}
"""Raspberry Pi 3 for the brokers and local monitors, a desktop for the bridging monitor and the clients; its figures 5
and 7 are the packets that the bridging monitor handles each second, at one message per second and publisher."""


def user_of(client: int) -> str:
    """The user who handles a client: the first has one, the next two, and so on in turn."""
    place, user = client, 0
    while place >= (has := CLIENTS[user % len(CLIENTS)]):
        place -= has
        user += 1
    return f"u{user % USERS:02d}"
