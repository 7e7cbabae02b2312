"""The seed's weather station as a configuration: six sensors, and whoever reads them.

Each sensor is a user who writes one topic and has a preference; each topic has policies of its own, so each has a key
of its own. `r000` and on may read all of them, `guest` only every second one, as the seed's two users do. All have a
public key. Everybody's password is his name, since connecting is not what is measured.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tidegate.keys import Kem, PrivateKey

SENSORS = ("temperature", "humidity", "wind", "energy", "air", "rain")
TOPICS = tuple(f"campodenno/sensor{number}/{what}" for number, what in enumerate(SENSORS, 1))
SEEN_BY_GUEST = TOPICS[1::2]
GUEST = "guest"
SOURCE = "station"
READERS = 100
"""One may ask 200 times a second, so this many are never held back by that."""
ELSEWHERE = 100
"""Policies that speak of other places."""
UNLIMITED = 1_000_000


class Rules(Enum):
    """What a node does with a message."""

    OPEN = "open"
    """Nothing but delivering it: the seed's system without AUPS."""
    GATE = "gate"
    """Policies and preferences."""
    PROTECTED = "protected"
    """These, and encryption: the seed's system with AUPS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """Who there is."""

    readers: dict[str, PrivateKey]

    @classmethod
    def of(cls, readers: int, kem: Kem = Kem.X25519) -> Station:
        names = [GUEST, *(f"r{number:03d}" for number in range(readers))]
        return cls(readers={name: PrivateKey.generate(os.urandom, kem) for name in names})

    @property
    def asking(self) -> list[str]:
        """Those who may read everything."""
        return [name for name in self.readers if name != GUEST]

    def rules(self, rules: Rules) -> str:
        """What the configuration says of who may do what."""
        lines = ["directory:", "  users:"]
        for number in range(1, len(SENSORS) + 1):
            lines.append(_user(f"sensor{number}", "sensor", f"line: sensor{number}"))
        for name, key in self.readers.items():
            role = "guest" if name == GUEST else "reader"
            lines.append(_user(name, role, "shift: early", str(key.public)))
        if rules is Rules.OPEN:
            return "\n".join([*lines, "policies: open"])
        lines.append("policies:")
        for number, topic in enumerate(TOPICS, 1):
            lines.append(_policy(f"w{number}", "role:sensor", topic, "write", f"s.line == 'sensor{number}'"))
            when = f"s.clearance >= 2 && p.site == s.site && s.shift != 'x{number}'"
            lines.append(_policy(f"r{number}", "role:reader", topic, "read", when))
            if topic in SEEN_BY_GUEST:
                lines.append(_policy(f"g{number}", "role:guest", topic, "read", "p.site == s.site"))
        for number in range(ELSEWHERE):
            when = f"s.clearance >= 3 && s.site != 'x{number}'"
            lines.append(_policy(f"e{number}", "role:reader", f"plant/{number:03d}/+", "read", when))
        lines.append("preferences:")
        for number in range(1, len(SENSORS) + 1):
            when = f"s.role in ['reader', 'guest'] && s.user != 'sensor{number}'"
            lines.append(f'  - {{id: u{number}, user: sensor{number}, topic: "campodenno/#", when: "{when}"}}')
        if rules is Rules.PROTECTED:
            lines.append('keys: {protect: ["campodenno/#"], rotate: 5m}')
        return "\n".join(lines)


def _user(name: str, role: str, fact: str, key: str = "") -> str:
    public = f', public_key: "{key}"' if key else ""
    facts = f"{{{fact}, site: north, clearance: 3}}"
    return f'    {name}: {{password: "plain:{name}", roles: [{role}], attributes: {facts}{public}}}'


def _policy(id: str, subject: str, topic: str, action: str, when: str) -> str:
    return f'  - {{id: {id}, subject: "{subject}", topic: "{topic}", action: {action}, when: "{when}"}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where a node listens; 0: it has no HTTP process."""

    mqtt: int
    http: int = 0


def configuration(rules: str, ports: Ports, certificates: Path | None = None) -> str:
    """A node with a data folder, as shipped but for rates that one load generator would exceed. With certificates it
    speaks TLS only."""
    pair = ""
    if certificates is not None:
        pair = f', cert: "{certificates / "server.pem"}", key: "{certificates / "server.key"}"'
    mqtt, http = ("mqtt", "http") if certificates is None else ("mqtts", "https")
    lines = [
        "version: 1",
        "node: {name: bench, data: data}",
        f'listeners: [{{url: "{mqtt}://127.0.0.1:{ports.mqtt}"{pair}}}]',
        rules,
        "log: {level: error}",
    ]
    if ports.http:
        rates = f"rate: {UNLIMITED}, address_rate: {UNLIMITED}"
        lines.insert(3, f'http: {{url: "{http}://127.0.0.1:{ports.http}", {rates}{pair}}}')
    return "\n".join(lines) + "\n"
