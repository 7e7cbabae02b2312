"""Random settings of several scopes, and the rules that the engine is given for them.

Names, topics and payloads come from small sets, so that rules and messages meet. Simple things stand first: that is
what a counterexample shrinks to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, Protocol

from policy.written import policy_of, preference_of, row_of
from scope.walk import Link, Setting, Watcher
from tidegate.gate import RuleSet
from tidegate.monitor import Attachment, Direction, Each, Monitors
from tidegate.monitor.automaton import SAME, Automaton, Emit, Transition
from tidegate.monitor.library import Alternate, Filter, Mapper, Names, Twice
from tidegate.monitor.machine import Machine
from tidegate.monitor.sequence import Step, guard
from tidegate.policy import Combining, Policies, Preferences, Views
from tidegate.policy.brokering import OPEN, Assignment, Brokering, Types
from tidegate.policy.scopes import ScopeGraph, ScopeLink, TopicMapping, Way
from tidegate.policy.selector import Selector

SCOPES: Final = ("a", "b", "c", "d", "e", "f")
TOPICS: Final = ("t/x", "t/y", "u", "pre/t/x")
FILTERS: Final = ("#", "t/#", "t/x", "+/x", "u", "pre/#", "t/+")
PAYLOADS: Final = (b"x", b'{"level":3}', b'{"level":1,"name":"n"}', b"", b"a long text that is no JSON")
USERS: Final = {"c1": "mary", "c2": "bob", "c3": None}
"""Of the clients; nobody in particular uses c3."""
LEVELS: Final = {"mary": "tls", "bob": "plain", None: "plain"}

ABOUT_MESSAGE: Final = (
    "o.size < 12",
    "o.qos > 0",
    "!o.retain",
    "has(o.payload) && has(o.payload.level)",
    "o.payload.level > 2",
)
ABOUT_SUBJECT: Final = ("s.scope == 'b'", "s.kind == 'link'", "s.kind != 'monitor'", "s.client != 'c1'")
ABOUT_PUBLISHER: Final = (
    "has(p.user) && p.user == 'mary'",
    "p.scope == 'a'",
    "p.topic == o.topic",
    "p.user == 'bob'",
    "s.scope != p.scope",
)
EVERYTHING: Final = {"id": "all", "subject": "*", "topic": "#", "action": ("read", "write")}

WHOLE: Final = (("#", "", "", 2),)
SHARES: Final = (
    WHOLE,
    WHOLE,
    WHOLE,
    (("t/#", "", "", 2),),
    (("#", "", "pre/", 2),),
    (("#", "pre/", "", 1),),
    (("t/x", "", "", 0), ("#", "pre/", "", 2), ("u", "", "pre/", 1)),
    (("+/x", "", "", 1), ("u", "", "", 2)),
)
STEP_X: Final = Step(on=("t/x",))
MACHINES: Final[tuple[Machine, ...]] = (
    Filter(["t/#"]),
    Filter(["+/x", "u", "pre/#"]),
    Mapper(Names({"t/x": "t/y"})),
    Mapper(Names({"u": "v", "t/+": "u/+"})),
    guard(only=Step(on=("t/y",)), after=[STEP_X], reset=Step(on=("u",))),
    guard(only=STEP_X, after=[Step(on=("u",))]),
    Automaton(
        "open",
        {
            "open": [Transition(on=("u",), go="shut")],
            "shut": [Transition(on=("u",), go="open"), Transition(on=("t/#",), emit=())],
        },
    ),
    Automaton("one", {"one": [Transition(on=("t/x",), emit=(SAME, Emit(topic="u", qos=1)))]}),
    Alternate(),
    Twice(),
)
SUPPRESSING: Final = 2  # the first of them only suppress


# -- drawn -----------------------------------------------------------------------------------------------------------


class Pick(Protocol):
    """Somebody who chooses: Hypothesis, or a generator of random numbers."""

    def __call__(self, choices: Sequence[Any], /) -> Any: ...


def pairs(names: tuple[str, ...], shape: str) -> list[tuple[str, str]]:
    """Which scopes are neighbours."""
    near = list(pairwise(names))
    match shape:
        case "ring" if len(names) > 2:
            return [*near, (names[-1], names[0])]
        case "diamond" if len(names) > 3:
            middle = names[1:-1]
            return [*((names[0], one) for one in middle), *((one, names[-1]) for one in middle)]
        case "star":
            return [(names[0], one) for one in names[1:]]
        case "tree":
            return [(names[(at - 1) // 2], one) for at, one in enumerate(names) if at]
        case "apart":
            return near[::2]
        case "all":
            return [(one, other) for one in names for other in names if one < other]
    return near


def joined(pick: Pick, types: tuple[str, ...], *, mild: bool) -> tuple[tuple[str, ...], tuple[Link, ...]]:
    """Scopes and links."""
    count = pick((2, 3, 4, 4, 5, 6))
    names = SCOPES[:count] if pick((True, False)) else SCOPES[::-1][:count]
    shape = pick(("chain", "diamond", "ring", "star", "tree", "apart", "all"))
    family = pick((False, True)) and shape != "all"
    links: list[Link] = []
    for upper, lower in pairs(names, shape):
        towards = pick(("both", "both", "both", "out", "in"))
        for way, source, target in (("out", upper, lower), ("in", lower, upper)):
            if towards in ("both", way):
                shares = WHOLE if mild else pick(SHARES)
                kind = "across" if not family else "down" if way == "out" else "up"
                links.append(Link(source=source, target=target, type=pick(types), way=kind, shares=shares))
    return names, tuple(links)


def policies(
    pick: Pick, names: tuple[str, ...], links: tuple[Link, ...], monitors: tuple[Watcher, ...]
) -> tuple[dict[str, Any], ...]:
    rows: list[dict[str, Any]] = []
    subjects = ("*", "user:mary", "client:c2", *(f"monitor:{one.id}" for one in monitors))
    between = (*(f"scope:{name}" for name in names), *(f"link:{link.name}" for link in links))
    for at in range(pick((1, 1, 2, 3, 4))):
        subject = pick(pick((subjects, between, between)))
        action = pick((("read",), ("write",), ("read", "write")))
        conditions = [*ABOUT_MESSAGE, *ABOUT_SUBJECT]
        if subject in between or action == ("read",):
            conditions += ABOUT_PUBLISHER
        row: dict[str, Any] = {
            "id": f"p{at}",
            "subject": subject,
            "topic": pick(FILTERS),
            "action": action,
            "effect": pick(("deny", "deny", "allow")),
        }
        if pick((True, True, False)):
            row["when"] = pick(conditions)
        rows.append(row)
    for one in monitors:
        if pick((True, True, False)):  # what `*` is allowed they are not
            row = {"id": f"of {one.id}", "subject": f"monitor:{one.id}", "topic": "#", "action": ("write",)}
            rows.insert(pick(range(len(rows) + 1)), row)
    rows.insert(pick(range(len(rows) + 1)), EVERYTHING)
    return tuple(rows)


def preferences(pick: Pick, names: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    rows: list[dict[str, Any]] = []
    for at in range(pick((1, 2, 3, 4))):
        row: dict[str, Any] = {"id": f"u{at}", "user": pick(("mary", "mary", "bob")), "topic": pick(("#", *FILTERS))}
        to = pick((None, "*", "*", *names))
        if to is not None:
            row["to"] = to
        if pick((True, False)):
            row["when"] = pick((*ABOUT_MESSAGE, *ABOUT_SUBJECT, *ABOUT_PUBLISHER, "false"))
        if pick((False, False, True)):
            row["keep"] = ["/level"]
        rows.append(row)
    return tuple(rows)


def watchers(pick: Pick, names: tuple[str, ...], links: tuple[Link, ...]) -> tuple[Watcher, ...]:
    found: list[Watcher] = []
    for at in range(pick((1, 1, 2, 3, 4))):
        machine = pick(MACHINES)
        fields: dict[str, Any] = {"id": f"m{at}", "each": pick(("link", "link", "link", "scope", "client"))}
        fields["default"] = pick((False, False, False, True))
        where = pick(("link", "link", "direction", "direction", "client"))
        if where == "link" and links:
            link = pick(links)
            fields["link"] = (f"scope:{link.source}", f"scope:{link.target}")
        elif where == "client":
            ends = (f"client:{pick(sorted(USERS))}", f"scope:{pick(names)}")
            if pick((False, True)):
                ends = ends[1], ends[0]
                machine = pick(MACHINES[:SUPPRESSING])
            fields["link"] = ends
        else:
            fields["scope"] = pick(names)
            fields["direction"] = pick(("ex_pub", "ex_sub", "im_pub", "im_sub"))
            if fields["direction"] == "im_sub":
                machine = pick(MACHINES[:SUPPRESSING])
        found.append(Watcher(machine=machine, **fields))
    return tuple(found)


KINDS: Final = ("x", "y", "z")
ALL_PAIRS: Final = tuple((one, other) for one in KINDS for other in KINDS)


FLAVOURS: Final = (
    "plain",
    "policies",
    "policies",
    "preferences",
    "monitors",
    "monitors",
    "shares",
    "all",
    "all",
    "all",
)


def drawn(pick: Pick) -> Setting:
    """A setting. Most have one sort of rules, so that the fast lane is taken in them; some have all."""
    flavour = pick(FLAVOURS)

    def has(part: str) -> bool:
        return flavour == part or (flavour == "all" and bool(pick((True, False))))

    allow: tuple[tuple[str, str], ...] | None = None
    types: dict[str | None, tuple[str, str]] = {}
    brokered = pick((False, False, True))
    if brokered:
        missing = [pick(ALL_PAIRS) for _ in range(pick((0, 1, 2, 3)))]
        allow = tuple(pair for pair in ALL_PAIRS if pair not in missing)
        types = {user: (pick(KINDS), pick(KINDS)) for user in (None, "mary")}
    whole = not has("shares") and pick((True, True, False))
    names, links = joined(pick, KINDS if brokered else ("in",), mild=whole)
    views = ({"topic": "t/#", "for": "client:c2", "keep": ["/level"]}, {"topic": "#", "for": "*", "keep": "all"})
    monitors = watchers(pick, names, links) if has("monitors") else ()
    return Setting(
        scopes=names,
        links=links,
        allow=allow,
        types=types,
        monitors=monitors,
        policies=policies(pick, names, links, monitors) if has("policies") else None,
        combining=pick(("deny-overrides", "deny-overrides", "permit-overrides", "first-applicable")),
        preferences=preferences(pick, names) if has("preferences") else (),
        views=views[: pick((0, 1, 2))] if flavour == "all" else (),
    )


# -- automata that several publishers drive --------------------------------------------------------------------------


def transitions(pick: Pick, states: tuple[str, ...], start: str, *, back: bool) -> list[Transition]:
    """Of one state. `back`: some may lead to the start again."""
    emits = ((SAME,), (SAME,), (), (Emit(topic="u"),), (SAME, Emit(topic="t/y", payload=b'{"level":2}')))
    targets = (None, *(state for state in states if back or state != start))
    return [
        Transition(on=(pick(("t/x", "t/y", "u", "t/#")),), go=pick(targets), emit=pick(emits))
        for _ in range(pick((0, 1, 2, 3)))
    ]


def automaton(pick: Pick, *, back: bool = True) -> Automaton:
    states = ("s0", "s1", "s2", "s3")[: pick((2, 2, 3, 4))]
    first = Transition(on=(pick(TOPICS),), go="s1", emit=pick(((SAME,), ())))  # it can be moved at all
    drawn_states = {name: transitions(pick, states, "s0", back=back) for name in states}
    return Automaton("s0", {**drawn_states, "s0": [first, *drawn_states["s0"]]})


HIDDEN: Final = ("label", "owner", "demand")


def shared(pick: Pick) -> Setting:
    """One or two scopes in which mary, who is above, and bob drive the same automata."""
    labels = pick((True, True, False))
    names = ("a", "b")[: pick((1, 1, 2))]
    type = pick(("low", "high")) if labels else "in"
    links = tuple(Link(source=one, target=other, type=type) for one, other in pairwise(names))
    places: list[dict[str, Any]] = [{"scope": "a", "direction": "im_pub"}]
    if links:
        places += [{"scope": "a", "direction": "ex_pub"}, {"scope": "b", "direction": "ex_sub"}]
    monitors = tuple(
        Watcher(id=f"m{at}", machine=automaton(pick), each=pick(("scope", "scope", "scope", "link")), **pick(places))
        for at in range(pick((1, 1, 2, 3)))
    )
    return Setting(
        scopes=names,
        links=links,
        allow=(("low", "low"), ("low", "high"), ("high", "high")) if labels else None,
        types={None: ("low", "low"), "mary": ("high", "high")} if labels else {},
        monitors=monitors,
        policies=policies(pick, names, links, monitors) if pick((False, False, True)) else None,
        preferences=preferences(pick, names) if pick((False, True, True)) else (),
    )


def hiding(pick: Pick, how: str) -> Setting:
    """The same in one scope, where nothing of mary's is for who uses c3: because of its label, its owner, or what is
    demanded. Of several automata none comes back to its start, or one would forget what another still shows."""
    labels = how == "label"
    count = pick((1, 1, 2))
    monitors = tuple(
        Watcher(id=f"m{at}", machine=automaton(pick, back=count == 1), each="scope", scope="a", direction="im_pub")
        for at in range(count)
    )
    return Setting(
        scopes=("a",),
        allow=(("low", "low"), ("low", "high"), ("high", "high")) if labels else None,
        types={None: ("low", "low"), "mary": ("high", "high")} if labels else {},
        monitors=monitors,
        preferences=({"id": "known", "user": "mary", "topic": "#", "when": "has(s.user)"},) if how == "owner" else (),
    )


# -- for the engine --------------------------------------------------------------------------------------------------


def rules(setting: Setting) -> RuleSet:
    """The same, as the engine has it."""
    return RuleSet(
        policies=None
        if setting.policies is None
        else Policies([policy_of(**row) for row in setting.policies], Combining(setting.combining)),
        preferences=Preferences([preference_of(**row) for row in setting.preferences]),
        brokering=OPEN if setting.allow is None else _brokering(setting),
        space=space(setting),
        views=Views(
            [
                row_of(id=f"v{at}", topic=row["topic"], subject=row["for"], keep=row["keep"])
                for at, row in enumerate(setting.views)
            ]
        ),
        monitors=Monitors(
            Attachment(
                id=one.id,
                monitor=one.machine,
                link=one.link,
                scope=one.scope or None,
                direction=Direction(one.direction) if one.direction else None,
                each=Each(one.each),
                default=one.default,
            )
            for one in setting.monitors
        ),
    )


def _brokering(setting: Setting) -> Brokering:
    assign = [
        Assignment(subject=Selector.parse(f"user:{user}"), types=Types(inward=inward, outward=outward))
        for user, (inward, outward) in setting.types.items()
        if user is not None
    ]
    inward, outward = setting.types[None]
    return Brokering(setting.allow, assign, Types(inward=inward, outward=outward))


def space(setting: Setting) -> ScopeGraph:
    return ScopeGraph(
        scopes=setting.scopes,
        links=tuple(
            ScopeLink(
                source=one.source,
                target=one.target,
                type=one.type,
                way=Way(one.way),
                shares=tuple(
                    TopicMapping(filter=f, here=here, there=there, qos=qos) for f, here, there, qos in one.shares
                ),
            )
            for one in setting.links
        ),
    )
