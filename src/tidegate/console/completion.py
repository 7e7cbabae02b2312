"""What can be completed in a rule: keys of its kind, values, people and devices, and words of CEL."""

from __future__ import annotations

from typing import Final

import orjson
from fastapi import Request

from tidegate.api.documents import page
from tidegate.api.schemas import SECTIONS

NAMED: Final = 200  # of each kind
_VALUES: Final = {
    "effect": ["allow", "deny"],
    "action": ["read", "write", "[read, write]"],
    "each": ["client", "link", "scope"],
    "direction": ["im_pub", "im_sub", "ex_pub", "ex_sub"],
    "keep": ["all", "[/value]"],
}
_CEL: Final = (
    *(f"s.{name}" for name in ("user", "client", "roles", "groups", "level", "scope", "address", "kind", "domain")),
    *(f"o.{name}" for name in ("topic", "levels", "payload", "category", "qos", "retain", "size", "scores")),
    *(f"e.{name}" for name in ("now", "hour", "weekday", "date", "location", "purpose")),
    *(f"p.{name}" for name in ("user", "client", "time", "floor", "roles")),
    *("has(", "matchesFilter(", "within(", "age(", "cidr(", "sets.contains(", "sets.intersects(", "startsWith("),
)  # fmt: skip
_SUBJECTS: Final = (("user", "user"), ("client", "client"), ("role", "role"), ("group", "group"))


async def words(request: Request, kind: str) -> str:
    """What can be completed in a document of a kind, as JSON."""
    subjects = ["*"]
    users: list[str] = []
    for known, prefix in _SUBJECTS:
        ids = [each["id"] for each in (await page(request, known, NAMED, None))["items"]]
        subjects += [f'"{prefix}:{id}"' for id in ids]
        users += ids if known == "user" else []
    model = SECTIONS.get(kind)
    keys = [] if model is None else [each.alias or name for name, each in model.model_fields.items() if name != "id"]
    values = {**_VALUES, "subject": subjects, "for": subjects, "user": users, "when": list(_CEL), "payload": list(_CEL)}
    return orjson.dumps({"keys": keys, "values": values, "names": [*subjects, *_CEL]}).decode()
