"""One QoS 1 message on the general path crosses few rooms, and the drawing in docs/design/ shows which."""

from __future__ import annotations

from scope.rooms_crossed import DRAWING, drawing, walk


def test_a_message_crosses_at_most_ten_times() -> None:
    rooms = walk()
    assert len(rooms) - 1 <= 10, " -> ".join(rooms)
    assert DRAWING.read_text() == drawing(rooms), "run `python tests/scope/rooms_crossed.py --update`"
