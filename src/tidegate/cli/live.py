"""`tidegate clients|sessions|topics|subscriptions …`: who and what is there now, over the control socket of a node."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from tidegate.cli import terminal
from tidegate.cli.node_commands import NodeOptions, with_node
from tidegate.cli.tables import show

PAGE: Final = 500
Scope = Annotated[str | None, typer.Option("--scope", help="In this scope only.", metavar="NAME")]
User = Annotated[str | None, typer.Option("--user", help="Of this user only.", metavar="NAME")]
Limit = Annotated[int, typer.Option("--limit", help="At most so many.", min=1)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would happen.")]
Why = Annotated[str, typer.Option("--why", help="The reason, for the audit.", metavar="TEXT")]
ClientId = Annotated[str, typer.Argument(help="Its client identifier.", show_default=False, metavar="CLIENT")]
TopicName = Annotated[str, typer.Argument(help="The topic.", show_default=False, metavar="TOPIC")]
_MOST: Final = 1000

clients = terminal.command_group("Clients that are connected to a running node.")
sessions = terminal.command_group("Sessions of a running node, also of those who are away.")
topics = terminal.command_group("Retained messages of a running node.")
subscriptions = terminal.command_group("Subscriptions of a running node.")


@clients.command("list")
@with_node
def list_clients(node: NodeOptions, scope: Scope = None, user: User = None, limit: Limit = _MOST) -> None:
    """List who is connected: as whom, from where, since when, and what waits for them.

    [dim]tidegate clients list -c tidegate.yaml[/dim]
    """

    def columns(row: Mapping[str, Any]) -> dict[str, object]:
        return {
            **{name: row[name] for name in ("client", "user", "scope", "level", "address", "protocol")},
            "since": _moment(row["since"]),
            **_counts(row),
        }

    _list(node, "client_list", columns, limit, none="Nobody is connected.", scope=scope, user=user)


@clients.command("show")
@with_node
def show_client(node: NodeOptions, client: ClientId, scope: Scope = None, user: User = None) -> None:
    """Show one client: its subscriptions, its queue, and what was denied to it lately.

    [dim]tidegate clients show treadmill-1 -c tidegate.yaml[/dim]
    """
    _show(node, node.ask("client_show", client=client, scope=scope, user=user))


@clients.command("disconnect")
@with_node
def disconnect(
    node: NodeOptions,
    client: ClientId,
    scope: Scope = None,
    user: User = None,
    why: Why = "",
    dry_run: DryRun = False,
) -> None:
    """Disconnect a client. Its session stays, and it may connect again.

    [dim]tidegate clients disconnect treadmill-1 --why maintenance -c tidegate.yaml[/dim]
    """
    done = _end(node, "client_disconnect", dry_run, why, client=client, scope=scope, user=user)
    _done(node, done, f"client {client}", "disconnected", dry_run)


@sessions.command("list")
@with_node
def list_sessions(
    node: NodeOptions,
    scope: Scope = None,
    user: User = None,
    away: Annotated[bool, typer.Option("--away", help="Only of those who are not connected.")] = False,
    limit: Limit = _MOST,
) -> None:
    """List sessions, also of those who are away.

    [dim]tidegate sessions list --away -c tidegate.yaml[/dim]
    """

    def columns(row: Mapping[str, Any]) -> dict[str, object]:
        return {
            **{name: row[name] for name in ("client", "user", "scope", "connected")},
            "since": _moment(row["since"]),
            "expires": _moment(row["expires"]),
            **_counts(row),
        }

    _list(node, "session_list", columns, limit, none="There are no sessions.", scope=scope, user=user, away=away)


@sessions.command("show")
@with_node
def show_session(node: NodeOptions, client: ClientId, scope: Scope = None, user: User = None) -> None:
    """Show one session, of somebody who may be away.

    [dim]tidegate sessions show treadmill-1 -c tidegate.yaml[/dim]
    """
    _show(node, node.ask("client_show", client=client, scope=scope, user=user, connected=False))


@sessions.command("drop")
@with_node
def drop(
    node: NodeOptions,
    client: ClientId,
    scope: Scope = None,
    user: User = None,
    why: Why = "",
    dry_run: DryRun = False,
) -> None:
    """Drop a session, with its subscriptions and all that it is owed.

    [dim]tidegate sessions drop treadmill-1 --dry-run -c tidegate.yaml[/dim]
    """
    done = _end(node, "session_drop", dry_run, why, client=client, scope=scope, user=user)
    _done(node, done, f"session of {client}", "dropped", dry_run)


@topics.command("list")
@with_node
def list_topics(
    node: NodeOptions,
    under: Annotated[
        str | None, typer.Argument(help="The names right below this one. Default: the first level.", metavar="TOPIC")
    ] = None,
    scope: Scope = None,
    limit: Limit = _MOST,
) -> None:
    """List retained messages as a tree, one level of it.

    [dim]tidegate topics list tr1/performance -c tidegate.yaml[/dim]
    """

    def columns(row: Mapping[str, Any]) -> dict[str, object]:
        message = row["retained"] or {}
        return {
            "topic": row["topic"],
            "scope": row["scope"],
            "below": row["below"],
            "bytes": message.get("bytes"),
            "published": _moment(message.get("published")),
            "publisher": message.get("publisher"),
        }

    _list(node, "topic_list", columns, limit, none="No message is retained there.", scope=scope, under=under)


@topics.command("show")
@with_node
def show_topic(node: NodeOptions, topic: TopicName, scope: Scope = None) -> None:
    """Show a retained message, without its content.

    [dim]tidegate topics show tr1/performance/ts1/speed -c tidegate.yaml[/dim]
    """
    _show(node, node.ask("topic_show", topic=topic, scope=scope))


@topics.command("clear")
@with_node
def clear(node: NodeOptions, topic: TopicName, scope: Scope = None, why: Why = "", dry_run: DryRun = False) -> None:
    """Clear a retained message, in one scope or in all of the node.

    [dim]tidegate topics clear tr1/performance/ts1/speed -c tidegate.yaml[/dim]
    """
    done = _end(node, "topic_clear", dry_run, why, topic=topic, scope=scope)
    _done(node, done, f"topic {topic}", "cleared", dry_run)


@subscriptions.command("list")
@with_node
def list_subscriptions(
    node: NodeOptions,
    client: Annotated[str | None, typer.Option("--client", help="Of this client only.", metavar="CLIENT")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Those that match it.", metavar="TOPIC")] = None,
    scope: Scope = None,
    user: User = None,
    limit: Limit = _MOST,
) -> None:
    """List subscriptions: of a client, or those that match a topic.

    [dim]tidegate subscriptions list --topic tr1/performance/ts1/speed -c tidegate.yaml[/dim]
    """

    options = {"scope": scope, "user": user, "client": client, "topic": topic}
    _list(node, "subscription_list", _subscription, limit, none="There are no subscriptions.", **options)


@subscriptions.command("show")
@with_node
def show_subscriptions(
    node: NodeOptions, client: ClientId, scope: Scope = None, user: User = None, limit: Limit = _MOST
) -> None:
    """Show the subscriptions of one client, also while it is away.

    [dim]tidegate subscriptions show treadmill-1 -c tidegate.yaml[/dim]
    """
    node.ask("client_show", client=client, scope=scope, user=user, connected=False)  # there is exactly one of them
    options = {"scope": scope, "user": user, "client": client}
    _list(node, "subscription_list", _subscription, limit, none="It has no subscriptions.", **options)


# -- asking, and showing -----------------------------------------------------------------------------------------------


def _list(
    node: NodeOptions,
    command: str,
    columns: Callable[[Mapping[str, Any]], dict[str, object]],
    limit: int,
    *,
    none: str,
    **arguments: Any,
) -> None:
    from tidegate.cli.administration import output

    items = list(_pages(node, command, limit + 1, arguments))
    more, items = len(items) > limit, items[:limit]
    output.listing(items, columns, none=none, json=node.json, whole=("client", "topic", "filter"))
    if more:
        terminal.note(f"There are more: these are the first {limit:,}; --limit shows more of them.")


def _pages(node: NodeOptions, command: str, limit: int, arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    after: str | None = None
    while limit:
        page = node.ask(command, **arguments, after=after, limit=min(limit, PAGE))
        yield from page["items"]
        limit -= len(page["items"])
        after = page["next"]
        if after is None:
            return


def _show(node: NodeOptions, answer: dict[str, Any]) -> None:
    if not node.json:
        for row in (answer, *answer.get("denials", ()), *answer.get("retained", ())):
            for name in ("since", "expires", "published", "at"):
                if row.get(name) is not None:
                    row[name] = _moment(row[name])
    show(answer, json=node.json)


def _end(node: NodeOptions, command: str, dry_run: bool, why: str, **what: Any) -> dict[str, Any]:
    return node.ask(command, by=f"uid:{os.getuid()}", why=why, dry_run=dry_run, **what)


def _done(node: NodeOptions, done: dict[str, Any], what: str, verb: str, dry_run: bool) -> None:
    text = f"{what} would be {verb}, and nothing was changed" if dry_run else f"{what} {verb}"
    terminal.done(text, {**done, "dry_run": dry_run}, json=node.json)


def _subscription(row: Mapping[str, Any]) -> dict[str, object]:
    return {name: row[name] for name in ("filter", "client", "user", "scope", "qos", "held", "where")}


def _counts(row: Mapping[str, Any]) -> dict[str, object]:
    subscriptions, queue = row["subscriptions"], row["queue"]
    return {
        "subscriptions": subscriptions["granted"],
        "held": subscriptions["held"],
        "refused": subscriptions["refused"],
        "queue": queue["messages"] + queue["in_flight"] + queue["waiting_for_level"],
    }


def _moment(at: float | None) -> str | None:
    from datetime import datetime

    return None if at is None else f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}"
