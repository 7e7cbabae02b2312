"""Files that a configuration names: whether they can be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.config.checks import Finding
from tidegate.config.section import Section
from tidegate.errors import ConfigError
from tidegate.keys.rest import parse_masters

if TYPE_CHECKING:
    from tidegate.config.administration import MasterKey


def unreadable_files(section: Section, keys: Iterable[str], *at: str | int) -> Iterator[Finding]:
    """Those under some keys of a section, which stands at a place, that cannot be."""
    for key in keys:
        path: Path | None = getattr(section, key)
        if path is None:
            continue
        try:
            path.open("rb").close()
        except OSError as broken:
            why = f"cannot be read ({broken.strerror}); check its name and permissions"
            yield (*at, key), f"names `{path}`, which {why}"


def master_key_problems(master_key: MasterKey | None) -> Iterator[Finding]:
    """Why there are no master keys where they should be."""
    if master_key is not None:
        try:
            parse_masters(master_key.text())
        except ConfigError as broken:
            yield ("master_key",), f"is wrong: {broken}"
