"""A running node: scopes, listeners, control socket, reload, shutdown."""

from __future__ import annotations

from tidegate.node.node import Node, run, verify

__all__ = ["Node", "run", "verify"]
