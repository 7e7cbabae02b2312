"""`tidegate status`, `reload` and `stop`: what can be asked of a running node over its control socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.options import Json, OptionalConfig, Port, Socket, with_options
from tidegate.cli.tables import aligned, bytes_text, show

_TITLES: Final = ("limit", "used", "of", "largest user", "used by it", "of it", "reached")
_RIGHT: Final = ("used", "of", "used by it", "of it", "reached")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options of every command that asks a running node."""

    config: OptionalConfig = None
    socket: Socket = None
    port: Port = 1883
    json: Json = False

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        from tidegate.config import Config, load_or_minimal
        from tidegate.net import control_socket

        socket = self.socket
        if socket is None:
            config = Config.ephemeral(self.port) if self.config is None else load_or_minimal(self.config)
            socket = config.control_socket
        answer: dict[str, Any] | None = control_socket.ask(socket, command, **arguments)
        return answer or {}


def with_node(run: Callable[..., None]) -> Callable[..., None]:
    """A command that gets `NodeOptions` in its first parameter."""
    return with_options(run, NodeOptions)


@with_node
def status(node: NodeOptions) -> None:
    """Show how a running node is doing.

    [dim]tidegate status -c tidegate.yaml[/dim]
    """
    answer = node.ask("status", users=True)
    if node.json:
        terminal.print_json(answer)
        return
    limits = answer.pop("limits", None)
    show(answer, json=False)
    for line in _limits_table(limits) if limits else ():
        terminal.out().print(line, soft_wrap=True)


@with_node
def reload(node: NodeOptions) -> None:
    """Make a running node read its file again.

    A broken file is refused whole, and the node goes on with the last good one.
    """
    terminal.done("reloaded", node.ask("reload"), json=node.json)


@with_node
def stop(node: NodeOptions) -> None:
    """Stop a running node: clients are told, everything is written, then it ends."""
    terminal.done("stopping", node.ask("stop"), json=node.json)


def _limits_table(limits: Mapping[str, Any]) -> Iterator[Text]:
    """A line for each bound: what is used of it, and how often it was reached."""
    from tidegate.config.units import duration_text

    rows: list[list[Text]] = []
    for name, bound in limits.items():
        words = name.replace("_", " ")
        if not isinstance(bound, dict):  # a time
            cells = ["", "no limit" if bound is None else duration_text(bound), "", "", "", ""]
        else:
            show = bytes_text if name.endswith("bytes") else _number
            most = bound.get("largest") or {}
            user_limit = bound.get("user_limit")
            rate = bound.get("address_rate")
            cells = [
                show(bound["used"]),
                show(bound["limit"]),
                terminal.harmless(str(most.get("user") or "")),
                show(most["used"]) if most.get("user") else "",
                show(user_limit) if user_limit is not None else f"{rate:g}/s",
                _number(bound["reached"]),
            ]
            if rate is not None:
                words, cells[2] = "refused connections by address", "each address"
        rows.append([Text(words), *map(Text, cells)])
    yield Text("")
    yield from aligned(_TITLES, rows, right=_RIGHT, cut=(("largest user", 12),))


def _number(value: float) -> str:
    return f"{value:,}"
