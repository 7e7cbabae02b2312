"""Units of measurement: which measure the same quantity, and how one turns into another.

A unit is a factor and an offset to the first unit of its quantity: `base = value * factor + offset`. Every conversion
is linear. Mass and volume concentrations (`ug/m3`, `ppb`) are different quantities: between them stand the substance,
the temperature and the pressure, which nobody tells us.

A unit that is not in the table may be written down, but not converted. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tidegate.config.problems import remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    factor: float = 1.0
    offset: float = 0.0


_QUANTITIES: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "temperature": {"C": (1, 0), "K": (1, -273.15), "F": (5 / 9, -160 / 9)},
    "speed": {"m/s": (1, 0), "km/h": (1 / 3.6, 0), "mph": (0.44704, 0), "kn": (1852 / 3600, 0)},
    "pressure": {"Pa": (1, 0), "hPa": (100, 0), "kPa": (1000, 0), "bar": (100_000, 0)},
    "ratio": {"fraction": (1, 0), "%": (0.01, 0)},
    "power": {"W": (1, 0), "kW": (1000, 0)},
    "energy": {"J": (1, 0), "Wh": (3600, 0), "kWh": (3_600_000, 0)},
    "mass concentration": {"ug/m3": (1, 0), "mg/m3": (1000, 0)},
    "volume concentration": {"ppb": (1, 0), "ppm": (1000, 0)},
    "illuminance": {"lx": (1, 0)},
    "sound level": {"dB": (1, 0)},
    "voltage": {"V": (1, 0), "mV": (0.001, 0)},
    "current": {"A": (1, 0), "mA": (0.001, 0)},
    "length": {"m": (1, 0), "mm": (0.001, 0), "cm": (0.01, 0), "km": (1000, 0)},
    "volume": {"l": (1, 0), "m3": (1000, 0)},
    "time": {"s": (1, 0), "ms": (0.001, 0), "min": (60, 0), "h": (3600, 0)},
    "angle": {"deg": (1, 0), "rad": (180 / math.pi, 0)},
    "number": {"count": (1, 0)},
}
_QUANTITY: Final = {unit: quantity for quantity, units in _QUANTITIES.items() for unit in units}

UNITS: Final = tuple(_QUANTITY)  # every unit of the table


def quantity(unit: str) -> str | None:
    """What a unit measures; None if it is not in the table."""
    return _QUANTITY.get(unit)


def problem(unit: str, to: str) -> str | None:
    """Why one unit cannot be turned into another, as "what; remedy"; None if it can."""
    for each in (unit, to):
        if each not in _QUANTITY:
            mend = remedy(each, UNITS, f"known: {', '.join(UNITS)}")
            return f"cannot be converted: the unit `{each}` is unknown; {mend}"
    if _QUANTITY[unit] != _QUANTITY[to]:
        same = ", ".join(_QUANTITIES[_QUANTITY[unit]])
        text = f"`{unit}` measures {_QUANTITY[unit]} and `{to}` {_QUANTITY[to]}"
        return f"cannot be converted: {text}; write one of {same}"
    return None


def conversion(unit: str, to: str) -> Conversion:
    """From one unit to another of the same quantity; ValueError if `problem` has something to say."""
    if wrong := problem(unit, to):
        raise ValueError(wrong)
    if unit == to:
        return Conversion()
    factor, offset = _QUANTITIES[_QUANTITY[unit]][unit]
    by, shift = _QUANTITIES[_QUANTITY[to]][to]
    return Conversion(factor=factor / by, offset=(offset - shift) / by)
