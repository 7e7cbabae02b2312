"""The key service as a process of its own, and the exchange with which nodes use it."""

from __future__ import annotations

from tidegate.keyservice.ktm.client import KtmExchange
from tidegate.keyservice.ktm.process import run

__all__ = ["KtmExchange", "run"]
