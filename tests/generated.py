"""How many examples Hypothesis makes: as many as have found something in every run, and many more in `make soak`."""

from __future__ import annotations

import os
from typing import Final

_LONG: Final = os.environ.get("TIDEGATE_EXAMPLES") == "long"


def examples(usual: int, long: int) -> int:
    """`usual` in each run of the tests, `long` in `make soak`."""
    return long if _LONG else usual
