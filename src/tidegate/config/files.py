"""Files that a configuration names: whether they can be read."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tidegate.config.problems import Finding
from tidegate.config.section import Section
from tidegate.errors import ConfigError
from tidegate.keys.at_rest import parse_masters

if TYPE_CHECKING:
    from tidegate.config.administration import MasterKey
    from tidegate.config.model import Config

_KEYS: Final = ("cert", "key", "client_ca", "crl", "ca", "rules")
"""The keys under which sections name files."""


def unreadable_files(section: Section | None, *at: str | int) -> Iterator[Finding]:
    """Files named by a section, which stands at a path, that cannot be read."""
    for key in _KEYS:
        path = getattr(section, key, None)
        if not isinstance(path, Path):
            continue
        try:
            path.open("rb").close()
        except OSError as error:
            why = f"cannot be read ({error.strerror}); check its name and permissions"
            yield (*at, key), f"names `{path}`, which {why}"


def exposed_files(config: Config) -> list[tuple[int, str]]:
    """Private keys, and the file itself if secrets stand in it, that other users of the machine can read."""
    warned: list[tuple[int, str]] = []
    keys: list[tuple[tuple[str | int, ...], Path | None]] = [
        (("listeners", index, "key"), each.key or each.cert) for index, each in enumerate(config.listeners)
    ]
    if config.http is not None:
        keys.append((("http", "key"), config.http.key or config.http.cert))
    if config.keys.ktm is not None:
        keys.append((("keys", "ktm", "key"), config.keys.ktm.key))
    for path, file in keys:
        if file is not None and _readable_by_others(file):
            text = f"is in `{file}`, which every user of this machine can read; run `chmod o-rwx {file}`"
            location = config.location(*path)
            warned.append((location.line, location.warning(text)))
    source = None if config.source is None else config.source.alone
    if source is not None and _readable_by_others(Path(source.file)) and any(_secrets_in(config, source.text)):
        text = f"the file holds passwords, and every user of this machine can read it; run `chmod o-rwx {source.file}`"
        warned.append((0, text))
    return warned


def _secrets_in(config: Config, text: str) -> Iterator[bool]:
    """Whether a secret stands in the text; one that comes from a variable does not."""
    for user in config.directory.users.values():
        yield bool(user.password) and str(user.password) in text
    password = urlsplit(config.store).password
    yield password is not None and f":{password}@" in text


def _readable_by_others(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def master_key_problems(master_key: MasterKey | None) -> Iterator[Finding]:
    """Why there are no master keys where they should be."""
    if master_key is not None:
        try:
            parse_masters(master_key.text())
        except ConfigError as error:
            yield ("master_key",), f"is wrong: {error}"
