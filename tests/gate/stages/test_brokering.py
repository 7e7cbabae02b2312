"""Step 6 in the engine: decided when a plan is made, from the types of both links, whoever they belong to then."""

from __future__ import annotations

from dataclasses import replace

import pytest

import pure
from pure import End, World
from tidegate import wire
from tidegate.gate import Deny, RuleSet, Step
from tidegate.policy import Demand, Selector
from tidegate.policy.brokering import Assignment, Brokering, Types, chain
from tidegate.scope import Accepted, Continue, Exchange, Identity, Refused
from tidegate.scope.authenticator import Answer
from tidegate.session import Connection, Link, Session, Subject

STAY = wire.Properties(session_expiry_interval=1000)


class Roles(pure.Anybody):
    """Everybody has the role that a table says; re-authentication says who one is by then."""

    def __init__(self, **roles: str) -> None:
        self.roles = roles

    def identity(self, user: str | None) -> Identity:
        return Identity(principal=user or "anonymous", user=user, roles=(self.roles.get(user or "", "none"),))

    def authenticate(self, connection: Connection, packet: wire.Connect, answer: Answer) -> None:
        answer(self.identity(packet.username))

    def exchange(self, connection: Connection, packet: wire.Connect, method: str) -> Exchange | None:
        roles = self

        class Once:
            def step(self, data: bytes | None) -> Continue | Accepted | Refused:
                return Accepted(identity=roles.identity(packet.username))

        return Once()

    def reauthorize(self, session: Session) -> Identity | Refused:
        return self.identity(session.subject.user)


def assigned(**types: str) -> list[Assignment]:
    """By role: `meter="sensor/-"` publishes over a link of type sensor and receives over one without a type."""
    made = []
    for role, text in types.items():
        inward, outward = (None if name == "-" else name for name in text.split("/"))
        ends = {"inward": inward, "outward": outward}
        found = Types(**{end: name for end, name in ends.items() if name is not None})
        made.append(Assignment(subject=Selector.parse(f"role:{role}"), types=found))
    return made


def rules(*pairs: tuple[str, str], **types: str) -> RuleSet:
    return RuleSet(brokering=Brokering(pairs, assigned(**types)))


def labels(*names: str, **types: str) -> RuleSet:
    return RuleSet(brokering=Brokering(chain(names), assigned(**types), labelled=True))


def say(end: End, topic: str, payload: bytes, qos: int = 0, **fields: bool) -> None:
    end.send(wire.Publish(topic=topic, payload=payload, qos=qos, packet_id=9 if qos else 0, **fields))


def got(end: End) -> list[bytes]:
    messages = end.messages()
    for message in messages:
        if message.qos:
            end.send(wire.Puback(packet_id=message.packet_id))
    return [message.payload for message in messages]


SENSING = rules(("sensor", "display"), meter="sensor/-", screen="-/display", desk="sensor/display")
PEOPLE = {"mary": "meter", "sue": "screen", "dan": "desk"}


def test_it_costs_a_message_nothing() -> None:
    world = World(rules=SENSING, authenticator=Roles(**PEOPLE))
    mary, sue, other = (world.peer(name, username=name) for name in ("mary", "sue", "ann"))
    for end in (mary, sue, other):
        end.subscribe("t")
    say(mary, "t", b"1")
    assert (got(sue), got(mary), got(other)) == ([b"1"], [], [])
    [(lane, plan)] = world.scope.gate.cache.plans()
    assert lane.link == "sensor"
    assert plan.fast is not None
    assert [session.client for session in plan.fast] == ["sue"]
    assert {link.subject.client: why for link, why in plan.denied} == {
        "mary": Deny(step=Step.BROKERING, rule="brokering:sensor->untyped"),
        "ann": Deny(step=Step.BROKERING, rule="brokering:sensor->untyped"),
    }
    assert not plan.conditional


def test_open_is_no_step_at_all() -> None:
    assert all(stage.step is not Step.BROKERING for stage in World(rules=RuleSet()).scope.gate.stages.egress)
    assert World(rules=SENSING).scope.gate.stages.egress[0].step is Step.BROKERING


def test_sources_share_plans_by_type() -> None:
    world = World(rules=SENSING, authenticator=Roles(**PEOPLE, tom="meter"))
    mary, tom, dan, sue = (world.peer(name, username=name) for name in ("mary", "tom", "dan", "sue"))
    sue.subscribe("t")
    for end in (mary, tom, dan, sue):
        say(end, "t", b"x")
    assert got(sue) == [b"x"] * 3  # what sue publishes herself has no type
    assert sorted(lane.link for lane, _ in world.scope.gate.cache.plans()) == ["sensor", "untyped"]


def test_a_subscription_is_granted_and_delivers_nothing() -> None:
    world = World(rules=SENSING, authenticator=Roles(**PEOPLE))
    mary = world.peer("mary", username="mary")
    mary.take()
    mary.subscribe("t", qos=1)
    [suback] = mary.take()
    assert isinstance(suback, wire.Suback)
    assert suback.reasons == (1,)


def test_statistics_of_the_node_pass_and_other_services_need_a_type() -> None:
    world = World(rules=SENSING, authenticator=Roles(**PEOPLE))
    sue, other = world.peer("sue", username="sue"), world.peer("ann", username="ann")
    for end in (sue, other):
        end.subscribe("$SYS/#")
        end.take()
    for name in ("sys", "http"):
        subject = Subject(kind="service", client=name, user=None, scope="main", node="n")
        world.scope.path.send(Link(subject, True, "in", Demand()), "$SYS/x", name.encode(), retain=True)
    assert got(sue) == got(other) == [b"sys"]


def test_roles_that_change_by_re_authentication() -> None:
    people = Roles(**PEOPLE)
    world = World(rules=SENSING, authenticator=people)
    method = wire.Properties(authentication_method="again")
    mary = world.peer("mary", username="mary", properties=method)
    sue = world.peer("sue", username="sue", properties=method)
    for end in (mary, sue):
        end.subscribe("t")
    say(mary, "t", b"1")
    assert (got(mary), got(sue)) == ([], [b"1"])
    people.roles = {"mary": "screen", "sue": "meter"}
    for end in (mary, sue):
        end.send(wire.Auth(reason=wire.Reason.RE_AUTHENTICATE, properties=method))
    say(mary, "t", b"2")
    say(sue, "t", b"3")
    assert (got(mary), got(sue)) == ([b"3"], [])


HOSPITAL = labels("public", "secret", doctor="secret/secret", visitor="public/public", nurse="secret/public")


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
def test_labels_are_needed_to_connect(version: int) -> None:
    world = World(rules=HOSPITAL, authenticator=Roles(dora="doctor"))
    end = world.peer("ann", username="ann", version=version)
    [connack] = end.take()
    assert isinstance(connack, wire.Connack)
    assert connack.reason == (wire.Reason.NOT_AUTHORIZED if version == wire.V5 else 5)
    assert end.closed
    assert not world.scope.sessions
    assert not world.peer("dora", username="dora", version=version).closed


def test_who_would_write_down_what_it_reads_does_not_connect() -> None:
    world = World(rules=labels("public", "secret", leak="public/secret"), authenticator=Roles(eve="leak"))
    assert world.peer("eve", username="eve").closed


def test_labels_that_are_taken_away_end_the_connection_and_drop_the_will() -> None:
    people = Roles(dora="doctor", vic="visitor", nina="nurse")
    world = World(rules=HOSPITAL, authenticator=people)
    will = wire.Will(topic="t", payload=b"gone", qos=0, retain=False)
    dora = world.peer("dora", username="dora", will=will)
    vic = world.peer("vic", username="vic")
    nina = world.peer("nina", username="nina", properties=wire.Properties(authentication_method="again"))
    for end in (dora, vic, nina):
        end.subscribe("t")
    say(vic, "t", b"public")
    say(dora, "t", b"secret")
    assert (got(dora), got(vic), got(nina)) == ([b"public", b"secret"], [b"public"], [b"public"])
    people.roles = {"nina": "none", "vic": "doctor"}
    world.scope.change(HOSPITAL)
    world.turn()
    world.turn()
    assert [type(packet) for packet in dora.take()] == [wire.Disconnect]
    assert (dora.closed, vic.closed, nina.closed) == (True, False, True)
    assert got(vic) == []
    say(vic, "t", b"now secret")
    assert got(vic) == [b"now secret"]
    people.roles["nina"] = "nurse"
    again = world.peer("nina", username="nina", properties=wire.Properties(authentication_method="again"))
    again.take()
    people.roles["nina"] = "none"
    again.send(
        wire.Auth(
            reason=wire.Reason.RE_AUTHENTICATE,
            properties=wire.Properties(authentication_method="again"),
        )
    )
    [left] = again.take()
    assert isinstance(left, wire.Disconnect)
    assert left.reason == wire.Reason.NOT_AUTHORIZED


# -- what is stored keeps its type, by name --------------------------------------------------------------------------

FIRST = rules(("one", "reader"), meter="one/-", screen="-/reader")
BOTH = rules(("one", "reader"), ("two", "reader"), meter="two/-", screen="-/reader")
ONLY_TWO = rules(("two", "reader"), meter="two/-", screen="-/reader")
FORGOTTEN = rules(("three", "reader"), meter="three/-", screen="-/reader")


def test_retained_messages_of_a_type_that_is_not_known_any_more() -> None:
    world = World(rules=FIRST, authenticator=Roles(**PEOPLE))
    mary, sue = world.peer("mary", username="mary"), world.peer("sue", username="sue")
    sue.take()
    say(mary, "t", b"old", retain=True)
    for now, passes in ((FIRST, True), (BOTH, True), (ONLY_TWO, False), (FORGOTTEN, False), (FIRST, True)):
        world.scope.change(now)
        sue.subscribe("t")
        assert got(sue) == ([b"old"] if passes else [])


def test_messages_from_the_time_when_brokering_was_open_have_no_type() -> None:
    world = World(rules=RuleSet(), authenticator=Roles(**PEOPLE))
    mary, sue = world.peer("mary", username="mary"), world.peer("sue", username="sue")
    say(mary, "t", b"old", retain=True)
    world.scope.change(FIRST)
    sue.subscribe("t")
    assert got(sue) == []
    say(mary, "t", b"new", retain=True)
    assert got(sue) == [b"new"]


def test_what_waits_is_decided_by_the_type_that_its_receiver_has_when_it_is_sent() -> None:
    people = Roles(**PEOPLE)
    world = World(rules=FIRST, authenticator=people)
    mary, sue = world.peer("mary", username="mary"), world.peer("sue", username="sue", properties=STAY)
    sue.subscribe("t", qos=1)
    sue.lose()
    say(mary, "t", b"1", qos=1)
    people.roles["sue"] = "meter"
    world.scope.change(replace(FIRST, version="2-000000000000"))
    sue = world.peer("sue", username="sue", clean_start=False, properties=STAY)
    assert got(sue) == []


@pytest.mark.parametrize(
    ("now", "left"), [(FIRST, [b"one"]), (BOTH, [b"one", b"two"]), (ONLY_TWO, [b"two"]), (FORGOTTEN, [])]
)
def test_what_waits_keeps_the_type_it_came_with_though_its_publisher_has_another_by_now(
    now: RuleSet, left: list[bytes]
) -> None:
    world = World(rules=FIRST, authenticator=Roles(**PEOPLE))
    mary, sue = world.peer("mary", username="mary"), world.peer("sue", username="sue", properties=STAY)
    sue.subscribe("t", qos=1)
    sue.lose()
    say(mary, "t", b"one", qos=1)
    world.scope.change(BOTH)
    say(mary, "t", b"two", qos=1)
    world.scope.change(now)
    sue = world.peer("sue", username="sue", clean_start=False, properties=STAY)
    assert got(sue) == left


def test_qos_2_has_the_type_of_its_link_when_it_is_released() -> None:
    world = World(rules=FIRST, authenticator=Roles(**PEOPLE))
    mary, sue = world.peer("mary", username="mary"), world.peer("sue", username="sue")
    sue.subscribe("t", qos=1)
    sue.take()
    say(mary, "t", b"one", qos=2)
    world.scope.change(ONLY_TWO)
    mary.send(wire.Pubrel(packet_id=9))
    assert got(sue) == [b"one"]
    say(mary, "t", b"two", qos=2)
    mary.send(wire.Pubrel(packet_id=9))
    assert got(sue) == [b"two"]
