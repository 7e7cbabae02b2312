"""`${NAME}` in values."""

from __future__ import annotations

import pytest

from tidegate.config.tree import BadReference, expand

VARIABLES = {"PORT": "1884", "HOST": "127.0.0.1", "EMPTY": "", "NESTED": "${PORT}", "_x9": "ok"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("${PORT}", "1884"),
        ("mqtt://${HOST}:${PORT}/", "mqtt://127.0.0.1:1884/"),
        ("a${EMPTY}b", "ab"),
        ("${_x9}", "ok"),
        ("${NESTED}", "${PORT}"),  # once, not again
        ("$${PORT}", "${PORT}"),
        ("$${", "${"),
        ("$$${PORT}", "$${PORT}"),
        ("$PORT $ {PORT} $$", "$PORT $ {PORT} $$"),
        ("$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaA", "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaA"),
    ],
)
def test_references_are_replaced(text: str, result: str) -> None:
    assert expand(text, VARIABLES) == result


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${MISSING}", "the environment variable `MISSING` is not set"),
        ("${PORT", "is never closed"),
        ("${}", "names no variable"),
        ("${a-b}", "names no variable"),
        ("${9}", "names no variable"),
        ("${PORT:-1}", "names no variable"),
        ("ok ${PORT} and ${MISSING}", "`MISSING` is not set"),
    ],
)
def test_references_that_cannot_be_replaced(text: str, reason: str) -> None:
    with pytest.raises(BadReference) as refused:
        expand(text, VARIABLES)
    assert reason in str(refused.value)
    assert "; " in str(refused.value), "it says how to mend it"
