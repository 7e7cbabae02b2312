"""Explaining what goes over links between scopes: each link, why there is no way, and that the engine does the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from policy.written import policy_of, preference_of
from pure import World
from scope.spaces import COMPONENT, both, chain, got, hierarchy, say
from tidegate import wire
from tidegate.explain.explainer import Explainer
from tidegate.explain.explanation import Explanation, Line, Verdict
from tidegate.gate import Deny, RuleSet, Step
from tidegate.monitor import Attachment, Direction, Monitors
from tidegate.monitor.library import Filter, Mapper, Names
from tidegate.policy import Combining, Policies, Preferences
from tidegate.policy.brokering import Brokering, Types
from tidegate.policy.scopes import ALL, ScopeGraph, ScopeLink, TopicMapping, Way
from tidegate.session import Link, Subject

NOON = 1_700_000_000.0
ANYTHING: dict[str, Any] = {"id": "any", "subject": "*", "topic": "#", "action": ["read", "write"]}


def made(
    space: ScopeGraph,
    *policies: Mapping[str, Any],
    preferences: Sequence[Mapping[str, Any]] = (),
    monitors: Sequence[Attachment] = (),
    combining: str = "deny-overrides",
    **more: Any,
) -> RuleSet:
    """Rules from texts; without policies they are open."""
    parsed = [policy_of(**each) for each in policies]
    return RuleSet(
        space=space,
        policies=Policies(parsed, Combining(combining)) if policies else None,
        preferences=Preferences([preference_of(**each) for each in preferences]),
        monitors=Monitors(monitors),
        **more,
    )


def person(user: str, scope: str) -> Subject:
    return Subject(kind="client", client=f"{user}-phone", user=user, scope=scope, node="n")


def read(rules: RuleSet, source: str, target: str, topic: str = "t", payload: bytes = b"", qos: int = 0) -> Explanation:
    """What bob reads in one scope of what mary publishes in another."""
    explainer = Explainer(rules, "n")
    link = Link(person("mary", source), True, "in")
    written = explainer.write(link, wire.Publish(topic=topic, payload=payload, qos=qos), NOON)
    return explainer.read(written, Link(person("bob", target), False, "out"), NOON)


def links(found: Explanation) -> list[tuple[str, str, str]]:
    return [(line.place, line.verdict.value, line.rule) for line in found.lines if line.place.startswith("link")]


def the(found: Explanation, link: str) -> Line:
    [line] = [line for line in found.lines if line.link == link]
    return line


# -- ways ------------------------------------------------------------------------------------------------------------

HOUSE = hierarchy({"H1": ["I"], "H2": ["I"], "H3": ["H1", "H2"]})


def test_each_link_is_a_line_before_the_steps_of_the_last_one() -> None:
    found = read(made(HOUSE, brokering=COMPONENT), "H1", "H2")
    assert found.headline == "ALLOW"
    assert [line.place for line in found.lines] == [
        *("write, reserved", "write, policies", "link H1->I", "link I->H2"),
        *("brokering", "levels", "read, policies", "read, preferences", "view", "where"),
    ]
    assert the(found, "H1->I").knew == {"came over": "up", "leaves over": "up"}
    assert the(found, "I->H2").knew == {"came over": "up", "leaves over": "down"}
    [last] = [line for line in found.lines if line.place == "brokering"]
    assert last.knew == {"came over": "down", "leaves over": "down"}


def test_in_one_scope_there_is_no_link() -> None:
    assert links(read(made(HOUSE, brokering=COMPONENT), "H1", "H1")) == []


def test_what_brokering_stops() -> None:
    found = read(made(hierarchy({"H3": ["H1", "H2"]}), brokering=COMPONENT), "H1", "H2")
    assert found.headline == "DENY by brokering:down->up (link H3->H2, brokering)"
    assert links(found) == [
        ("link H1->H3", "allow", ""),
        ("link H3->H2, brokering", "deny", "brokering:down->up"),
    ]
    assert found.denial is None  # where links lead is nobody's offence
    assert {line.verdict for line in found.lines[-6:]} == {Verdict.UNASKED}


def test_every_link_of_the_frontier_is_told_and_dead_ends_are_not() -> None:
    space = ScopeGraph(
        scopes=("a", "b", "c", "d", "e"),
        links=(*both("a", "b"), *both("a", "c"), *both("b", "d"), *both("c", "d"), *both("a", "e")),
    )
    no = {"id": "no", "subject": "link:b->d", "topic": "#", "action": "write", "effect": "deny"}
    nor = {"id": "nor", "subject": "link:c->d", "topic": "#", "action": "read", "effect": "deny"}
    found = read(made(space, ANYTHING, no, nor), "a", "d")
    assert found.headline == "DENY by no (link b->d, write, policies)"
    assert links(found) == [
        ("link a->b", "allow", "any"),
        ("link a->c", "allow", "any"),
        ("link b->d, write, policies", "deny", "no"),
        ("link c->d, read, policies", "deny", "nor"),
    ]
    assert found.rules == {"no", "nor"}
    assert found.denial == Deny(step=Step.WRITE, rule="no")


def test_no_links_lead_there() -> None:
    space = ScopeGraph(scopes=("a", "b", "c"), links=(*both("a", "b"), ScopeLink(source="c", target="a")))
    found = read(made(space), "a", "c")
    assert found.headline == "DENY by no link (link)"
    assert links(found) == [("link", "deny", "no link")]
    assert found.lines[2].notes == ("no links lead from `a` to `c`",)
    assert read(made(space), "c", "b").allowed


def test_what_may_not_be_written_crosses_nothing() -> None:
    found = read(made(chain("a", "b"), {**ANYTHING, "action": "read"}), "a", "b")
    assert found.headline == "DENY by default (write, policies)"
    assert links(found) == []


def test_rules_of_links_are_rules_that_allow() -> None:
    policies = (
        {"id": "clients", "subject": ["user:mary", "user:bob"], "topic": "#", "action": ["read", "write"]},
        {"id": "out", "subject": "scope:a", "topic": "#", "action": "write", "when": "s.scope == 'a'"},
        {
            "id": "in",
            "subject": "scope:b",
            "topic": "#",
            "action": "read",
            "when": "s.scope == 'b' && p.user == 'mary'",
        },
    )
    found = read(made(chain("a", "b"), *policies), "a", "b")
    assert found.headline == "ALLOW by clients (read, policies)"
    assert found.rules == {"clients", "out, in", "out", "in"}
    line = the(found, "a->b")
    assert [(each.rule, each.outcome) for each in line.considered] == [("out", "true"), ("in", "true")]
    assert line.knew == {"s.scope": "a, then b", "p.user": "mary"}
    back = read(made(chain("a", "b"), *policies), "b", "a")
    assert back.headline == "DENY by default (link b->a, write, policies)"


def test_owners_say_where_their_messages_go() -> None:
    preferences = (
        {"id": "c", "user": "mary", "topic": "t", "to": "c", "when": "o.size > 2"},
        {"id": "any", "user": "mary", "topic": "t", "to": "*", "keep": ["/speed"]},
    )
    rules = made(chain("a", "b", "c"), preferences=preferences)
    found = read(rules, "a", "b", payload=b'{"speed":1,"name":"x"}')
    assert found.headline == "ALLOW by any (link a->b)"
    assert the(found, "a->b").view.plain == ["/speed"]
    assert found.shown is not None
    assert found.shown.payload == b'{"speed":1}'
    assert read(rules, "a", "c", payload=b'{"speed":1}').allowed
    found = read(made(chain("a", "b", "c"), preferences=preferences[:1]), "a", "c", payload=b"1")
    assert found.headline == "DENY by c (link b->c, read, preferences)"
    assert found.denial == Deny(step=Step.READ, rule="c")
    nothing = read(rules, "a", "b", payload=b'{"name":"x"}')
    assert nothing.headline == "DENY by nothing is left (link a->b, view)"


def test_shares_rename_and_policies_see_the_name_before_the_link() -> None:
    share = TopicMapping(filter="+/speed", there="gym/", qos=0)
    space = ScopeGraph(scopes=("a", "b", "c"), links=(*both("a", "b", share), *both("b", "c")))
    policies = (
        {**ANYTHING, "subject": "user:mary"},
        {"id": "ab", "subject": "link:a->b", "topic": "+/speed", "action": ["read", "write"]},
        {"id": "bc", "subject": "link:b->c", "topic": "gym/#", "action": ["read", "write"]},
        {
            "id": "bob",
            "subject": "user:bob",
            "topic": "gym/#",
            "action": "read",
            "when": "p.topic == 't1/speed' && o.size < 9",
        },
    )
    preferences = [{"id": "u", "user": "mary", "topic": "t1/speed", "when": "s.user == 'bob'"}]
    found = read(made(space, *policies, preferences=preferences), "a", "c", "t1/speed", qos=1)
    assert found.headline == "ALLOW by bob (read, policies)"
    assert found.rules >= {"bob", "u", "ab", "bc"}
    assert the(found, "a->b").notes == ("it goes on with QoS 0", "behind it the topic is `gym/t1/speed`")
    assert found.topic == "t1/speed"
    assert found.shown is not None
    assert (found.shown.topic, found.shown.qos) == ("gym/t1/speed", 0)
    other = read(made(space, *policies), "a", "c", "t1/heart")
    assert other.headline == "DENY by not shared (link a->b)"
    assert the(other, "a->b").notes == ("it shares +/speed",)
    assert other.denial is None
    own = read(made(chain("a", "b")), "a", "b", "$own/x")
    assert the(own, "a->b").notes == ("topics that begin with `$` do not cross",)


def test_a_filter_on_a_link_stops_and_other_monitors_are_named() -> None:
    speeds, heart = Filter(("+/speed",)), Filter(("+/heart",))
    out = Attachment(id="out", monitor=speeds, scope="a", direction=Direction.EX_PUB)
    renaming = Attachment(
        id="renaming", monitor=Mapper(Names({"+/heart": "x/speed"})), scope="a", direction=Direction.EX_PUB
    )
    entering = Attachment(id="entering", monitor=heart, link=("scope:a", "scope:b"))
    assert read(made(chain("a", "b"), monitors=[out]), "a", "b", "t/speed").allowed
    found = read(made(chain("a", "b"), monitors=[out]), "a", "b", "t/heart")
    assert found.headline == "DENY by out (link a->b, monitor out)"
    assert found.denial == Deny(step=Step.MONITOR_OUT, rule="out")
    found = read(made(chain("a", "b"), monitors=[entering]), "a", "b", "t/speed")
    assert found.headline == "DENY by entering (link a->b, monitor in)"
    # what the first makes of it is not known, so neither is what the second does
    found = read(made(chain("a", "b"), monitors=[renaming, out]), "a", "b", "t/heart")
    assert found.allowed
    [note] = the(found, "a->b").notes
    assert note.startswith("what renaming, out will do depends on what went before")


def test_a_copy_that_may_not_be_read_does_not_hide_another() -> None:
    """Over the shorter way it is called what bob may not read."""
    long = both("a", "c")
    space = ScopeGraph(
        scopes=("a", "b", "c"), links=(*both("a", "b", TopicMapping(filter="#", there="x/")), *long, *both("c", "b"))
    )
    policies = ({**ANYTHING, "subject": ["user:mary", "scope:a", "scope:b", "scope:c"]},)
    may = {"id": "may", "subject": "user:bob", "topic": "t", "action": "read"}
    found = read(made(space, *policies, may), "a", "b")
    assert links(found) == [("link a->c", "allow", "any"), ("link c->b", "allow", "any")]
    denied = read(made(space, *policies), "a", "b")
    assert denied.headline == "DENY by default (read, policies)"
    assert denied.notes == ("over a->c, c->b it comes there too: DENY by default (read, policies)",)


def test_a_copy_that_may_not_cross_does_not_hide_another() -> None:
    space = ScopeGraph(
        scopes=("a", "b", "c", "d"),
        links=(
            *both("a", "b"),
            *both("a", "c", TopicMapping(filter="#", there="x/")),
            *both("c", "b"),
            *both("b", "d"),
        ),
    )
    only = {"id": "only", "subject": "link:b->d", "topic": "t", "action": "write", "effect": "deny"}
    found = read(made(space, ANYTHING, only), "a", "d")
    assert [line.link for line in found.lines if line.link] == ["a->c", "c->b", "b->d"]
    assert found.shown is not None
    assert found.shown.topic == "x/t"


def test_a_link_is_crossed_once() -> None:
    """The copy that comes first has been in z, and cannot go there again; the other comes too late to take the link."""
    types = {"pz": "a", "zs": "c", "pq": "b", "qu": "b", "us": "b", "st": "d", "tz": "e", "zr": "f"}
    space = ScopeGraph(
        scopes=tuple("pzqustr"),
        links=tuple(ScopeLink(source=pair[0], target=pair[1], type=each) for pair, each in types.items()),
    )
    pairs = [("in", "a"), ("in", "b"), ("a", "c"), ("b", "b"), ("c", "d"), ("b", "d"), ("d", "e"), ("e", "f")]
    brokering = Brokering([*pairs, ("f", "out")], default=Types(inward="in", outward="out"))
    found = read(made(space, brokering=brokering), "p", "r")
    assert found.headline == "DENY by brokering:a->f (link z->r, brokering)"
    other = ScopeGraph(scopes=space.scopes, links=space.links[1:])  # the first copy does not get there
    assert [line.link for line in read(made(other, brokering=brokering), "p", "r").lines if line.link] == [
        *("p->q", "q->u", "u->s", "s->t", "t->z", "z->r")
    ]


def test_what_a_filter_has_stopped_has_crossed_the_link() -> None:
    """A second copy that it would let pass comes too late, as in the engine."""
    space = ScopeGraph(
        scopes=("a", "b", "c", "d"),
        links=(
            *both("a", "b"),
            *both("a", "c", TopicMapping(filter="#", there="x/")),
            *both("c", "b"),
            *both("b", "d"),
        ),
    )
    only = Attachment(id="only", monitor=Filter(("x/#",)), link=("scope:b", "scope:d"))
    rules = made(space, monitors=[only])
    found = read(rules, "a", "d")
    assert found.headline == "DENY by only (link b->d, monitor in)"
    world = World(rules=rules)
    end, source = world.peer("end", scope="d"), world.peer("source", scope="a")
    end.subscribe("#")
    say(source, "t")
    assert got(end) == []
    say(source, "x/t")
    assert got(end) == [("x/t", b"x")]
    assert read(rules, "a", "d", "x/t").allowed


# -- the engine does what the explanation says -----------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
PAIRS = [(one, other) for one in NAMES for other in NAMES if one != other]
SHARES = (
    (TopicMapping(filter="t/#"),),
    (TopicMapping(filter="#", there="x/"),),
    (TopicMapping(filter="t/#", here="x/", there="y/"),),
    ALL,
)
WHENS = (
    *(None, None, "true", "false", "o.size > 3", "p.user == 'mary'", "p.topic == 't/1'", "s.scope == 'b'"),
    *("s.kind == 'link'", "o.payload.n > 1", "s.nothing", "o.qos == 1", "e.hour > 3", "p.scope == 'a'"),
    *("p.topic == 't/1' && o.size > 3", "p.topic == 'x/t/1' || p.qos == 0"),
)
SUBJECTS = ("*", "scope:a", "scope:b", "scope:c", "link:a->b", "link:b->c", "link:c->d", "user:end-d", "user:end-b")
FILTERS = ("#", "t/#", "t/1", "x/#", "x/t/1")
KEEPS: tuple[Any, ...] = ("all", "all", "all", ["/n"], ["/m"])
PAYLOADS = (b"", b'{"n":1,"m":2}', b'{"n":2}', b"text")


@st.composite
def spaces(draw: st.DrawFn) -> ScopeGraph:
    links = []
    for source, target in draw(st.lists(st.sampled_from(PAIRS), unique=True, min_size=3)):
        kind, way = draw(st.sampled_from("uv")), draw(st.sampled_from(Way))
        shares = draw(st.sampled_from([ALL, ALL, ALL, *SHARES]))
        links.append(ScopeLink(source=source, target=target, type=kind, way=way, shares=shares))
    return ScopeGraph(scopes=NAMES, links=tuple(links))


@st.composite
def all_rules(draw: st.DrawFn) -> RuleSet:
    def policy(index: int) -> dict[str, Any]:
        return {
            "id": f"p{index}",
            "subject": draw(st.sampled_from(SUBJECTS)),
            "topic": draw(st.sampled_from(FILTERS)),
            "action": draw(st.sampled_from(["write", "read", ["read", "write"]])),
            "effect": draw(st.sampled_from(["allow", "deny", "deny"])),
            "when": draw(st.sampled_from(WHENS)),
        }

    def preference(index: int) -> dict[str, Any]:
        return {
            "id": f"u{index}",
            "user": "mary",
            "topic": draw(st.sampled_from(FILTERS[:3])),
            "to": draw(st.sampled_from(["*", "b", "c", "d", None])),
            "when": draw(st.sampled_from(WHENS)),
            "keep": draw(st.sampled_from(KEEPS)),
        }

    def monitor(index: int) -> Attachment:
        passes = Filter((draw(st.sampled_from(FILTERS)),))
        if draw(st.booleans()):
            return Attachment(id=f"m{index}", monitor=passes, link=draw(st.sampled_from(LINKS)))
        direction = draw(st.sampled_from([Direction.EX_PUB, Direction.EX_SUB]))
        return Attachment(id=f"m{index}", monitor=passes, scope=draw(st.sampled_from(NAMES)), direction=direction)

    brokering = {}
    if draw(st.booleans()):
        pairs = draw(st.lists(st.sampled_from([(one, other) for one in "uv" for other in "uv"]), unique=True))
        pairs += [("in", "u"), ("in", "v"), ("in", "out"), ("u", "out"), ("v", "out")]
        brokering = {"brokering": Brokering(pairs, default=Types(inward="in", outward="out"))}
    policies = [ANYTHING, *(policy(index) for index in range(draw(st.integers(0, 3))))]
    return made(
        draw(spaces()),
        *(policies if draw(st.booleans()) else ()),
        combining=draw(st.sampled_from(["deny-overrides", "first-applicable", "permit-overrides"])),
        preferences=[preference(index) for index in range(draw(st.integers(0, 2)))],
        monitors=[monitor(index) for index in range(draw(st.sampled_from([0, 0, 1, 2])))],
        **brokering,
    )


LINKS = [(f"scope:{one}", f"scope:{other}") for one, other in PAIRS]


@settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(
    rules=all_rules(),
    topic=st.sampled_from(["t/1", "t/1", "x/t/1", "o"]),
    payload=st.sampled_from(PAYLOADS),
    qos=st.sampled_from([0, 1]),
)
def test_the_engine_does_what_the_explanation_says(rules: RuleSet, topic: str, payload: bytes, qos: int) -> None:
    world = World(rules=rules)
    ends = {name: world.peer(f"end-{name}", scope=name, username=f"end-{name}") for name in NAMES}
    for end in ends.values():
        end.subscribe("#", qos=1)
        end.take()
    source = world.peer("source", scope="a", username="mary")
    source.send(wire.Publish(topic=topic, payload=payload, qos=qos, packet_id=2 if qos else 0))
    explainer = Explainer(rules, "n")
    packet = wire.Publish(topic=topic, payload=payload, qos=qos)
    written = explainer.write(source.connection.session.inward, packet, world.wall)
    for name, end in ends.items():
        session = end.connection.session
        if "#" not in (session.subscriptions or {}):
            continue  # nobody may ever read anything there
        found = explainer.read(written, session.outward, world.wall)
        came = [(each.topic, bytes(each.payload), each.qos) for each in end.messages()]
        shown = found.shown
        assert came == ([] if shown is None else [(shown.topic, shown.payload, shown.qos)]), found
        assert found.allowed is bool(came)
        crossed = [line for line in found.lines if line.link and line.verdict is Verdict.ALLOW]
        event(f"{found.allowed}, {len(crossed)} links, {found.decided.place.split(' ')[0] if found.decided else ''}")
        if not found.allowed:
            assert found.decided is next(line for line in found.lines if line.verdict is Verdict.DENY)
            assert found.denial is None or found.denial.rule in found.rules
        elif name != "a":
            assert crossed


@pytest.mark.parametrize("source", NAMES)
def test_rings_end(source: str) -> None:
    rules = made(ScopeGraph(scopes=NAMES, links=tuple(ScopeLink(source=one, target=other) for one, other in PAIRS)))
    for target in NAMES:
        found = read(rules, source, target)
        assert found.allowed
        assert len(links(found)) == (source != target)
