"""Topics on which clients speak to the node itself, and where it answers (interfaces, *control topics*)."""

from __future__ import annotations

from typing import Final

from tidegate.policy.publisher_rules import CONTROL

GET_KEY: Final = "$tidegate/keys/get"
"""A reader asks for the key of a message."""
PUBLISH_KEY: Final = "$tidegate/keys/publish"
"""A publisher that encrypts by itself asks for the key of a topic."""
ANSWER: Final = "$tidegate/keys/answer"
"""Where both are answered: everybody finds only what is said to them."""

KEYS: Final = frozenset((GET_KEY, PUBLISH_KEY))
SAID: Final = KEYS | {CONTROL}
"""What clients write, and nobody reads."""
