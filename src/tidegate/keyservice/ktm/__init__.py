"""The key service as a process of its own, and the depot with which nodes use it."""

from __future__ import annotations

from tidegate.keyservice.ktm.client import KtmDepot
from tidegate.keyservice.ktm.process import run

__all__ = ["KtmDepot", "run"]
