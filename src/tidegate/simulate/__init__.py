"""The executable model: what the seed's section 3.3 says ("scopes"), as functions to run.

In the order of reading: `schema` is what a system is, `state` what it is in, `order` what may come first, `steps` what
happens. `automata` and `visibility` are what administrators put in, `configured` takes it from a configuration.
`scenario` says what devices do and what is expected of it, `run` how things go on, `explore` (with `fewer`) what can
come of it, `trace` how it came.
"""

from __future__ import annotations

from tidegate.simulate.automata import Drawn, Filtering, Plugged, Posted, Renaming
from tidegate.simulate.configured import configured
from tidegate.simulate.expectation import Expectation
from tidegate.simulate.explore import Unfinished, outcomes, patient, reachable, realise, walk
from tidegate.simulate.order import NORMAL, select
from tidegate.simulate.run import Outcome, Run
from tidegate.simulate.scenario import Change, Filters, Publication, Rounds, Scenario, parse
from tidegate.simulate.schema import (
    IDENTITY,
    Annotated,
    Broker,
    BrokeringPolicy,
    ConnectionGraph,
    EditAutomaton,
    Entity,
    Link,
    Order,
    Schema,
    Symbol,
    Transmit,
    joined,
)
from tidegate.simulate.state import State, initial
from tidegate.simulate.steps import Rule, Step, steps, t_broker, t_deliver, t_notify, t_publish
from tidegate.simulate.trace import Row, rows

__all__ = [
    "IDENTITY",
    "NORMAL",
    "Annotated",
    "Broker",
    "BrokeringPolicy",
    "Change",
    "ConnectionGraph",
    "Drawn",
    "EditAutomaton",
    "Entity",
    "Expectation",
    "Filtering",
    "Filters",
    "Link",
    "Order",
    "Outcome",
    "Plugged",
    "Posted",
    "Publication",
    "Renaming",
    "Rounds",
    "Row",
    "Rule",
    "Run",
    "Scenario",
    "Schema",
    "State",
    "Step",
    "Symbol",
    "Transmit",
    "Unfinished",
    "configured",
    "initial",
    "joined",
    "outcomes",
    "parse",
    "patient",
    "reachable",
    "realise",
    "rows",
    "select",
    "steps",
    "t_broker",
    "t_deliver",
    "t_notify",
    "t_publish",
    "walk",
]
