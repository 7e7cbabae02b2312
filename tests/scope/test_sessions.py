"""Sessions are found by their key, and in the order of their client identifiers."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tidegate.scope.sessions import FIRST, Sessions

KEYS = st.tuples(st.sampled_from(["user:a", "user:b", "", "\U0010ffff"]), st.sampled_from(["", "x", "xy", "y", "é"]))


@given(st.lists(st.tuples(st.sampled_from(["set", "del", "pop"]), KEYS), max_size=30), st.integers(1, 4))
def test_pages_are_what_is_there(steps: list[tuple[str, tuple[str, str]]], size: int) -> None:
    sessions, plain = Sessions(), dict[tuple[str, str], Any]()
    for number, (step, key) in enumerate(steps):
        match step:
            case "set":
                sessions[key] = plain[key] = cast(Any, number)
            case "del" if key in plain:
                del sessions[key], plain[key]
            case _:
                assert sessions.pop(key, None) == plain.pop(key, None)
    assert dict(sessions) == plain
    found, place, inclusive = [], FIRST, True
    while page := sessions.after(place, size, inclusive=inclusive):
        found += page
        place, inclusive = page[-1][0], False
    assert found == sorted(((client, principal), plain[principal, client]) for principal, client in plain)
    for client in ("", "x", "y"):
        named = [value for (_, name), value in sorted(plain.items()) if name == client]
        assert sessions.named(client, 10) == named
