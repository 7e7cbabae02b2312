"""Categories of topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.written import class_of
from tidegate import topics
from tidegate.errors import ConfigError
from tidegate.policy.classify import Class, Classification


def test_sharing_section_2_2_1_sensitive_personal_or_generic() -> None:
    made = Classification(
        [
            class_of(topic="+/performance/+/heartbeats", category="sensitive"),
            class_of(topic="+/performance/#", category="personal"),
        ],
        default="generic",
    )
    assert made.category("tr1/performance/ts1/heartbeats") == "sensitive"
    assert made.category("tr1/performance/ts1/speed") == "personal"
    assert made.category("weather") == "generic"
    assert Classification(made.rows).category("weather") is None


filters = st.sampled_from(["#", "a/#", "a/+", "+/b", "a", "$SYS/#"])


@given(st.lists(filters), st.sampled_from(["a", "a/b", "b", "$SYS/b", "a/b/c"]))
def test_the_first_row_that_matches_counts(rows: list[str], topic: str) -> None:
    made = Classification([Class(topic=filter, category=str(n)) for n, filter in enumerate(rows)])
    expected = next((str(n) for n, filter in enumerate(rows) if topics.matches(filter, topic)), None)
    assert made.category(topic) == expected


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ConfigError, match="no topic filter"):
        class_of(topic="a/#/b", category="x")
