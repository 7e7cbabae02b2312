"""What a frame says about a message's remaining time."""

from __future__ import annotations

import pytest

from tidegate import wire
from tidegate.session import Message, Origin
from tidegate.session.frames import parts


def left(interval: int, *, published: float, now: float) -> int | None:
    """The interval in the frame of a message that came with `interval` when the clock showed `published`."""
    message = Message("t", b"x", 0, False, 0.0, Origin("0" * 16, 0), 1, b"", "", expires=published + interval)
    head, tail = parts(message, wire.V5, 0, False, (), now)
    frame = head + tail
    packet = wire.decode(frame[0], frame[2:], wire.V5)
    assert isinstance(packet, wire.Publish)
    return packet.properties.message_expiry_interval


@pytest.mark.parametrize("interval", [1, 2, 100, 3600])
def test_no_message_lives_longer_than_its_publisher_said(interval: int) -> None:
    """Also where adding the interval to the clock, and subtracting the clock again, gives a little more."""
    clocks = [2.0**exponent - part for exponent in range(8, 24) for part in (0.1, 0.7, 1.3, 33.3, 99.9, 3000.7)]
    assert any((now + interval) - now > interval for now in clocks), "otherwise nothing is put to the test"
    assert {left(interval, published=now, now=now) for now in clocks} == {interval}


def test_the_time_that_it_waited_is_subtracted() -> None:
    assert left(100, published=5000.25, now=5010.25) == 90
    assert left(100, published=5000.25, now=5010.75) == 90
    assert left(100, published=5000.25, now=5100.0) == 1
