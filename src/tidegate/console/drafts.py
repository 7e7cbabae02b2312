"""A policy that would allow exactly what was denied, and a test that says what was decided: drafts, to be read first.

Names may hold anything: what a filter or a subject could take for more than a name goes into the condition, quoted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from tidegate.gate import Step

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.@-]{1,200}")
_CONTROL: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "\\'"}


def is_of_policies(told: Mapping[str, Any]) -> bool:
    """Whether it was a policy, or that there is none, which denied: nothing else can be allowed by a policy."""
    return told["step"] in (Step.WRITE.value, Step.READ.value, "subscribe") and told["part"] in (None, "policies")


def policy(told: Mapping[str, Any]) -> str:
    """As YAML, for the decision that `explain` has told of."""
    s = told["as"]["s"]
    conditions: list[str] = []
    subject = _subject(s, conditions)
    body: dict[str, Any] = {
        "id": f"allow-{hashlib.sha256(repr((subject, told['topic'], told['action'])).encode()).hexdigest()[:8]}",
        "subject": subject,
        "topic": told["topic"].replace("{", "{{").replace("}", "}}"),
        "action": "write" if told["action"] == "write" else "read",
    }
    if conditions:
        body["when"] = " && ".join(conditions)
    return written(body)


def _subject(s: Mapping[str, Any], conditions: list[str]) -> str:
    user, client = s.get("user"), s.get("client")
    subject = "*"
    for kind, name in (("user", user), ("client", client)):
        if not name:
            continue
        if subject == "*" and _PLAIN.fullmatch(name):
            subject = f"{kind}:{name}"
        else:
            conditions.append(f"has(s.{kind}) && s.{kind} == {quoted(name)}")
    return subject


def quoted(text: str) -> str:
    """As a string of CEL."""
    said = "".join(
        _CONTROL.get(each) or (each if each.isprintable() else f"\\u{ord(each):04x}" if ord(each) < 0x10000 else each)
        for each in text
    )
    return f"'{said}'"


def test(asked: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """A line for `tests:` of the configuration: that it stays as it was decided now."""
    said: dict[str, Any] = {"as": asked["as"], "action": asked["action"], "topic": asked["topic"]}
    if asked.get("from"):
        said["from"] = asked["from"]
    said["expect"] = told["verdict"]
    if told["rule"] and not told["allowed"]:
        said["by"] = told["rule"]
    return written([said])


def written(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110))
