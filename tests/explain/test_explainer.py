"""The explanation: exact verdicts and rules of every step, and that the engine really does what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from policy.written import class_of, policy_of, preference_of, row_of
from pure import World
from tidegate import wire
from tidegate.explain.explainer import Explainer
from tidegate.explain.explanation import Explanation, Line, Verdict
from tidegate.gate import Deny, Lane, Plan, RuleSet, Step
from tidegate.gate.stages.where import NAMES
from tidegate.monitor import Attachment, Direction, Monitors
from tidegate.monitor.library import Alternate, Filter
from tidegate.policy import (
    ALL,
    NOTHING,
    Classification,
    Combining,
    Demand,
    Environment,
    Levels,
    Policies,
    Preferences,
    Selector,
    Views,
)
from tidegate.policy.brokering import Assignment, Brokering, Types
from tidegate.policy.demands import read_demand
from tidegate.predicate import compile, function
from tidegate.scope import Exchange, Identity, Refused
from tidegate.scope.authenticator import Answer
from tidegate.scope.decision_reports import Silent
from tidegate.session import Connection, Link, Session, Subject, Terms
from tidegate.wire import NONE, Properties

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC).timestamp()
EVENING = datetime(2026, 3, 2, 20, 0, tzinfo=UTC).timestamp()
TOPIC = "tr1/performance/ts1/speed"


def made(
    policies: list[dict[str, Any]] | None = None,
    *,
    preferences: Sequence[dict[str, Any]] = (),
    views: Sequence[dict[str, Any]] = (),
    combining: str = "deny-overrides",
    functions: Mapping[str, Any] | None = None,
    shows: str = "nothing",
    **more: Any,
) -> RuleSet:
    """Rules from texts; `policies` of None are open."""
    found = None
    if policies is not None:
        parsed = [policy_of(**each, functions=functions) for each in policies]
        found = Policies(parsed, Combining(combining), domain="gym")
    return RuleSet(
        version="7-0123456789ab",
        domain="gym",
        policies=found,
        preferences=Preferences([preference_of(**each) for each in preferences], domain="gym"),
        views=Views([row_of(**each) for each in views], otherwise=ALL if shows == "all" else NOTHING, domain="gym"),
        **more,
    )


def person(
    user: str | None,
    *roles: str,
    client: str = "",
    level: str = "plain",
    facts: tuple[str, ...] = (),
    **attributes: Any,
) -> Subject:
    return Subject(
        kind="client",
        client=client or f"{user}-phone",
        user=user,
        scope="main",
        node="n",
        domain="gym",
        level=level,
        facts=facts,
        roles=roles,
        attributes=attributes,
    )


MARY = person("mary", "frequenter", enrolled=["ts1"])
EVE = person("eve", "frequenter", enrolled=[])
CARL = person("carl", "frequenter")
ALICE = person("alice", "coach", shift="08:00-14:00")
BOB = person("bob", "coach", shift="08:00-14:00")
SYS = Subject(kind="service", client="sys", user=None, scope="main", node="n")

P1: dict[str, Any] = {
    "id": "p1",
    "subject": "role:frequenter",
    "topic": "+/performance/ts1/+",
    "action": ["read", "write"],
    "when": "'ts1' in s.enrolled",
}
P2: dict[str, Any] = {
    "id": "p2",
    "subject": "role:coach",
    "topic": "+/performance/#",
    "action": "read",
    "when": "within(e.now, s.shift)",
}
UP1: dict[str, Any] = {
    "id": "up1",
    "user": "mary",
    "topic": "+/performance/ts1/+",
    "when": "s.role == 'coach' && s.user == 'alice'",
}
ANYTHING: dict[str, Any] = {"id": "any", "subject": "*", "topic": "#", "action": ["read", "write"]}


def write(rules: RuleSet, who: Subject, topic: str = TOPIC, payload: bytes = b"", at: float = NOON) -> Explanation:
    return Explainer(rules).write(Link(who, True, "in"), wire.Publish(topic=topic, payload=payload), at)


def read(
    rules: RuleSet,
    who: Subject,
    of: Subject = MARY,
    *,
    topic: str = TOPIC,
    payload: bytes = b"",
    properties: tuple[tuple[str, str], ...] = (),
    at: float = NOON,
    demand: Demand | None = None,
    where: str | None = None,
) -> Explanation:
    explainer = Explainer(rules)
    said = Properties(user_properties=properties) if properties else NONE
    link = Link(of, True, "in")
    written = explainer.write(link, wire.Publish(topic=topic, payload=payload, properties=said), at)
    condition = None if where is None else compile(where, names=NAMES)
    return explainer.read(written, Link(who, False, "out"), at, Terms(demand, where), condition)


def verdicts(found: Explanation) -> dict[str, str]:
    """What each step said, and by which rule."""
    return {line.place: f"{line.verdict.value} {line.rule}".strip() for line in found.lines}


def at(found: Explanation, place: str) -> Line:
    """What one step said."""
    [line] = [line for line in found.lines if line.place == place]
    return line


# -- the examples of the specification -------------------------------------------------------------------------------

MYGYM = made([P1, P2], preferences=[UP1])


@pytest.mark.parametrize(
    ("who", "topic", "headline"),
    [
        (MARY, TOPIC, "ALLOW by p1 (write, policies)"),
        (EVE, TOPIC, "DENY by default (write, policies)"),
        (CARL, TOPIC, "DENY by p1 (write, policies)"),
        (ALICE, TOPIC, "DENY by default (write, policies)"),
        (MARY, "tr1/performance/ts2/speed", "DENY by default (write, policies)"),
        (MARY, "$SYS/broker/version", "DENY by reserved (write, reserved)"),
        (SYS, "$SYS/broker/version", "DENY by default (write, policies)"),
    ],
)
def test_write(who: Subject, topic: str, headline: str) -> None:
    found = write(MYGYM, who, topic)
    assert found.headline == headline
    assert found.allowed == headline.startswith("ALLOW")
    assert (found.action, found.version, found.at) == ("write", "7-0123456789ab", NOON)


@pytest.mark.parametrize(
    ("who", "of", "at", "headline"),
    [
        (ALICE, MARY, NOON, "ALLOW by p2 (read, policies)"),
        (ALICE, MARY, EVENING, "DENY by default (read, policies)"),
        (BOB, MARY, NOON, "DENY by up1 (read, preferences)"),
        (MARY, MARY, NOON, "DENY by up1 (read, preferences)"),
        (EVE, MARY, NOON, "DENY by default (read, policies)"),
        (CARL, MARY, NOON, "DENY by p1 (read, policies)"),
        (ALICE, EVE, NOON, "DENY by default (write, policies)"),
        (BOB, person("john", "frequenter", enrolled=["ts1"]), NOON, "ALLOW by p2 (read, policies)"),
    ],
)
def test_read(who: Subject, of: Subject, at: float, headline: str) -> None:
    found = read(MYGYM, who, of, at=at)
    assert found.headline == headline
    assert found.allowed == headline.startswith("ALLOW")


def test_every_step_in_order() -> None:
    assert verdicts(read(MYGYM, BOB)) == {
        "write, reserved": "nothing to say",
        "write, policies": "allow p1",
        "brokering": "nothing to say",
        "levels": "nothing to say",
        "read, policies": "allow p2",
        "read, preferences": "deny up1",
        "view": "not asked",
        "where": "not asked",
    }


def test_what_steps_knew() -> None:
    found = read(MYGYM, BOB)
    written, levels = at(found, "write, policies"), at(found, "levels")
    policies, preferences = at(found, "read, policies"), at(found, "read, preferences")
    assert written.knew == {"s.enrolled": ["ts1"]}
    assert levels.knew["floor"] == "plain"
    [p2] = policies.considered
    assert (p2.rule, p2.says, p2.condition, p2.outcome) == ("p2", "allow", "within(e.now, s.shift)", "true")
    assert policies.knew == {"e.now": datetime(2026, 3, 2, 12, 0, tzinfo=UTC), "s.shift": "08:00-14:00"}
    [up1] = preferences.considered
    assert (up1.rule, up1.outcome) == ("up1", "false")
    assert preferences.knew == {"s.role": "coach", "s.user": "bob"}


def test_what_was_not_there() -> None:
    [_, line] = write(MYGYM, CARL).lines
    assert line.absent == ("s.enrolled",)
    assert "s.enrolled" in line.error
    [p1] = line.considered
    assert (p1.outcome, p1.error) == ("error", line.error)


def test_a_message_that_may_not_be_written_cannot_be_read() -> None:
    assert verdicts(read(MYGYM, ALICE, EVE)) == {
        "write, reserved": "nothing to say",
        "write, policies": "deny default",
        "brokering": "not asked",
        "levels": "not asked",
        "read, policies": "not asked",
        "read, preferences": "not asked",
        "view": "not asked",
        "where": "not asked",
    }


# -- step by step ----------------------------------------------------------------------------------------------------


def test_what_the_rules_leave_out_has_nothing_to_say() -> None:
    found = read(made(), BOB)
    assert found.headline == "ALLOW"
    assert set(verdicts(found).values()) == {"nothing to say"}
    notes = {line.place: line.notes for line in found.lines if line.notes}
    assert notes == {
        "write, policies": ("`policies: open`",),
        "brokering": ("brokering is open",),
        "read, policies": ("`policies: open`",),
        "read, preferences": ("there are no preferences",),
    }


DENIES: dict[str, Any] = {
    "id": "no",
    "subject": "role:coach",
    "topic": "+/performance/#",
    "action": "read",
    "effect": "deny",
}


@pytest.mark.parametrize(
    ("combining", "headline"),
    [
        ("deny-overrides", "DENY by no (read, policies)"),
        ("permit-overrides", "ALLOW by any (read, policies)"),
        ("first-applicable", "ALLOW by any (read, policies)"),
    ],
)
def test_combining(combining: str, headline: str) -> None:
    found = read(made([ANYTHING, DENIES], combining=combining), BOB)
    assert found.headline == headline
    policies = at(found, "read, policies")
    assert [(each.rule, each.says, each.outcome) for each in policies.considered] == [
        ("any", "allow", "true"),
        ("no", "deny", "true"),
    ]


@pytest.mark.parametrize("combining", ["deny-overrides", "permit-overrides", "first-applicable"])
def test_an_error_denies_and_all_policies_are_shown(combining: str) -> None:
    broken = {"id": "oops", "subject": "*", "topic": "#", "action": "read", "when": "s.nothing == 1"}
    later = {"id": "late", "subject": "*", "topic": "#", "action": "read", "when": "o.size > 5"}
    found = read(made([ANYTHING, broken, later], combining=combining), BOB)
    assert found.headline == "DENY by oops (read, policies)"
    assert [(each.rule, each.outcome) for each in at(found, "read, policies").considered] == [
        ("any", "true"),
        ("oops", "error"),
        ("late", "false"),
    ]


def test_placeholders_are_known() -> None:
    own = {"id": "own", "subject": "*", "topic": "x/{s.user}", "action": "write"}
    assert write(made([own]), MARY, "x/mary").lines[1].knew == {"s.user": "mary"}
    assert write(made([own]), MARY, "x/bob").headline == "DENY by default (write, policies)"


def test_a_publisher_has_no_publish_context_yet() -> None:
    rule = {"id": "r", "subject": "*", "topic": "#", "action": "write", "when": "p.user == 'mary'"}
    found = write(made([rule]), MARY)
    assert found.headline == "DENY by r (write, policies)"
    assert found.lines[1].absent == ("p.user",)


def test_levels() -> None:
    tls = person("bob", level="tls")
    demanding = (("require", "tls"),)
    found = read(made(), BOB, properties=demanding)
    assert found.headline == "DENY by publisher's demand (levels)"
    assert at(found, "levels").knew == {
        "publisher demands": "tls",
        "level of the reader": "plain",
        "subscriber demands": "nothing",
        "floor": "plain",
    }
    assert verdicts(read(made(), tls, properties=demanding))["levels"] == "allow"
    found = read(made(), tls, demand=Demand(("tls",)))
    assert found.headline == "DENY by subscriber's demand (levels)"
    implied = made(levels=Levels(implied=True))
    assert read(implied, tls).headline == "DENY by subscriber's demand (levels)"
    assert read(implied, BOB, person("mary", level="tls")).headline == "DENY by publisher's demand (levels)"
    assert read(implied, tls, person("mary", level="tls")).allowed
    unknown = read(made(), tls, properties=(("require", "warp"),))
    assert unknown.headline == "DENY by require (levels, demand)"
    assert at(unknown, "levels, demand").error.startswith("`warp` is no level and no fact here; require one of plain,")
    assert verdicts(unknown)["levels"] == "not asked"
    lost = at(read(made(), tls, demand=Demand(("warp",))), "levels")
    assert lost.verdict is Verdict.DENY
    assert lost.notes[0].startswith("nothing meets it: `warp` is no level and no fact here")
    inside = Levels(facts={"inside": "true"})
    near = person("bob", level="tls", facts=("inside",))
    for demand, reader, allowed in (("tls,inside", near, True), ("inside", tls, False), ("mtls,inside", near, False)):
        assert read(made(levels=inside), reader, properties=(("require", demand),)).allowed is allowed
    assert at(read(made(levels=inside), near, near), "levels").knew["floor"] == "tls,inside"


def test_brokering() -> None:
    assign = [
        Assignment(subject=Selector.parse("role:frequenter"), types=Types(inward="member", outward="member")),
        Assignment(subject=Selector.parse("role:coach"), types=Types(inward="staff", outward="staff")),
    ]
    rules = made(brokering=Brokering([("member", "staff")], assign, domain="gym"))
    found = read(rules, BOB)
    assert found.headline == "ALLOW"
    line = at(found, "brokering")
    assert (line.verdict, line.notes) == (Verdict.ALLOW, ())
    assert line.knew == {"came over": "member", "leaves over": "staff"}
    denied = read(rules, EVE)
    assert denied.headline == "DENY by brokering:member->member (brokering)"
    assert denied.denial == Deny(step=Step.BROKERING, rule="brokering:member->member")
    assert verdicts(denied)["levels"] == "not asked"
    stranger = read(rules, person("zoe"))
    assert stranger.headline == "DENY by brokering:member->untyped (brokering)"
    assert at(stranger, "brokering").notes == ("nothing passes over a link without a type",)
    own = at(read(rules, EVE, SYS, topic="$SYS/broker/version"), "brokering")
    assert (own.verdict, own.notes) == (Verdict.ALLOW, ("the node speaks of itself",))
    assert verdicts(subscribe(rules, person("zoe"), "#"))["brokering"] == "nothing to say"


def test_preferences_that_are_joined_and_keep() -> None:
    rules = made(
        preferences=[
            {"id": "a", "user": "mary", "topic": "#", "when": "s.role == 'coach'", "keep": ["/speed"]},
            {"id": "b", "user": "mary", "topic": "#", "when": "s.user == 'bob'", "keep": ["/age"]},
            {"id": "c", "user": "mary", "topic": "#", "when": "s.nothing == 1"},
        ]
    )
    found = read(rules, BOB, payload=b'{"speed":9,"age":30,"name":"Mary"}')
    assert found.headline == "ALLOW by a, b (read, preferences)"
    assert found.rules == {"a, b", "a", "b"}
    preferred = at(found, "read, preferences")
    assert [each.outcome for each in preferred.considered] == ["true", "true", "error"]
    assert preferred.view.plain == at(found, "view").view.plain == ["/age", "/speed"]
    assert verdicts(found)["view"] == "allow"
    assert found.shown is not None
    assert found.shown.payload == b'{"speed":9,"age":30}'
    denied = read(rules, person("zoe"))
    assert denied.headline == "DENY by a, b, c (read, preferences)"
    assert denied.rules == {"a, b, c", "a", "b", "c"}


VIEWS: list[dict[str, Any]] = [
    {"id": "v1", "topic": "#", "subject": "role:coach", "keep": ["/speed", "/age"]},
    {"id": "v2", "topic": "#", "subject": "user:bob", "keep": ["/name"]},
    {"id": "v3", "topic": "#", "subject": "user:zoe", "keep": "all"},
    {"id": "v4", "topic": "other", "subject": "*", "keep": "all"},
]


def test_views() -> None:
    rules = made(views=VIEWS)
    content = b'{"speed":9,"age":30,"name":"Mary","more":1}'
    found = read(rules, BOB, payload=content, properties=(("secret", "x"),))
    assert found.headline == "ALLOW by v1, v2 (view)"
    line = at(found, "view")
    assert [(each.rule, each.says, each.outcome) for each in line.considered] == [
        ("v1", "keep /age, /speed for role:coach", "true"),
        ("v2", "keep /name for user:bob", "true"),
        ("v3", "keep all for user:zoe", "false"),
    ]
    assert found.shown is not None
    assert found.shown.payload == b'{"speed":9,"age":30,"name":"Mary"}'
    assert found.shown.properties.user_properties == ()
    assert read(rules, MARY, payload=content).headline == "DENY by default (view)"
    assert read(made(views=VIEWS, shows="all"), MARY, payload=content).allowed


def test_the_publishers_view() -> None:
    table = '{"role:coach": ["/speed"], "user:eve": "all"}'
    found = read(made(views=VIEWS), BOB, payload=b'{"speed":9,"age":30}', properties=(("view", table),))
    assert found.headline == "ALLOW by v1, v2, publisher's view (view)"
    assert found.shown is not None
    assert found.shown.payload == b'{"speed":9}'
    considered = at(found, "view").considered
    assert considered[-2:] == tuple(each for each in considered if each.rule == "publisher's view")
    assert read(made(), CARL, properties=(("view", table),)).headline == "DENY by publisher's view (view)"
    broken = read(made(), BOB, properties=(("view", "["),))
    assert broken.headline == "DENY by publisher's view (view)"
    assert at(broken, "view").error.startswith("the view is no JSON")


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"9.5 km/h", "the content is no JSON that can be taken apart, so it is shown whole or not at all"),
        (b'{"weight":80}', "nothing of the content is among what may be seen"),
    ],
)
def test_nothing_is_left(payload: bytes, why: str) -> None:
    found = read(made(views=VIEWS), ALICE, payload=payload)
    assert found.headline == "DENY by nothing is left (view)"
    assert at(found, "view").notes == (why,)
    assert verdicts(found)["where"] == "not asked"


def test_tables_with_nothing_in_common() -> None:
    preferences = [{"id": "u", "user": "mary", "topic": "#", "keep": ["/name"]}]
    found = read(made(views=VIEWS, preferences=preferences), ALICE, payload=b'{"name":1}')
    assert found.headline == "DENY by nothing is left (view)"
    assert at(found, "view").notes == ("the tables have nothing in common",)
    assert found.denial is not None
    assert found.denial.rule == "nothing is left"


def test_where_sees_what_the_view_leaves() -> None:
    where = "o.payload.speed > 5"
    assert read(made(), ALICE, payload=b'{"speed":9}', where=where).allowed
    found = read(made(), ALICE, payload=b'{"speed":3}', where=where)
    assert found.headline == "DENY by where (where)"
    assert found.lines[-1].knew == {"o.payload.speed": 3}
    hidden = read(made(views=VIEWS), ALICE, payload=b'{"name":"x","age":1}', where="o.payload.name == 'x'")
    assert hidden.headline == "DENY by where (where)"
    assert hidden.lines[-1].considered[0].outcome == "error"
    assert hidden.lines[-1].absent == ("o.payload.name",)


def test_category_and_environment_are_known() -> None:
    rule = {**ANYTHING, "when": "o.category == 'sensitive' && e.location == 'milan'"}
    rules = made(
        [rule],
        classification=Classification([class_of(topic="tr1/#", category="sensitive")]),
        environment=Environment({"location": "milan"}),
    )
    assert write(rules, MARY).lines[1].knew == {"o.category": "sensitive", "e.location": "milan"}


# -- subscribing -----------------------------------------------------------------------------------------------------


def subscribe(rules: RuleSet, who: Subject, filter: str) -> Explanation:
    return Explainer(rules).subscribe(filter, Link(who, False, "out"), NOON)


def test_subscribe() -> None:
    found = subscribe(MYGYM, ALICE, "#")
    assert found.headline == "ALLOW by p2 (read, policies)"
    line = at(found, "read, policies")
    assert [(each.rule, each.outcome) for each in line.considered] == [("p2", "open")]
    assert line.knew == {"s.shift": "08:00-14:00"}
    assert subscribe(MYGYM, ALICE, "$share/g/tr1/performance/+/x").allowed
    assert subscribe(MYGYM, ALICE, "other/x/#").headline == "DENY by default (read, policies)"
    assert subscribe(MYGYM, EVE, "#").headline == "DENY by default (read, policies)"
    assert subscribe(made(), EVE, "#").headline == "ALLOW"


def test_a_subscription_that_is_held() -> None:
    found = subscribe(made([P1, P2], holds=True), EVE, "#")
    assert found.headline == "DENY by default (read, policies)"
    assert found.notes == ("it is granted but held: nothing is delivered until a rule allows it",)


# -- what a running node says ----------------------------------------------------------------------------------------


def test_the_node_may_name_another_rule() -> None:
    """It knows what the view denies before it knows what the payload does."""
    rule = {**ANYTHING, "action": "read", "when": "o.payload.speed > 5"}
    rules = made([{**ANYTHING, "id": "w", "action": "write"}, rule], views=VIEWS[2:3])
    found = read(rules, BOB, payload=b'{"speed":3}')
    assert found.headline == "DENY by default (read, policies)"
    assert found.denial == Deny(step=Step.VIEW, rule="default")
    assert found.notes == ("a running node names `default` (view): it denies before the message comes",)
    rules = made([{**ANYTHING, "id": "w", "action": "write"}, rule], preferences=[{**UP1, "when": "false"}])
    found = read(rules, BOB, payload=b'{"speed":3}')
    assert found.headline == "DENY by default (read, policies)"
    assert found.notes == ("a running node names `up1` (read): it denies before the message comes",)
    assert found.rules == {"default", "up1"}


def test_a_volatile_function_may_answer_differently() -> None:
    answers = iter([False, False, True, True, True, True])

    @function(volatile=True)
    def lucky() -> bool:
        return next(answers)

    rule = {**ANYTHING, "when": "lucky()"}
    found = write(made([rule], functions={"lucky": lucky}), MARY)
    assert found.allowed
    assert found.clocked
    assert found.notes == ("asked twice, it answered differently: a condition calls a volatile function",)


@pytest.mark.parametrize(
    ("when", "clocked"),
    [
        *(("e.hour > 3", True), ("age(p.time) < duration('1h')", True), ("p.e.hour == 3", True)),
        *(("e.now.getHours() > 3", True), ("s.user == 'x'", False), ("p.enrolled == 3", False)),
        ("p.e.location == 'milan'", False),
    ],
)
def test_whether_the_clock_matters(when: str, clocked: bool) -> None:
    rules = made([{**ANYTHING, "id": "w", "action": "write"}, {**ANYTHING, "action": "read", "when": when}])
    assert read(rules, BOB).clocked is clocked


# -- the engine does what the explanation says -----------------------------------------------------------------------


class People:
    """Everybody is known by the name of their client."""

    def __init__(self, **people: Identity) -> None:
        self.people = people

    def authenticate(self, connection: Connection, packet: wire.Connect, answer: Answer) -> None:
        answer(self.people[packet.client_id])

    def exchange(self, connection: Connection, packet: wire.Connect, method: str) -> Exchange | None:
        return None

    def reauthorize(self, session: Session) -> Identity | Refused:
        return self.people[session.client]


class Ear(Silent):
    """Hears every denial, also those that are known before the message comes."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Deny]] = []
        self.plans: list[Plan] = []

    def denied(
        self, action: str, link: Link, topic: str, why: Deny, publishers: str | None = None, message: object = None
    ) -> None:
        self.heard.append((action, why))

    def failed(self, link: Link, topic: str, errors: Iterable[tuple[str, str]]) -> None:
        # a subscriber's own condition that cannot be asked of this message: nobody denied it, and it is told anyway
        self.heard += [("read", Deny(step=Step.WHERE, rule=rule, error=why)) for rule, why in errors if rule == "where"]

    def compiled(self, lane: Lane, plan: Plan) -> None:
        self.plans.append(plan)

    @property
    def reading(self) -> list[Deny]:
        """Of deliveries; what a plan denies it denies only to messages that were admitted."""
        known = [why for plan in self.plans if plan.passed for _, why in plan.denied]
        return known + [why for action, why in self.heard if action == "read"]


SUBJECTS = ("*", "*", "*", "user:mary", "user:alice", "role:coach", "group:team", "client:reader")
FILTERS = ("#", "#", "a/#", "a/b", "+/b", "x/{s.user}", "{s.home}/b")
CONDITIONS = (
    *("true", "false", "o.qos == 1", "o.size < 20", "o.payload.level > 2", "has(o.payload.level)", "o.retain"),
    *("'k' in o.properties", "o.category == 'sensitive'", "e.hour >= 22", "within(e.now, '20:00-23:00')"),
    *("s.user == 'alice'", "'coach' in s.roles", "s.level != 'plain'", "s.clearance >= 2", "has(s.clearance)"),
    *("s.nothing == 1", "o.payload.level.deeper", "e.location == 'milan'"),
    *("o.payload.level > 2 && s.clearance >= 2", "s.nothing == 1 || o.size < 20", "o.size > 20 || e.minute > 10"),
)
OF_PUBLISHER = ("p.user == 'mary'", "p.level == 'tls'", "p.qos == 0", "p.e.location == 'milan'", "p.size > 8")
OF_MESSAGE = ("o.payload.level > 2", "o.size < 14", "e.hour >= 22", "'k' in o.properties", "e.nothing == 1", "true")
PAYLOADS = (b'{"level":3,"name":"x"}', b'{"level":1}', b'{"name":"x"}', b"", b"text", b"[]", b'{"level":"high"}')
KEEPS: tuple[Any, ...] = ("all", ["/level"], ["/name"], ["/level", "/name"], ["/other"])
TABLES = ('{"*":"all"}', '{"user:alice":["/level"],"role:coach":["/name"]}', "{}", "[")


def optional(values: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    return st.none() | st.sampled_from(values)


def identities(user: str) -> st.SearchStrategy[Identity]:
    return st.builds(
        Identity,
        principal=st.just(user),
        user=st.sampled_from([user, user, None]),
        roles=st.sampled_from([(), ("coach",), ("runner", "coach")]),
        groups=st.sampled_from([(), ("team",)]),
        attributes=st.sampled_from([{}, {"clearance": 1}, {"clearance": 3, "home": "a"}]),
        level=st.sampled_from(["plain", "plain", "plain", "tls", "tls", "mtls"]),
    )


@st.composite
def all_rules(draw: st.DrawFn) -> RuleSet:
    wheres = st.sampled_from([None, None, *CONDITIONS])
    reads = wheres | st.sampled_from(OF_PUBLISHER)

    def policy(index: int) -> dict[str, Any]:
        action = draw(st.sampled_from(["write", "read", "both"]))
        return {
            "id": f"p{index}",
            "subject": draw(st.sampled_from(SUBJECTS)),
            "topic": draw(st.sampled_from(FILTERS)),
            "action": ["read", "write"] if action == "both" else action,
            "effect": draw(st.sampled_from(["allow", "allow", "allow", "deny"])),
            "when": draw(reads),
        }

    def preference(index: int) -> dict[str, Any]:
        keep = draw(st.sampled_from(KEEPS))
        return {"id": f"u{index}", "user": "mary", "topic": "#", "when": draw(reads), "keep": keep}

    def view(index: int) -> dict[str, Any]:
        subject, keep = draw(st.sampled_from(SUBJECTS)), draw(st.sampled_from(KEEPS))
        return {"id": f"v{index}", "topic": draw(st.sampled_from(FILTERS[:5])), "subject": subject, "keep": keep}

    policies = [policy(index) for index in range(draw(st.integers(0, 4)))]
    if draw(st.sampled_from([True, True, False])):
        policies.append({**ANYTHING, "action": draw(st.sampled_from(["write", ["read", "write"]]))})
    return made(
        None if draw(st.sampled_from([True, False, False, False])) else policies,
        combining=draw(st.sampled_from(["deny-overrides", "permit-overrides", "first-applicable"])),
        preferences=[preference(index) for index in range(draw(st.integers(0, 2)))],
        views=[view(index) for index in range(draw(st.sampled_from([0, 0, 1, 2])))],
        shows=draw(st.sampled_from(["nothing", "all"])),
        levels=Levels(implied=draw(st.sampled_from([False, False, True]))),
        announces_floor=draw(st.booleans()),
        classification=Classification([class_of(topic="a/#", category="sensitive")]),
        environment=Environment({"location": "milan"} if draw(st.booleans()) else {}),
        holds=True,
    )


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(
    rules=all_rules(),
    publisher=identities("mary"),
    reader=identities("alice"),
    topic=st.sampled_from(["a/b", "a/b", "a/b", "b/b", "b/b", "x/mary", "x/alice", "$SYS/x"]),
    payload=st.sampled_from(PAYLOADS),
    qos=st.sampled_from([0, 1]),
    retain=st.booleans(),
    properties=st.lists(
        st.sampled_from([("k", "v"), ("floor", "trusted"), ("require", "tls"), ("s", "2")]), max_size=1
    ),
    table=optional(TABLES),
    demand=st.sampled_from([None, None, None, None, "plain", "tls", "none", "warp"]),
    where=optional(OF_MESSAGE),
)
def test_the_engine_does_what_the_explanation_says(
    rules: RuleSet,
    publisher: Identity,
    reader: Identity,
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    properties: list[tuple[str, str]],
    table: str | None,
    demand: str | None,
    where: str | None,
) -> None:
    world = World(rules=rules, authenticator=People(writer=publisher, reader=reader))
    world.scope.audit = ear = Ear()
    target, source = world.peer("reader"), world.peer("writer")
    target.take()
    source.take()
    said = (*properties, *([("view", table)] if table is not None else ()))
    terms = [(name, value) for name, value in (("require", demand), ("where", where)) if value is not None]
    asked = Properties(user_properties=tuple(terms))
    session = target.connection.session
    explainer = Explainer(rules)

    target.send(wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter=topic, qos=0),), properties=asked))
    [suback] = target.take()
    assert isinstance(suback, wire.Suback)
    if demand == "warp":
        assert suback.reasons == (wire.Reason.IMPLEMENTATION_SPECIFIC_ERROR,)
        return
    subscribed = explainer.subscribe(topic, session.outward, world.wall)
    assert subscribed.allowed is (("held", topic) not in suback.properties.user_properties)
    assert [why for action, why in ear.heard if action == "subscribe"] == (
        [subscribed.denial] if subscribed.denial else []
    )
    ear.heard.clear()

    packet = Properties(user_properties=said) if said else NONE
    source.send(
        wire.Publish(topic=topic, payload=payload, qos=qos, retain=retain, packet_id=2 if qos else 0, properties=packet)
    )
    written = explainer.write(
        source.connection.session.inward,
        wire.Publish(topic=topic, payload=payload, qos=qos, retain=retain, properties=packet),
        world.wall,
    )
    assert [why for action, why in ear.heard if action == "write"] == ([written.denial] if written.denial else [])
    event(f"write {written.headline.split(' by ')[0]}")

    condition = None if where is None else compile(where, names=NAMES)
    bound = Terms(read_demand(rules.levels, terms), where)
    found = explainer.read(written, session.outward, world.wall, bound, condition)
    got = target.messages()
    assert found.allowed is (len(got) == 1)
    assert not found.notes or found.denial is not None
    if found.allowed:
        assert found.shown is not None
        assert found.shown.payload == got[0].payload
        assert found.shown.properties.user_properties == got[0].properties.user_properties
    else:
        assert found.denial is not None
        # nobody is told of what is not wanted, and what was not written was told before
        silent = found.denial is written.denial or (found.denial.step is Step.WHERE and not found.denial.error)
        assert ear.reading == ([] if silent else [found.denial])
        assert found.shown is None
    event(f"read {found.decided.place if found.decided else 'open'} {found.allowed}")
    _sound(found)


def _sound(found: Explanation) -> None:
    """Nothing is asked after a denial, and the verdict is that of the lines."""
    said = [line.verdict for line in found.lines]
    denials = [at for at, verdict in enumerate(said) if verdict is Verdict.DENY]
    assert len(denials) == (not found.allowed)
    for at in denials:
        assert found.decided is found.lines[at]
        assert set(said[at + 1 :]) <= {Verdict.UNASKED}
        assert Verdict.UNASKED not in said[:at]
    if found.allowed:
        assert Verdict.UNASKED not in said
    for line in found.lines:
        true = [each for each in line.considered if each.outcome == "true"]
        failed = [each.rule for each in line.considered if each.outcome == "error"]
        match line.part, line.verdict:
            case "policies", Verdict.ALLOW:
                assert not failed
                assert ("allow", line.rule) in [(each.says, each.rule) for each in true]
            case "policies", Verdict.DENY if line.error:
                assert line.rule in failed
            case "policies", Verdict.DENY:
                # which of several rules that deny is named is open: one that is certain, or one that fails
                assert line.rule in ["default", *(each.rule for each in true if each.says == "deny")]
            case "preferences", Verdict.ALLOW:
                assert {each.rule for each in true} >= set(line.rule.split(", "))
            case "preferences", Verdict.DENY:
                assert not true
            case _:
                pass


def test_monitors_that_listen_are_named() -> None:
    half = Attachment(id="calm", monitor=Alternate(), scope="main", direction=Direction.IM_PUB)
    subject = Subject(kind="client", client="c", user="mary", scope="main", node="n")
    explainer = Explainer(RuleSet(monitors=Monitors((half,))))
    named = explainer.write(Link(subject, True, "in"), wire.Publish(topic="other", payload=b""), at=0.0)
    notes = [line.notes[0] for line in named.lines if line.step is Step.MONITOR_IN]
    assert named.allowed
    assert len(notes) == 1
    assert notes[0].startswith("what calm will do")


def test_a_filter_on_a_link_decides() -> None:
    only = Attachment(id="only", monitor=Filter(("status/+",)), scope="main", direction=Direction.IM_PUB)
    subject = Subject(kind="client", client="c", user="mary", scope="main", node="n")
    explainer = Explainer(RuleSet(monitors=Monitors((only,))))
    stopped = explainer.write(Link(subject, True, "in"), wire.Publish(topic="other", payload=b""), at=0.0)
    assert not stopped.allowed
    assert stopped.decided is not None
    assert stopped.decided.rule == "only"
    quiet = explainer.write(Link(subject, True, "in"), wire.Publish(topic="status/1", payload=b""), at=0.0)
    assert not [line for line in quiet.lines if line.step is Step.MONITOR_IN]
