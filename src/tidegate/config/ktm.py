"""The file of a key service that is a process of its own (`tidegate ktm`).

`load_ktm` returns a frozen `KtmConfig` or raises `ConfigErrors` with everything that is wrong, each with file and line,
as `load` does for a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError, field_validator

from tidegate import policy
from tidegate.config import files
from tidegate.config.administration import MasterKey
from tidegate.config.checks import Finding
from tidegate.config.document import read_source
from tidegate.config.keys import PORT, TlsAddress, TlsUrl
from tidegate.config.model import Log
from tidegate.config.parser import problem_text
from tidegate.config.policies import combined_problems
from tidegate.config.problems import ConfigErrors
from tidegate.config.section import FilePath, Section
from tidegate.config.units import Count, Duration
from tidegate.config.validation import model_problems
from tidegate.errors import ConfigError

_YEAR: Final = 366 * 86400.0


class Ktm(Section):
    """Where nodes reach the service, and which nodes."""

    listen: TlsUrl = TlsAddress(host="127.0.0.1", port=PORT)
    """`tls://`, host and port (default 8450). Port 0: any free port."""
    cert: FilePath
    """Certificate chain (PEM) of the service."""
    key: FilePath | None = None
    """Its private key (PEM). Default: the one in the file of the certificate."""
    client_ca: FilePath
    """Certificates (PEM) of the authorities that sign the certificates of nodes. Nobody gets in without one."""
    accept: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Subjects of the nodes that may come, such as `CN=node-a`. Default: all with a certificate of `client_ca`."""

    @field_validator("accept")
    @classmethod
    def _readable(cls, accept: tuple[str, ...] | None) -> tuple[str, ...] | None:
        found: list[Finding] = []
        for index, text in enumerate(accept or ()):
            try:
                policy.Trust(policy.By.SUBJECT, (text,))
            except ConfigError as error:
                found.append(((index,), f"is wrong: {problem_text(error)}"))
        if found:
            raise combined_problems(found)
        return accept


class KtmKeys(Section):
    """Keys that the service makes itself, for topics whose content no node may see."""

    rotate: Duration = Field(default=300.0, ge=1, le=_YEAR)
    """How long a key seals."""
    overlap: Duration = Field(default=3600.0, ge=0, le=_YEAR)
    """How much longer it can be had, for messages that come late."""
    uses: Count = Field(default=1 << 20, ge=1, le=1 << 32)
    """How often a key is given to publishers before there is another one."""


class KtmConfig(Section):
    """A key service."""

    ktm: Ktm
    """Where nodes reach it, and which nodes."""
    data: FilePath
    """Folder in which it keeps the keys."""
    master_key: MasterKey | None = None
    """The key under which they are stored. Default: one that is made in the data folder."""
    keys: KtmKeys = Field(default_factory=KtmKeys)
    """Keys that it makes itself."""
    log: Log = Field(default_factory=Log)
    """Log lines."""


def load_ktm(path: Path | str) -> KtmConfig:
    """The file of a key service. Raises `ConfigErrors`."""
    source = read_source(path)
    try:
        config = KtmConfig.model_validate(source.tree.data(), context={"folder": Path(source.file).parent})
    except ValidationError as broken:
        raise ConfigErrors([*source.problems, *model_problems(broken, source, KtmConfig)]) from None
    found = [
        *source.problems,
        *(source.tree.location(at, source.file).problem(text) for at, text in _unreadable(config)),
    ]
    if found:
        raise ConfigErrors(found)
    return config


def _unreadable(config: KtmConfig) -> Iterator[Finding]:
    yield from files.unreadable_files(config.ktm, ("cert", "key", "client_ca"), "ktm")
    yield from files.master_key_problems(config.master_key)
