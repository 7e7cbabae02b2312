"""The file of a key service that is a process of its own (`tidegate ktm`).

`load_ktm` returns a frozen `KtmConfig` or raises `ConfigErrors` with everything that is wrong, each with file and line,
as `load` does for a node.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tidegate.config.address import TlsAddress
from tidegate.config.administration import MasterKey
from tidegate.config.document import read_source
from tidegate.config.keys import YEAR
from tidegate.config.load import master_key_problems, unreadable_files, validated
from tidegate.config.model import Log
from tidegate.config.policies import CertificateSubject
from tidegate.config.problems import ConfigErrors
from tidegate.config.section import FilePath, Section
from tidegate.config.units import Count, Duration


class Ktm(Section):
    """Where nodes reach the service, and which nodes."""

    listen: TlsAddress = Field(default="tls://127.0.0.1:8450", validate_default=True)
    """`tls://`, host and port (default 8450). Port 0: any free port."""
    cert: FilePath
    """Certificate chain (PEM) of the service."""
    key: FilePath | None = None
    """Its private key (PEM). Default: the one in the file of the certificate."""
    client_ca: FilePath
    """Certificates (PEM) of the authorities that sign the certificates of nodes. Nobody gets in without one."""
    crl: FilePath | None = None
    """Certificate revocation lists (PEM or DER) of those authorities. The file is read again when it changes. A
    certificate of an authority without a list, or whose list has expired, is refused. Default: none are looked up."""
    accept: tuple[CertificateSubject, ...] | None = Field(default=None, min_length=1)
    """Subjects of the nodes that may come, such as `CN=node-a`. Default: all with a certificate of `client_ca`."""


class KtmKeys(Section):
    """Keys that the service makes itself, for topics whose content no node may see."""

    rotate: Duration = Field(default=300.0, ge=1, le=YEAR)
    """How long a key seals."""
    overlap: Duration = Field(default=3600.0, ge=0, le=YEAR)
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
    config = validated(source, KtmConfig)
    findings = [*unreadable_files(config.ktm, "ktm"), *master_key_problems(config.master_key)]
    if findings:
        raise ConfigErrors([source.tree.location(at, source.file).problem(text) for at, text in findings])
    return config
