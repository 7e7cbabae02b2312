"""What imported policies decide, through the texts that are written into the configuration."""

from __future__ import annotations

from typing import Any

import yaml

from policy.people import HOME, Person
from policy.written import policy_of
from tidegate import policy
from tidegate.importing import Imported, to_yaml


def rules(imported: Imported) -> policy.Policies:
    """The policies as they are read back from the YAML text."""
    data = yaml.safe_load(to_yaml(imported, "source"))
    assert data["version"] == 1
    made = [policy_of(**{**entry, **_unescaped(entry)}) for entry in data["policies"]]
    return policy.Policies(made, policy.Combining(data["combining"]), domain=HOME)


def _unescaped(entry: dict[str, Any]) -> dict[str, Any]:
    """The configuration reads `$${` as the text `${`."""
    return {key: value.replace("$${", "${") for key, value in entry.items() if isinstance(value, str)}


def allowed(policies: policy.Policies, who: Person, action: str, topic: str, **message: Any) -> bool:
    o = {"topic": topic, "levels": topic.split("/"), "qos": 0, "retain": False, "size": 0, "properties": {}, **message}
    answer = policies.decide(policy.Action(action), who, topic, {"o": o, "e": {}, "p": {}})
    assert isinstance(answer, policy.Permit | policy.Refuse), answer
    if isinstance(answer, policy.Refuse):
        assert answer.error is None, answer  # conditions that are written here do not fail
    return isinstance(answer, policy.Permit)
