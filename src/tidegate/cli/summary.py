"""What `tidegate check` tells about a configuration that is fine. Never a password or a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.config import ClientCert, Config, Listener, Policies


def facts(config: Config) -> dict[str, Any]:
    """The summary for scripts."""
    return {
        "node": config.node.name,
        "domain": config.node.domain,
        "data": None if config.node.data is None else str(config.node.data),
        "policies": _policies(config),
        "policy_version": config.built.policy_version,
        "preferences": len(config.preferences),
        "views": len(config.views),
        "monitors": len(config.monitors),
        "durability": str(config.durability),
        "scopes": list(config.scopes),
        "listeners": [{"url": str(each.url), "scope": each.scope, "admits": admits(each)} for each in config.listeners],
        "users": len(config.directory.users),
        "clients": len(config.directory.clients),
        "limits": config.limits.model_dump(mode="json"),
    }


def admits(listener: Listener) -> list[str]:
    """Who may connect to a listener."""
    match listener.client_cert:
        case ClientCert.REQUIRED:
            return ["certificate"]
        case ClientCert.OPTIONAL:
            ways = ["certificate", "password"]
        case _:
            ways = ["password"]
    return [*ways, "anonymous"] if listener.anonymous else ways


def _policies(config: Config) -> str | int:
    """How many there are; `open` if everything passes, `deny` if there is none."""
    if config.policies is Policies.OPEN:
        return "open"
    return len(config.policies) if config.policies else "deny"


def _said(config: Config) -> str:
    match _policies(config):
        case "open":
            return "open: everything passes"
        case "deny":
            return "none: nothing passes"
        case number:
            more = {"preferences": len(config.preferences), "views": len(config.views)}
            told = "".join(f", {count:,} {name}" for name, count in more.items() if count)
            return f"{number:,}{told}; {config.combining.value}"


def table(config: Config, file: Path) -> RenderableType:
    """The summary for people."""
    listeners = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in ("listener", "scope", "admits", "connections", "max packet"):
        listeners.add_column(title, no_wrap=title == "listener")
    limits = config.limits.model_dump(mode="json")
    sizes = [each.model_dump(mode="json")["max_packet"] for each in config.listeners]
    for each, largest in zip(config.listeners, sizes, strict=True):
        listeners.add_row(
            Text(str(each.url), style="cyan"),
            each.scope,
            " or ".join(admits(each)),
            f"{each.max_connections:,}",
            largest,
        )
    rest = Table.grid(padding=(0, 2))
    rest.add_column(style="bold")
    rest.add_column()
    rest.add_row("policies", Text(_said(config)))
    if config.monitors:
        rest.add_row("monitors", f"{len(config.monitors):,}")
    rest.add_row("directory", f"{len(config.directory.users):,} users, {len(config.directory.clients):,} clients")
    rest.add_row(
        "data", Text("none: nothing survives a restart" if config.node.data is None else str(config.node.data))
    )
    rest.add_row("durability", str(config.durability))
    queue = limits["queue"]
    rest.add_row("queues", f"{queue['messages']:,} messages or {queue['bytes']} per session, then {queue['full']}")
    rest.add_row(
        "sessions", f"kept {limits['session_expiry'] or 'as long as the client asks'} after the client disconnects"
    )
    heading = Text.assemble(("✓ ", "bold green"), (str(file), "bold"), f" is fine: node {config.node.name}")
    return Group(heading, listeners, rest)
