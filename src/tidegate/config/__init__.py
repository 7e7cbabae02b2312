"""The YAML configuration: its schema, its defaults, and errors that name file, line and remedy.

`load(path)` and `parse(text, file)` return a frozen `Config` or raise `ConfigErrors` with everything that
is wrong. `Config.ephemeral()` is what runs without a file. This room reads files; it opens no socket and
starts nothing.
"""

from __future__ import annotations

from tidegate.config.address import Address
from tidegate.config.choices import (
    ClientCert,
    DeniedPublish,
    Durability,
    LogFormat,
    LogLevel,
    Policies,
    QueueFull,
    Reload,
    Scheme,
    TlsVersion,
)
from tidegate.config.load import load, parse
from tidegate.config.model import (
    ARGON2,
    PLAIN,
    Authentication,
    Client,
    Config,
    Directory,
    Limits,
    Listener,
    Log,
    Node,
    Queue,
    Scope,
    Sys,
    User,
)
from tidegate.config.problems import ConfigErrors
from tidegate.config.reference import markdown, schema

__all__ = [
    "ARGON2",
    "PLAIN",
    "Address",
    "Authentication",
    "Client",
    "ClientCert",
    "Config",
    "ConfigErrors",
    "DeniedPublish",
    "Directory",
    "Durability",
    "Limits",
    "Listener",
    "Log",
    "LogFormat",
    "LogLevel",
    "Node",
    "Policies",
    "Queue",
    "QueueFull",
    "Reload",
    "Scheme",
    "Scope",
    "Sys",
    "TlsVersion",
    "User",
    "load",
    "markdown",
    "parse",
    "schema",
]
