"""The YAML configuration: its schema, its defaults, and errors that name file, line and remedy.

`load(path)` and `parse(text, file)` return a frozen `Config` or raise `ConfigErrors` with everything that
is wrong. `Config.ephemeral()` is what runs without a file. This room reads files; it opens no socket and
starts nothing.
"""

from __future__ import annotations

from tidegate.config.address import Address
from tidegate.config.administration import Http, MasterKey, Tokens
from tidegate.config.build import Built, build
from tidegate.config.choices import (
    Asked,
    ClientCert,
    DeniedPublish,
    Durability,
    LogFormat,
    LogLevel,
    Policies,
    QueueFull,
    Record,
    Reload,
    Scheme,
    Subscribe,
    TlsVersion,
    ViewDefault,
)
from tidegate.config.directory import ARGON2, PLAIN, Client, Directory, Group, Role, User
from tidegate.config.links import Scope
from tidegate.config.load import complete, load, outline, parse, read
from tidegate.config.model import (
    Audit,
    Authentication,
    Config,
    Limits,
    Listener,
    Log,
    Node,
    Queue,
    Sys,
    Traffic,
)
from tidegate.config.overlay import Piece, Source, overlaid
from tidegate.config.policies import Case, Class, Levels, Policy, Preference, Trust, View
from tidegate.config.problems import ConfigErrors
from tidegate.config.reference import markdown, schema
from tidegate.config.who import Who, parse_who

__all__ = [
    "ARGON2",
    "PLAIN",
    "Address",
    "Asked",
    "Audit",
    "Authentication",
    "Built",
    "Case",
    "Class",
    "Client",
    "ClientCert",
    "Config",
    "ConfigErrors",
    "DeniedPublish",
    "Directory",
    "Durability",
    "Group",
    "Http",
    "Levels",
    "Limits",
    "Listener",
    "Log",
    "LogFormat",
    "LogLevel",
    "MasterKey",
    "Node",
    "Piece",
    "Policies",
    "Policy",
    "Preference",
    "Queue",
    "QueueFull",
    "Record",
    "Reload",
    "Role",
    "Scheme",
    "Scope",
    "Source",
    "Subscribe",
    "Sys",
    "TlsVersion",
    "Tokens",
    "Traffic",
    "Trust",
    "User",
    "View",
    "ViewDefault",
    "Who",
    "build",
    "complete",
    "load",
    "markdown",
    "outline",
    "overlaid",
    "parse",
    "parse_who",
    "read",
    "schema",
]
