"""The rooms that one QoS 1 message crosses from socket to socket: traced, and drawn for docs/design/rooms.md.

`python tests/scope/rooms_crossed.py --update` writes the drawing again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

from pure import World
from tidegate import wire

DRAWING = Path(__file__).parents[2] / "docs/design/message-walk.svg"
PACKAGE = "/src/tidegate/"
WIDTH, HEIGHT, GAP = 74, 40, 20


def traced(action: Callable[[], None]) -> list[str]:
    """The rooms whose code runs while `action` does, in order; a room that control returns to counts again."""
    running: list[str] = []

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        current: FrameType | None = frame if event == "call" else frame.f_back
        while current is not None and PACKAGE not in current.f_code.co_filename:
            current = current.f_back
        if current is not None and event in ("call", "return"):
            running.append(current.f_code.co_filename.partition(PACKAGE)[2].partition("/")[0])

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return [room for room, _ in groupby(running)]


def walk() -> list[str]:
    """A PUBLISH of QoS 1 with properties, so that nothing about it is quick; its plan is known."""
    world = World()
    subscriber, publisher = world.peer("subscriber"), world.peer("publisher")
    subscriber.subscribe("a/b", 1)
    properties = wire.Properties(content_type="text/plain")
    frames = [
        wire.encode(wire.Publish(topic="a/b", payload=b"x", qos=1, packet_id=pid, properties=properties), wire.V5)
        for pid in (1, 2)
    ]
    publisher.feed(frames[0])
    world.turn()
    subscriber.take()

    def publish() -> None:
        publisher.feed(frames[1])
        world.site.close()

    rooms = traced(publish)
    assert [packet.payload for packet in subscriber.take() if isinstance(packet, wire.Publish)] == [b"x"]
    return ["net", *rooms, "net"]


def drawing(rooms: list[str]) -> str:
    """The walk as a row of boxes."""
    width = len(rooms) * (WIDTH + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 80" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="80" fill="#ffffff"/>',
    ]
    for place, room in enumerate(rooms):
        x = GAP + place * (WIDTH + GAP)
        colour = {"net": "#e2e8f0", "session": "#dbeafe", "scope": "#dcfce7", "wire": "#fef3c7"}.get(room, "#fce7f3")
        parts.append(
            f'<rect x="{x}" y="20" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{colour}" stroke="#475569"/>'
        )
        parts.append(f'<text x="{x + WIDTH // 2}" y="45" text-anchor="middle" fill="#0f172a">{room}/</text>')
        if place:
            parts.append(f'<path d="M{x - GAP + 2} 40h{GAP - 6}m-5 -4l5 4l-5 4" fill="none" stroke="#475569"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__" and sys.argv[1:] == ["--update"]:
    DRAWING.write_text(drawing(walk()))
