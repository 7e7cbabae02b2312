"""One event space: sessions, routing and gate put together."""

from __future__ import annotations

from tidegate.scope.identity import Accepted, Authenticator, Continue, Exchange, Identity, Refused
from tidegate.scope.realm import Realm
from tidegate.scope.scope import Scope

__all__ = ["Accepted", "Authenticator", "Continue", "Exchange", "Identity", "Realm", "Refused", "Scope"]
