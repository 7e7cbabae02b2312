"""What the other node of a link understands of what preferences here call (semantics, *Preferences*).

A preference travels as text and is evaluated where somebody receives. A function that the node there does not have, or
a level or fact that it does not know, counts as false. So each node says its names when a link opens, and whoever has
preferences that call something else is told: `tidegate link show`, and the log.

It changes no decision.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.wire import cbor

if TYPE_CHECKING:
    from tidegate.gate import RuleSet
    from tidegate.scope.node_links import LinkEnd

KNOWN: Final = "$tidegate/link/known"
MOST: Final = 1_000  # names of one kind
_CALLED: Final = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_QUOTED: Final = re.compile(r"""["']([A-Za-z][\w.-]*)["']""")


def tell(end: LinkEnd) -> None:
    """The link has opened."""
    rules = end.scope.gate.rules
    names = [sorted(rules.functions)[:MOST], list(rules.levels.order), list(rules.levels.facts)[:MOST]]
    end.control.tell(KNOWN, cbor.canonical(names))


def take(end: LinkEnd, data: bytes) -> None:
    """The other node says what it knows, once on each connection. ProtocolError if that cannot be read."""
    end.site.effort += 100 + len(data) // 16 + len(end.scope.gate.rules.preferences)
    try:
        found = cbor.plain(data)
    except MalformedPacket as error:
        raise ProtocolError(f"names over a link that cannot be read: {error}") from error
    match found:
        case [list() as functions, list() as levels, list() as facts] if all(map(_names, (functions, levels, facts))):
            lacking = lacks(end.scope.gate.rules, functions, (*levels, *facts))
            if lacking != end.lacks:
                end.lacks = lacking
                for told in end.links.on_lack:
                    told(end.link.name, lacking)
        case _:
            raise ProtocolError("names over a link that are none")


def _names(values: list[object]) -> bool:
    return len(values) <= MOST and all(isinstance(each, str) for each in values)


def lacks(rules: RuleSet, functions: Iterable[str], levels: Iterable[str]) -> tuple[str, ...]:
    """The functions, levels and facts of this node that preferences here name, and that are not among these."""
    ours = {*rules.levels.order, *rules.levels.facts}
    called: set[str] = set()
    named: set[str] = set()
    for each in rules.preferences.preferences:
        called.update(_CALLED.findall(each.text or ""))
        named.update(_QUOTED.findall(each.text or ""))
    functions_missing = (called & rules.functions.keys()) - set(functions)
    return (*sorted(functions_missing), *sorted((named & ours) - set(levels)))
