"""A monitor that says later what it was told before."""

from __future__ import annotations

from tidegate.monitor import Event


class Later:
    """Puts out the payload of the event before, under another topic."""

    def start(self) -> str | None:
        return None

    def step(self, state: str | None, event: Event) -> tuple[str | None, list[Event]]:
        payload = event.payload.decode()
        if payload == "forget":
            return None, [event]
        return payload, [] if state is None else [event.changed(topic="later", payload=state.encode())]
