"""The model of a configuration: its scopes, links, types, pairs and monitors, and the clients of a scenario.

| of the node | in the schema |
|---|---|
| scopes, links between them, connections of clients | CG; a link without a way back gets one that no pair allows |
| links to scopes of other nodes | left out: what is behind them is not known |
| brokering | BP |
| monitors where a link leaves a scope, what crosses under which name, monitors where it enters | EP, a `LinkMonitors` |
| subscriptions | sub |
| MQTT gives a client its own messages, unless it says No Local | `echo` |
| a scope refuses what it had before; an event crosses a link once | not `loops`; `once` |

What has no exact counterpart is refused, never guessed: a monitor with one state for several links, one whose
conditions read more than the event itself, and No Local over a link with monitors (those see a client's own events, and
the model cannot tell them from others).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, assert_never

from tidegate.errors import ConfigError
from tidegate.flow.graph import SCOPE
from tidegate.flow.presence import Presence
from tidegate.monitor import Attachment, Direction, Each, Machine, Monitors
from tidegate.policy.brokering import UNTYPED, Brokering
from tidegate.policy.scopes import ScopeGraph, Way
from tidegate.simulate.automata import EVENT, LinkMonitors
from tidegate.simulate.order import NORMAL
from tidegate.simulate.scenario import Scenario
from tidegate.simulate.schema import BrokeringPolicy, ConnectionGraph, Link, Schema, Type

MAIN: Final = "main"
"""The scope of a space that names none."""
_LEAVES: Final = {Way.UP: Direction.EX_PUB, Way.ACROSS: Direction.EX_PUB, Way.DOWN: Direction.IM_SUB}
_ENTERS: Final = {Way.UP: Direction.IM_PUB, Way.ACROSS: Direction.EX_SUB, Way.DOWN: Direction.EX_SUB}


@dataclass(frozen=True, slots=True)
class Pairs:
    """allow, as the brokering of a node has it. What has no type is in no pair."""

    brokering: Brokering

    def __contains__(self, pair: object) -> bool:
        match pair:
            case (str(source), str(target)):
                return UNTYPED not in (source, target) and self.brokering.allow(source, target)
        return False


def configured(
    space: ScopeGraph, brokering: Brokering, monitors: Monitors, scenario: Scenario, presences: Mapping[Link, Presence]
) -> tuple[Schema, Scenario]:
    """The schema, and the scenario in it: clients that their role places are where that is.

    `presences` has every connection of the scenario, by the link from the scope to the client.
    """
    names = space.scopes or (MAIN,)
    for scope, client in scenario.sub:
        bare = scope.removeprefix(SCOPE)
        if bare not in names:
            near = get_close_matches(bare, names, 1)
            mend = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(names)}"
            raise ConfigError(f"`{client}` is connected to `{bare}`, which is no scope of the configuration: {mend}")
    kinds: dict[Link, Type] = {(SCOPE + one.source, SCOPE + one.target): one.type for one in space.links}
    apart: dict[Link, tuple[str, str]] = {}
    for link, one in presences.items():
        enters, leaves, client = SCOPE + one.enters, SCOPE + one.leaves, link[1]
        kinds |= {(client, enters): one.inward, (leaves, client): one.outward}
        if enters != leaves:
            apart[link] = (enters, leaves)
    placed = scenario.placed(apart)
    kinds = {**{(y, x): UNTYPED for x, y in kinds}, **kinds}
    ep = dict(_posted(space, monitors, placed))
    _check(monitors, placed, ep)
    schema = Schema(
        cg=ConnectionGraph(
            devices=placed.devices, scopes=frozenset(SCOPE + name for name in names), link=frozenset(kinds)
        ),
        ep=ep,
        bp=BrokeringPolicy(type=kinds, allow=Pairs(brokering)),
        sub=placed.sub,
        order=NORMAL,
        echo=placed.echo,
        loops=False,
        once=True,
    )
    return schema, placed


def _posted(space: ScopeGraph, monitors: Monitors, scenario: Scenario) -> Iterator[tuple[Link, LinkMonitors]]:
    """What stands on which link. What nothing stands on is left out; but between scopes something always does."""
    for scope_link in space.links:
        link = SCOPE + scope_link.source, SCOPE + scope_link.target
        before = monitors.over(*link, kind=_LEAVES[scope_link.way], scope=scope_link.source)
        after = monitors.over(*link, kind=_ENTERS[scope_link.way], scope=scope_link.target)
        yield link, LinkMonitors(_machines(before), scope_link, _machines(after))
    for scope, client in scenario.sub:
        bare = scope.removeprefix(SCOPE)
        after = monitors.over(client, scope, kind=Direction.IM_PUB, scope=bare)
        if after:
            yield (client, scope), LinkMonitors(after=_machines(after))
        before = monitors.over(scope, client, kind=Direction.IM_SUB, scope=bare)
        if before:
            yield (scope, client), LinkMonitors(before=_machines(before))


def _machines(attachments: tuple[Attachment, ...]) -> tuple[tuple[str, Machine], ...]:
    return tuple((each.id, each.monitor) for each in attachments)


def _check(monitors: Monitors, scenario: Scenario, ep: Mapping[Link, LinkMonitors]) -> None:
    """Refuses what the model would get wrong."""
    links: dict[str, list[Link]] = {}
    for link, posted in ep.items():
        for id, _ in (*posted.before, *posted.after):
            links.setdefault(id, []).append(link)
        if link in scenario.sub and link not in scenario.echo:
            shown = f"{link[0].removeprefix(SCOPE)}->{link[1]}"
            raise ConfigError(
                f"`{link[1]}` has `no_local`, and there are monitors on {shown}, which see its own events all the "
                "same: the model cannot tell those from others; leave `no_local` out"
            )
    for id, where in links.items():
        attachment = monitors.by_id[id]
        match attachment.each:
            case Each.LINK | Each.CLIENT:
                pass  # it acts in one direction of one scope: each client, and each scope there, has one link
            case Each.SCOPE:
                if len(where) > 1:
                    raise ConfigError(
                        f"monitor `{id}` has one state for {len(where)} links (`each: scope`), and in the model every "
                        "link has its own: connect fewer clients, or try it with `each: link`"
                    )
            case _:
                assert_never(attachment.each)
        unknown = sorted(path for path in attachment.monitor.reads if not _of_the_event(path))
        if unknown:
            raise ConfigError(
                f"monitor `{id}` reads `{unknown[0]}`, and the model knows nothing but the event: "
                f"it can read {', '.join(f'o.{name}' for name in EVENT)}"
            )


def _of_the_event(path: str) -> bool:
    root, _, rest = path.partition(".")
    return root == "o" and rest.partition(".")[0] in EVENT
