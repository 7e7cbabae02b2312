"""The YAML configuration: its schema, its defaults, and errors that name file, line and remedy.

`load(path)` and `parse(text, file)` return a frozen `Config` or raise `ConfigErrors` with everything that
is wrong. `Config.ephemeral()` is what runs without a file. This room reads files; it opens no socket and
starts nothing.
"""

from __future__ import annotations

from tidegate.config.address import Address
from tidegate.config.administration import Http, MasterKey, Tokens
from tidegate.config.build import Built, build
from tidegate.config.directory import ARGON2, PLAIN, Client, Directory, Group, Role, User
from tidegate.config.document import Source, read_source
from tidegate.config.enums import (
    ClientCert,
    DeniedPublish,
    Durability,
    LogFormat,
    LogLevel,
    Operation,
    Policies,
    QueueFull,
    Record,
    Reload,
    Scheme,
    Subscribe,
    TlsVersion,
    ViewDefault,
)
from tidegate.config.links import Scope
from tidegate.config.load import build_config, load, load_or_minimal, parse
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
from tidegate.config.overlay import OverlayDocument, with_documents
from tidegate.config.policies import Class, Levels, Policy, Preference, RuleTest, Trust, View
from tidegate.config.problems import ConfigErrors
from tidegate.config.reference import markdown, schema
from tidegate.config.subject_name import SubjectName, parse_subject_name

__all__ = [
    "ARGON2",
    "PLAIN",
    "Address",
    "Audit",
    "Authentication",
    "Built",
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
    "Operation",
    "OverlayDocument",
    "Policies",
    "Policy",
    "Preference",
    "Queue",
    "QueueFull",
    "Record",
    "Reload",
    "Role",
    "RuleTest",
    "Scheme",
    "Scope",
    "Source",
    "SubjectName",
    "Subscribe",
    "Sys",
    "TlsVersion",
    "Tokens",
    "Traffic",
    "Trust",
    "User",
    "View",
    "ViewDefault",
    "build",
    "build_config",
    "load",
    "load_or_minimal",
    "markdown",
    "parse",
    "parse_subject_name",
    "read_source",
    "schema",
    "with_documents",
]
