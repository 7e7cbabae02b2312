"""What a node says when it has started: where everything listens, and what is probably not meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from tidegate.audit.journals import journal_warning
from tidegate.config.load import exposed_files

if TYPE_CHECKING:
    from tidegate.node.node import Node

log = structlog.get_logger("tidegate.node")


def announce(node: Node) -> None:
    config = node.config
    for name, listener in node.listeners.bound.items():
        log.info("listening", url=name, port=listener.port, anonymous=listener.anonymous)
    if node.http is not None and config.http is not None:
        log.info("listening", url=str(config.http.url), port=node.http.port)
        if config.http.metrics is not None:
            log.info("listening", url=str(config.http.metrics), port=node.http.metrics_port)
    for line, text in (*config.warnings(), *exposed_files(config)):
        log.warning(text, file=str(node.path or ""), line=line)
    if (missing := journal_warning(config)) is not None:
        log.warning(missing)
    if config.node.data is None:
        log.warning("nothing survives a restart: `node.data` is not set")
    if node.http is not None and node.administration is not None:
        if node.administration.tokens.administrator_missing():
            remedy = f"tidegate token make --socket -c {node.path}"
            log.warning("nobody has a token of an administrator", remedy=remedy)
    if node.path is None:
        log.warning("policies: open, anybody on this machine may publish and subscribe to everything")
