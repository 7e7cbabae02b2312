"""The key service as a process of its own, and the depot with which nodes use it."""

from __future__ import annotations

from tidegate.node.ktm.client import KtmDepot
from tidegate.node.ktm.process import run

__all__ = ["KtmDepot", "run"]
