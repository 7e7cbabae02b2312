"""A weather network as rules, a configuration, and the messages that its sensors send.

Six types of sensors, each with a payload of its own shape; every message holds one value, so that messages and records
are the same number. One message in a thousand is cut off, and ends in quarantine. Topics of every second type are
protected. What the rules ask of a record needs its history, its neighbours and the series it stands in, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

STATIONS: Final = 60
"""Users, each with a connection of its own."""
SENSORS: Final = 10
"""Of each station."""
BROKEN: Final = 1000
"""One message in so many is cut off."""
READER: Final = "reader"
PLAIN: Final = "plain"
"""First level of topics that are not recorded."""

RULES: Final = """\
version: 1
sources:
  - id: temperature
    topic: raw/temperature/+
    source: /sensor
    time: {at: /at}
    values: [{name: temperature, at: /f, unit: F, to: C}]
    keep: [/battery]
  - id: humidity
    topic: raw/humidity/+
    source: /sensor
    time: {at: /at, form: ms}
    values: [{name: humidity, at: /humidity, unit: "%"}]
  - id: wind
    topic: raw/wind/+
    source: /sensor
    time: {at: /at, form: ms}
    values: [{name: wind, at: /wind/speed, unit: km/h, to: m/s}]
  - id: energy
    topic: raw/energy/+
    records: /readings
    source: /sensor
    time: {at: /s, form: s}
    values: [{name: energy, at: /wh, unit: Wh}]
  - id: air
    topic: raw/air/+
    source: /sensor
    time: {at: /at, form: us}
    values: [{name: pm10, at: /pm10}]
    keep: [/firmware]
  - id: rain
    topic: raw/rain/+
    source: /sensor
    time: {at: /time}
    values: [{name: rain, at: /mm, unit: mm}]
scores:
  - {id: encrypted, dimension: confidentiality, check: level_for_category, args: {categories: [personal], level: tls}}
  - {id: in-order, dimension: integrity, check: in_order, args: {good: 5s, bad: 60s}}
  - {id: owned, dimension: privacy, check: owner_known}
  - {id: itself, dimension: authentication, check: source_is_client}
  - {id: cold, dimension: accuracy, filter: "type = 'temperature'", check: in_range, args: {min: -40, max: 60, soft: 9}}
  - {id: wet, dimension: accuracy, filter: "type = 'humidity'", check: in_range, args: {min: 0, max: 100}}
  - {id: storm, dimension: accuracy, filter: "type = 'wind'", check: in_range, args: {min: 0, max: 60, soft: 20}}
  - {id: used, dimension: accuracy, filter: "type = 'energy'", check: in_range, args: {min: 0, max: 5000}}
  - {id: dust, dimension: accuracy, filter: "type = 'air'", check: in_range, args: {min: 0, max: 500, soft: 100}}
  - {id: flood, dimension: accuracy, filter: "type = 'rain'", check: in_range, args: {min: 0, max: 200, soft: 50}}
  - {id: as-usual, dimension: accuracy, weight: 0.5, check: deviates_from_history, args: {good: 4, bad: 8, floor: 0.5}}
  - {id: as-others, dimension: accuracy, weight: 0.5, check: deviates_from_neighbours, args: {good: 4, bad: 8}}
  - {id: fine, dimension: precision, check: decimals, args: {good: 1, bad: 0}}
  - {id: fresh, dimension: timeliness, check: age_under, args: {good: 5s, bad: 60s}}
  - {id: steady, dimension: completeness, check: no_gaps, args: {good: 15s, bad: 60s}}
  - {id: power, dimension: completeness, filter: "type = 'temperature'", check: present, args: {columns: [extra]}}
topics:
  - {id: scored, topic: "scored/{type}/{source}"}
"""

CHEAP: Final = ("owned", "cold", "fresh")
"""Scores that need nothing but the record."""


def few() -> str:
    """The same with these scores only, for which Spark has little to compile."""
    return "\n".join(
        line
        for line in RULES.split("\n")
        if "dimension:" not in line or any(f"{{id: {name}," in line for name in CHEAP)
    )


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


Made = Callable[[str, float, float], str]
KINDS: Final[dict[str, Made]] = {
    "temperature": lambda sensor, at, value: (
        f'{{"sensor":"{sensor}","at":"{_iso(at)}","f":{50 + 30 * value:.1f},"battery":87}}'
    ),
    "humidity": lambda sensor, at, value: (
        f'{{"sensor":"{sensor}","at":{at * 1e3:.0f},"humidity":{100 * value:.1f},"site":"north"}}'
    ),
    "wind": lambda sensor, at, value: (
        f'{{"sensor":"{sensor}","at":{at * 1e3:.0f},"wind":{{"speed":{60 * value:.1f},"gust":{80 * value:.1f}}}}}'
    ),
    "energy": lambda sensor, at, value: (
        f'{{"sensor":"{sensor}","readings":[{{"s":{at:.3f},"wh":{2000 * value:.1f},"tariff":1}}]}}'
    ),
    "air": lambda sensor, at, value: (
        f'{{"sensor":"{sensor}","at":{at * 1e6:.0f},"pm10":{80 * value:.1f},"firmware":"2.4.1"}}'
    ),
    "rain": lambda sensor, at, value: f'{{"sensor":"{sensor}","time":"{_iso(at)}","mm":{20 * value:.1f}}}',
}
"""How each type writes its value."""
PROTECTED: Final = tuple(KINDS)[::2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensor:
    """One of a station's."""

    name: str
    kind: str
    station: str

    @property
    def topic(self) -> str:
        return f"raw/{self.kind}/{self.name}"

    @property
    def target(self) -> str:
        """The topic that its records are published under."""
        return f"scored/{self.kind}/{self.name}"

    def payload(self, at: float, value: float) -> bytes:
        """A message of then; `value` is between 0 and 1."""
        return KINDS[self.kind](self.name, at, value).encode()


def stations() -> list[str]:
    return [f"station{number:02d}" for number in range(STATIONS)]


def sensors() -> list[Sensor]:
    """In an order in which neither type nor station comes twice in a row."""
    kinds = list(KINDS)
    return [
        Sensor(name=f"s{number:02d}{place}", kind=kinds[(number + place) % len(kinds)], station=station)
        for place in range(SENSORS)
        for number, station in enumerate(stations())
    ]


def values(count: int = 10_007) -> list[float]:
    """Between 0 and 1, around the middle; their number is prime, so that sensors get other ones each time."""
    chance = random.Random(20260316)
    return [min(max(chance.gauss(0.5, 0.12), 0.0), 1.0) for _ in range(count)]


def configuration(folder: Path, port: int, batch: int, memory: str) -> str:
    """A node and a pipeline as shipped, but for the size of a batch, and Spark's memory."""
    names = stations()
    protect = ", ".join(f'"scored/{kind}/#"' for kind in PROTECTED)
    lines = [
        "version: 1",
        f'node: {{name: bench, data: "{folder / "data"}"}}',
        f'listeners: [{{url: "mqtt://127.0.0.1:{port}"}}]',
        f"keys: {{protect: [{protect}]}}",
        'classify: [{topic: "raw/energy/#", category: personal}]',
        f'pipeline: {{ingest: ["raw/#"], rules: "{folder / "rules.yaml"}", batch: {batch}, '
        f"spark: {{memory: {memory}}}}}",
        "directory:",
        "  users:",
        f'    {READER}: {{password: "plain:{READER}", roles: [reader], attributes: {{site: north}}}}',
        *(
            f'    {name}: {{password: "plain:{name}", roles: [station], attributes: {{line: {name}, site: north}}}}'
            for name in names
        ),
        "policies:",
        '  - {id: stations, subject: "role:station", topic: "raw/#", action: write}',
        f'  - {{id: plain, subject: "role:station", topic: "{PLAIN}/#", action: write}}',
        '  - {id: pipeline, subject: "service:pipeline", topic: "scored/#", action: write}',
        '  - {id: readers, subject: "role:reader", topic: "scored/#", action: read, when: "p.site == s.site"}',
        "preferences:",
        *(f'  - {{id: own-{name}, user: {name}, topic: "raw/#", when: "s.role == \'reader\'"}}' for name in names),
        "log: {level: error}",
    ]
    return "\n".join(lines) + "\n"
