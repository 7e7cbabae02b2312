"""One event space: sessions, routing and gate put together."""

from __future__ import annotations

from tidegate.scope.authenticator import Accepted, Authenticator, Continue, Exchange, Identity, Refused
from tidegate.scope.scope import Scope
from tidegate.scope.scopes import Realm

__all__ = ["Accepted", "Authenticator", "Continue", "Exchange", "Identity", "Realm", "Refused", "Scope"]
