"""What can flow where: the connection graph, and what follows from it.

`graph` holds entities, typed links and what may follow what; `route` finds one way and shows it; `reach` answers for
all pairs; `assertions` are what an administrator forbids or requires; `groups` are the scopes that trust each other;
`forest` tests a hierarchy; `bundles` are devices of which one can stand for all; `drawing` shows all that.
`presence` is where a client is, and `watch` says which forbidden flow it would open.
"""

from __future__ import annotations

from tidegate.flow.assertions import Assertion, Expect, Violation, violations
from tidegate.flow.forest import Cycle, TwoPaths, forest_fault
from tidegate.flow.graph import ConnectionGraph, Link, connection
from tidegate.flow.groups import groups
from tidegate.flow.reach import Reach
from tidegate.flow.route import Route, Search, shortest

__all__ = [
    "Assertion",
    "ConnectionGraph",
    "Cycle",
    "Expect",
    "Link",
    "Reach",
    "Route",
    "Search",
    "TwoPaths",
    "Violation",
    "connection",
    "forest_fault",
    "groups",
    "shortest",
    "violations",
]
