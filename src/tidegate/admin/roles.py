"""The roles of bearer tokens, for the node, the HTTP interface and the command line."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a token lets its bearer do; `api.access` has the routes of each role."""

    ADMIN = "admin"
    OPERATOR = "operator"
    AUDITOR = "auditor"
    USER = "user"
    SOURCE = "source"
