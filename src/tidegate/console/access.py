"""Who may see which page of the console: the same roles as in `api.access`, by route."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidegate.admin.roles import Role
from tidegate.api.access import PUBLIC

ADMIN: Final = frozenset({Role.ADMIN})
RUNNING: Final = frozenset({Role.ADMIN, Role.OPERATOR})
LOOKING: Final = frozenset({Role.ADMIN, Role.OPERATOR, Role.AUDITOR})
OWN: Final = frozenset({Role.USER})

ALLOWED: Final[Mapping[tuple[str, str], frozenset[Role]]] = MappingProxyType(
    {
        ("GET", "/"): PUBLIC,
        ("GET", "/ui"): PUBLIC,
        ("GET", "/ui/"): PUBLIC,
        ("GET", "/ui/assets/{name}"): PUBLIC,
        ("GET", "/ui/login"): PUBLIC,
        ("POST", "/ui/login"): PUBLIC,
        ("POST", "/ui/logout"): PUBLIC,
        ("GET", "/ui/events"): LOOKING | OWN,
        ("GET", "/ui/now"): LOOKING,
        ("GET", "/ui/denials"): LOOKING,
        ("GET", "/ui/denials/why"): LOOKING,
        ("GET", "/ui/denials/shadow"): LOOKING,
        ("POST", "/ui/denials/draft"): ADMIN,
        ("GET", "/ui/clients"): LOOKING,
        ("GET", "/ui/clients/{id}"): LOOKING,
        ("POST", "/ui/clients/{id}/disconnect"): RUNNING,
        ("POST", "/ui/sessions/{id}/drop"): RUNNING,
        ("GET", "/ui/topics"): LOOKING,
        ("GET", "/ui/topics/{id}"): LOOKING,
        ("POST", "/ui/topics/{id}/value"): LOOKING,
        ("POST", "/ui/topics/{id}/clear"): RUNNING,
        ("GET", "/ui/flows"): LOOKING,
        ("GET", "/ui/flows.svg"): LOOKING,
        ("GET", "/ui/rules"): LOOKING,
        ("GET", "/ui/rules/{kind}"): LOOKING,
        ("GET", "/ui/new/{kind}"): RUNNING,
        ("GET", "/ui/rules/{kind}/{id}"): LOOKING,
        ("GET", "/ui/replay"): ADMIN,
        ("POST", "/ui/replay/begin/{kind}"): ADMIN,
        ("POST", "/ui/replay/cancel"): ADMIN,
        ("POST", "/ui/check/{kind}"): RUNNING,
        ("POST", "/ui/rules/{kind}"): RUNNING,
        ("POST", "/ui/rules/{kind}/{id}"): RUNNING,
        ("POST", "/ui/rules/{kind}/{id}/revert"): RUNNING,
        ("GET", "/ui/quality"): LOOKING,
        ("GET", "/ui/monitors"): LOOKING,
        ("GET", "/ui/monitors/{id}"): LOOKING,
        ("GET", "/ui/monitors/{id}/drawing.svg"): LOOKING,
        ("POST", "/ui/monitors/{id}/try"): LOOKING,
        ("GET", "/ui/my-data"): OWN,
        ("GET", "/ui/my-data/newest"): OWN,
        ("POST", "/ui/my-data/decide"): OWN,
        ("POST", "/ui/my-data/stop"): OWN,
        ("POST", "/ui/my-data/resume"): OWN,
        ("POST", "/ui/my-data/preferences"): OWN,
        ("POST", "/ui/my-data/preferences/{id}/delete"): OWN,
        ("GET", "/ui/my-data/export"): OWN,
        ("POST", "/ui/my-data/erase"): OWN,
    }
)
