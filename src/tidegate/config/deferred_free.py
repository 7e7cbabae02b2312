"""Letting go of a configuration piece by piece.

To free ten thousand policies at once takes tens of milliseconds in which no other thread runs. Here each piece is let
go of by itself, in a thread of its own, so that others run in between.
"""

from __future__ import annotations

from typing import Any

from tidegate.config.model import Config
from tidegate.config.tree import Node


def free_configs(held: list[Config]) -> None:
    """Lets go of what `held` holds; whoever calls it has no other reference to it."""
    pieces: list[Any] = []
    for config in held:
        built = config.built
        pieces += (*config.preferences, *config.views, *config.classify, *config.tests)
        if isinstance(config.policies, tuple):
            pieces += config.policies
        for people in (config.directory, built.directory):
            pieces += (*people.users.values(), *people.clients.values())
        rules = built.rules
        pieces += (*rules.preferences.preferences, *rules.views.rows, *built.presences)
        if rules.policies is not None:
            pieces += rules.policies.pieces()
        pieces += _nodes(config.tree)
    del config, built, rules, people
    held.clear()
    pieces.reverse()  # what holds others goes before them
    while pieces:
        pieces.pop()


def free_data(data: Any) -> None:
    """Lets go of plain lists and dicts."""
    heap = [data]
    while heap:
        match heap.pop():
            case dict() as entries:
                heap += entries.values()
                entries.clear()
            case list() as items:
                heap += items
                items.clear()


def _nodes(tree: Node | None) -> list[Node]:
    found = [] if tree is None else [tree]
    for node in found:  # grows while it is walked through
        match node.value:
            case dict() as entries:
                found += entries.values()
            case list() as items:
                found += items
    return found
