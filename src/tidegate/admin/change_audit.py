"""Audit rows about administration: who changed which document or token, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidegate.config.overlay import KINDS, Form
from tidegate.store.journal.rows import AuditRow, Kind

if TYPE_CHECKING:
    from tidegate.admin.administration import AdministeredNode

LONGEST: Final = 1000  # characters of a name or a detail


class ChangeAudit:
    def __init__(self, host: AdministeredNode, *, node: str) -> None:
        self._host = host
        self._node = node

    def documents(
        self, keys: Iterable[tuple[str, str]], action: str, by: str, why: str, kind: Kind = Kind.CHANGE
    ) -> None:
        """One row for each document, given by kind and id."""
        for document_kind, id in keys:
            name = f"{document_kind}/{id}"
            rule = id if document_kind in KINDS and KINDS[document_kind].form is Form.RULE else name
            self.write(kind, action, by, rule, f"{name}: {why}" if why else name)

    def token(self, action: str, id: str, by: str, why: str) -> None:
        self.write(Kind.CHANGE, f"token {action}", by, f"token:{id}", why)

    def write(self, kind: Kind, action: str, by: str, rule: str | None, detail: str) -> None:
        audit = self._host.audit
        audit.site.open()
        audit.sink.write(
            AuditRow(
                audit.site.wall,
                node=self._node,
                kind=kind.value,
                user=by[:LONGEST],
                action=action,
                rule=rule,
                policy_version=audit.version,
                detail=detail[:LONGEST] or None,
            )
        )
