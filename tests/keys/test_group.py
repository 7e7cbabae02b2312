"""Which messages share a key."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

import pytest

from tidegate.keys import Group, protecting

SAME = {
    "filter": "a/#",
    "conditions": ["deny-overrides", "p1 allow role:doctor"],
    "preferences": ["u1 s.user == 'bob'"],
    "owner": "mary",
    "domain": "home",
    "demand": "tls",
}


def group(**changed: object) -> Group:
    return Group.of(**{**SAME, **changed})  # type: ignore[arg-type]


DIFFERENT = {
    "the same": group(),
    "topic group": group(filter="a/b/#"),
    "a policy more": group(conditions=["deny-overrides", "p1 allow role:doctor", "p2"]),
    "another combining": group(conditions=["first-applicable", "p1 allow role:doctor"]),
    "another order": group(conditions=["p1 allow role:doctor", "deny-overrides"]),
    "texts cut elsewhere": group(conditions=["deny-overridesp1 ", "allow role:doctor"]),
    "another preference": group(preferences=["u1 s.user == 'eve'"]),
    "one preference more": group(preferences=["u1 s.user == 'bob'", ""]),
    "no preferences": group(preferences=[]),
    "another owner": group(owner="alice"),
    "nobody": group(owner=None),
    "another domain": group(domain="gym"),
    "a higher demand": group(demand="mtls"),
    "no demand": group(demand=None),
    "a demand without a name": group(demand=""),
}


@pytest.mark.parametrize(("one", "other"), [*combinations(DIFFERENT, 2)])
def test_messages_that_differ_do_not_share_a_key(one: str, other: str) -> None:
    assert DIFFERENT[one] != DIFFERENT[other]
    assert DIFFERENT[one].id != DIFFERENT[other].id


def test_owners_without_preferences_share_a_key() -> None:
    assert group(preferences=[], owner="mary") == group(preferences=(), owner="bob", domain="elsewhere")
    assert group(preferences=[]).owner is None


def test_the_witness_does_not_tell_groups_apart() -> None:
    one, other = group(topic="a/1", context=b"mary's phone"), group(topic="a/2")
    assert one == other
    assert hash(one) == hash(other)
    assert one.topic == "a/1"


def test_iterators_are_read_once() -> None:
    texts = ("deny-overrides", "p1 allow role:doctor")
    assert group(conditions=iter(texts), preferences=iter(["u1 s.user == 'bob'"])) == group()


def test_the_id_is_the_same_in_every_process() -> None:
    script = (
        "from tidegate.keys import Group\n"
        "print(Group.of(filter='a/#', conditions=['p', 'q'], preferences=['u1'], owner='mary').id)"
    )
    ids = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert ids == {Group.of(filter="a/#", conditions=["p", "q"], preferences=["u1"], owner="mary").id + "\n"}


def test_the_id_never_changes() -> None:
    """Stored keys are found again after an update: changing the digest needs a new version."""
    assert Group.of(filter="a/#", conditions=["c"], demand="tls").id == "b8da9cccc90363d29753e130f0f38467"


@pytest.mark.parametrize(
    ("topic", "entry"),
    [("a/b/c", "a/b/#"), ("a/x", "a/#"), ("a", "a/#"), ("b", None), ("$SYS/a", None), ("t/1/x", "t/+/x")],
)
def test_the_first_filter_that_matches_protects(topic: str, entry: str | None) -> None:
    assert protecting(["a/b/#", "a/#", "t/+/x"], topic) == entry


def test_a_wildcard_protects_no_dollar_topics() -> None:
    assert protecting(["#"], "$tidegate/keys/x") is None
