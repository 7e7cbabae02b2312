"""The executable model: what the seed's section 3.3 says ("scopes"), as functions to run.

In the order of reading: `schema` is what a system is, `state` what it is in, `order` what may come first, `steps` what
happens. `automata` and `presets` are what administrators put in, `configured` takes it from a configuration.
`scenario` says what devices do and what is expected of it, `run` how a run goes on, `explore` (with
`partial_order`) what can come of it, `trace` how it came.
"""

from __future__ import annotations

from tidegate.simulate.automata import Filtering, LinkMonitors, MachineAutomaton, Renaming, TableAutomaton
from tidegate.simulate.configured import configured
from tidegate.simulate.expectation import Expectation
from tidegate.simulate.explore import Unfinished, chosen_run, find_run, outcomes, reachable, sequential_run
from tidegate.simulate.order import NORMAL, select
from tidegate.simulate.run import Outcome, Run
from tidegate.simulate.scenario import Change, Filters, Publication, Rounds, Scenario, parse, read_scenario
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
    "EditAutomaton",
    "Entity",
    "Expectation",
    "Filtering",
    "Filters",
    "Link",
    "LinkMonitors",
    "MachineAutomaton",
    "Order",
    "Outcome",
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
    "TableAutomaton",
    "Transmit",
    "Unfinished",
    "chosen_run",
    "configured",
    "find_run",
    "initial",
    "joined",
    "outcomes",
    "parse",
    "reachable",
    "read_scenario",
    "rows",
    "select",
    "sequential_run",
    "steps",
    "t_broker",
    "t_deliver",
    "t_notify",
    "t_publish",
]
