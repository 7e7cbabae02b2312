"""The rules in force: those of the file and of the documents once they have passed a trial, else the last good ones.

They are read before each batch. Changed rules are checked, then tried on recent messages. Rules that fail are refused
and logged, and the last good ones stay. The ledger keeps every version that was in force, so a repeated batch uses
the same rules even if the file has changed since.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import structlog

from tidegate.errors import PipelineError, TidegateError
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.rules import Rules, parse

EMPTY: Final = "version: 1\n"  # rules that map nothing: everything goes to quarantine

Documents = Sequence[tuple[str, Mapping[str, Any]]]
Trial = Callable[[Rules, Rules | None], None]
"""Tries new rules beside those in force on recent messages; PipelineError if they are no good."""

log = structlog.get_logger("tidegate.pipeline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    version: str
    why: str


class ActiveRules:
    def __init__(self, ledger: Ledger, file: Path | None, documents: Callable[[], Documents], trial: Trial) -> None:
        """`documents` are those of the node; TidegateError if it is away."""
        self.refused: Refused | None = None
        self._ledger = ledger
        self._file = file
        self._documents = documents
        self._trial = trial
        self._looked = ""
        self._known: Documents = ()
        self._rules: Rules | None = None
        if (last := ledger.last_rules()) is not None:
            self._rules = self._parsed(last[1])
            self._known = [(id, body) for id, body in json.loads(last[1])["documents"]]

    def look(self) -> Rules:
        """The rules for the next batch. PipelineError if there are none, and never were."""
        try:
            text = EMPTY if self._file is None else self._file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            return self._refuse("unread", f"{self._file} cannot be read: {error}")
        try:
            self._known = self._documents()
        except TidegateError as error:
            log.debug("the node is away; its documents are taken as they were", reason=str(error))
        content = json.dumps({"text": text, "documents": self._known}, sort_keys=True)
        mark = sha256(content.encode()).hexdigest()
        if mark == self._looked and self._rules is not None:
            return self._rules
        try:
            parsed = parse(text, str(self._file or "rules"), self._known)
        except PipelineError as error:
            return self._refuse(mark[:12], str(error), mark)
        if self._rules is None or parsed.version_text != self._rules.version_text:
            try:
                self._trial(parsed, self._rules)
            except PipelineError as error:
                return self._refuse(parsed.version_text, str(error), mark)
            self._ledger.keep_rules(parsed.version_text, content)
            if self._rules is not None:
                log.info("other rules are in force", version=parsed.version_text, before=self._rules.version_text)
        self._looked, self._rules, self.refused = mark, parsed, None
        return parsed

    def version(self, version: str) -> Rules:
        """Rules that were in force before; those of now if they are not known any more."""
        assert self._rules is not None
        if version == self._rules.version_text:
            return self._rules
        content = self._ledger.rules(version)
        return self._rules if content is None else self._parsed(content) or self._rules

    def _refuse(self, version: str, why: str, mark: str = "") -> Rules:
        if self._rules is None:
            raise PipelineError(why)
        if self.refused is None or (self.refused.version, self.refused.why) != (version, why):
            log.error("new rules are refused; the last good ones stay", reason=why, version=self._rules.version_text)
        self.refused = Refused(version=version, why=why)
        self._looked = mark
        return self._rules

    def _parsed(self, content: str) -> Rules | None:
        stored = json.loads(content)
        try:
            return parse(stored["text"], str(self._file or "rules"), [(id, body) for id, body in stored["documents"]])
        except PipelineError as error:  # they were good in another version of Tidegate
            log.warning("rules that were in force before cannot be read any more", reason=str(error))
            return None
