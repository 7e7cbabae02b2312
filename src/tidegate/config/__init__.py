"""The YAML configuration: its schema, its defaults, and errors that name file, line and remedy.

`load(path)` and `parse(text, file)` return a frozen `Config` or raise `ConfigErrors` with everything that
is wrong. `Config.ephemeral()` is what runs without a file. This room reads files; it opens no socket and
starts nothing.
"""

from __future__ import annotations

from tidegate.config.administration import MasterKey
from tidegate.config.build import Built, build
from tidegate.config.document import Source, read_source
from tidegate.config.json_schema import markdown, schema
from tidegate.config.listeners import ClientCert, Listener
from tidegate.config.load import build_config, load, load_or_minimal, parse
from tidegate.config.model import Config, Durability, Record
from tidegate.config.overlay import OverlayDocument, with_documents
from tidegate.config.policies import Policies
from tidegate.config.problems import ConfigErrors
from tidegate.config.rule_tests import Operation, RuleTest, SubjectName, parse_subject_name

__all__ = [
    "Built",
    "ClientCert",
    "Config",
    "ConfigErrors",
    "Durability",
    "Listener",
    "MasterKey",
    "Operation",
    "OverlayDocument",
    "Policies",
    "Record",
    "RuleTest",
    "Source",
    "SubjectName",
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
