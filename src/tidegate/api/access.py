"""Who may do what: one table of routes and roles, and nothing else decides it.

- `admin` does everything, `source` and `user` act for themselves only.
- `operator` keeps things running: views, monitors and links only to narrow them (config/narrowing.py), because each
  can show content. Who may read and write, what publishers may rule, what must not flow, who there is, and what
  becomes of data in the pipeline, is for administrators.
- `auditor` sees everything and changes nothing.

A route that is not in the table cannot be reached: `check` refuses to build such an application.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tidegate.admin.roles import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Documents of one kind, and where they are."""

    path: str
    kind: str
    title: str
    changed_by: frozenset[Role] | None
    """None: they are changed elsewhere."""
    narrowed_by: frozenset[Role] = frozenset()
    """Of those, who may change them only to narrow."""
    called: str = ""
    """What one of them is called, if not by its kind."""

    @property
    def one(self) -> str:
        return self.called or self.kind


_ADMIN: Final = frozenset({Role.ADMIN})
_OPERATOR: Final = frozenset({Role.OPERATOR})
_RUNNING: Final = frozenset({Role.ADMIN, Role.OPERATOR})
_LOOKING: Final = frozenset({Role.ADMIN, Role.OPERATOR, Role.AUDITOR})
_OWN: Final = frozenset({Role.USER})
_CONSUMING: Final = frozenset({Role.ADMIN, Role.USER})
"""Administrators, and applications for their own users: which those are the node looks up with every request."""
_SENDING: Final = frozenset({Role.SOURCE})
_REGISTERING: Final = frozenset({Role.ADMIN, Role.SOURCE})
_ANY: Final = frozenset(Role)
PUBLIC: Final[frozenset[Role]] = frozenset()
"""For everybody, with or without a token."""

COLLECTIONS: Final = (
    Collection(path="/policies", kind="policy", title="policies", changed_by=_ADMIN),
    Collection(path="/preferences", kind="preference", title="preferences", changed_by=_ADMIN),
    Collection(path="/monitors", kind="monitor", title="monitors", changed_by=_RUNNING, narrowed_by=_OPERATOR),
    Collection(path="/views", kind="view", title="views", changed_by=_RUNNING, narrowed_by=_OPERATOR),
    Collection(path="/links", kind="link", title="links between scopes", changed_by=_RUNNING, narrowed_by=_OPERATOR),
    Collection(path="/rules", kind="rule", title="what publishers may rule", changed_by=_ADMIN),
    Collection(path="/directory/users", kind="user", title="users", changed_by=_ADMIN),
    Collection(path="/directory/clients", kind="client", title="clients", changed_by=_ADMIN),
    Collection(path="/directory/roles", kind="role", title="roles", changed_by=_ADMIN),
    Collection(path="/directory/groups", kind="group", title="groups", changed_by=_ADMIN),
    # Made and removed at /applications, together with their users.
    Collection(path="/directory/applications", kind="application", title="applications", changed_by=None),
    Collection(
        path="/flows/assertions", kind="flow", title="assertions about flows", changed_by=_ADMIN, called="assertion"
    ),
    Collection(
        path="/pipeline/rules",
        kind="pipeline",
        title="rules of the pipeline",
        changed_by=_ADMIN,
        called="rule of the pipeline",
    ),
)


def _collection(one: Collection) -> dict[tuple[str, str], frozenset[Role]]:
    item = f"{one.path}/{{id}}"
    looking = dict.fromkeys((("GET", one.path), ("GET", item), ("GET", f"{item}/history")), _LOOKING)
    if one.changed_by is None:
        return looking
    changing = (("POST", one.path), ("PUT", item), ("DELETE", item), ("POST", f"{item}/revert"))
    return {**looking, **dict.fromkeys(changing, one.changed_by)}


ALLOWED: Final[Mapping[tuple[str, str], frozenset[Role]]] = MappingProxyType(
    {
        ("GET", "/health/live"): PUBLIC,
        ("GET", "/health/ready"): PUBLIC,
        ("GET", "/docs"): PUBLIC,
        ("GET", "/docs/{asset}"): PUBLIC,
        ("GET", "/openapi.json"): PUBLIC,
        ("POST", "/login"): PUBLIC,
        ("POST", "/logout"): PUBLIC,
        ("GET", "/oidc/login"): PUBLIC,
        ("GET", "/oidc/callback"): PUBLIC,
        ("GET", "/metrics"): _LOOKING,
        ("GET", "/me"): _ANY,
        ("GET", "/me/preferences"): _OWN,
        ("POST", "/me/preferences"): _OWN,
        ("GET", "/me/preferences/{id}"): _OWN,
        ("PUT", "/me/preferences/{id}"): _OWN,
        ("DELETE", "/me/preferences/{id}"): _OWN,
        ("GET", "/me/readers"): _OWN,
        ("GET", "/me/deliveries"): _OWN,
        ("GET", "/me/history"): _OWN,
        ("GET", "/me/export"): _OWN,
        ("GET", "/me/notices"): _OWN,
        ("GET", "/me/erase"): _OWN,
        ("POST", "/me/erase"): _OWN,
        ("GET", "/erasures"): _LOOKING,
        ("POST", "/erasures/{id}/grant"): _ADMIN,
        ("POST", "/erasures/{id}/refuse"): _ADMIN,
        ("POST", "/me/credentials"): _OWN,
        ("PUT", "/me/key"): _OWN,
        ("POST", "/users"): _ADMIN,
        ("POST", "/users/{name}/credentials"): _CONSUMING,
        ("PUT", "/users/{name}/key"): _CONSUMING,
        ("GET", "/applications"): _LOOKING,
        ("POST", "/applications"): _ADMIN,
        ("GET", "/applications/{id}"): _LOOKING | _OWN,
        ("DELETE", "/applications/{id}"): _ADMIN,
        ("GET", "/applications/{id}/users"): _LOOKING | _OWN,
        ("POST", "/applications/{id}/users"): _CONSUMING,
        ("DELETE", "/applications/{id}/users/{name}"): _CONSUMING,
        ("GET", "/keys/{key_id}"): _OWN,
        ("POST", "/keys/request"): _OWN,
        ("GET", "/keys"): _LOOKING,
        ("POST", "/keys/rotate"): _ADMIN,
        ("DELETE", "/keys/{key_id}"): _ADMIN,
        ("POST", "/registration"): _REGISTERING,
        ("POST", "/data"): _SENDING,
        ("GET", "/sources"): _LOOKING,
        ("DELETE", "/sources/{id}"): _ADMIN,
        ("GET", "/clients"): _LOOKING,
        ("GET", "/clients/{id}"): _LOOKING,
        ("DELETE", "/clients/{id}"): _RUNNING,
        ("GET", "/sessions"): _LOOKING,
        ("GET", "/sessions/{id}"): _LOOKING,
        ("DELETE", "/sessions/{id}"): _RUNNING,
        ("GET", "/subscriptions"): _LOOKING,
        ("GET", "/topics"): _LOOKING,
        ("GET", "/topics/{id}"): _LOOKING,
        ("DELETE", "/topics/{id}"): _RUNNING,
        ("GET", "/flows"): _LOOKING,
        ("POST", "/explain"): _LOOKING,
        ("GET", "/audit"): _LOOKING,
        ("GET", "/links/state"): _LOOKING,
        ("GET", "/pipeline"): _LOOKING,
        ("GET", "/pipeline/quality"): _LOOKING,
        ("GET", "/tokens"): _ADMIN,
        ("POST", "/tokens"): _ADMIN,
        ("DELETE", "/tokens/{id}"): _ADMIN,
        **{entry: roles for one in COLLECTIONS for entry, roles in _collection(one).items()},
    }
)


_NARROWED: Final = {one.kind: one.narrowed_by for one in COLLECTIONS}


def only_narrows(role: Role, kind: str) -> bool:
    """Whether a role may change documents of a kind only to narrow them."""
    return role in _NARROWED.get(kind, frozenset())


def kinds_changed_by(role: Role) -> list[str] | None:
    """The kinds of documents that a role may change, for a change that covers several; None: all."""
    if role is Role.ADMIN:
        return None
    return [one.kind for one in COLLECTIONS if one.changed_by is not None and role in one.changed_by]


def check(routes: Iterable[tuple[str, str]], allowed: Mapping[tuple[str, str], frozenset[Role]] = ALLOWED) -> None:
    """RuntimeError unless there is exactly one entry for every route."""
    found = set(routes)
    if strange := found ^ allowed.keys():
        raise RuntimeError(f"the table of routes and roles does not fit the routes: {sorted(strange)}")
