"""Messages that the data pipeline publishes again after a crash are delivered once.

Each of its messages has an id, in the user property `id`, that is the same whenever it is published. That it is one of
the pipeline is told by the user property `scores`, which nobody else can send through a Tidegate node: an application's
own `id` means nothing here.

- The same id counts by topic, and by subscription where these have identifiers: a monitor may send one message to
  several topics, and overlapping subscriptions may each be meant.
- A retained message is always delivered: who subscribes again wants to know what is there now.
- One that could not be opened is delivered and not remembered, for the next copy may be.
- What was delivered before the last so many ids is forgotten, and nothing survives the process.
"""

from __future__ import annotations

from tidegate.bounded import Newest
from tidegate.client.decryption import Message

Key = tuple[str, str, tuple[int, ...]]


class Deduplicator:
    """Remembers the last `most` messages of the pipeline."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: Newest[Key, None] = Newest(most)

    def again(self, message: Message) -> bool:
        """Whether it was delivered already; from now on it was."""
        id = message.id
        if id is None or message.error is not None or not self._most:
            return False
        subscriptions = tuple(getattr(message.properties, "SubscriptionIdentifier", None) or ())
        key = (message.topic, id, subscriptions)
        known = key in self._keys
        if not known:
            self._keys[key] = None
        return known and not message.retain
