"""What a service makes of other people's messages, without sockets: who decides about it, and what it keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pure import End, World
from scope.spaces import got, say
from scope.written import rules, written
from tidegate import wire
from tidegate.config.keys import Keys
from tidegate.gate import Deny, Step
from tidegate.keys import key_id, seal, unseal
from tidegate.keys.sealing import NONCE
from tidegate.keyservice.topic_keys import TopicKeys
from tidegate.policy import Demand
from tidegate.scope.derived_by_services import Deriving
from tidegate.session import Context, Origin, Subject

ONE = "scopes: {a: {}}\n"
OPEN = (
    ONE
    + """
policies:
  - {id: pipe, subject: "service:pipeline", topic: "weather/#", action: write}
  - {id: warm, subject: "service:pipeline", topic: "warm/#", action: write, when: "o.payload.value > 20"}
  - {id: people, subject: "*", topic: "#", action: read}
"""
)
BODY = b'{"id":"x","value":21.5,"unit":"C"}'
NODE = Origin("ab" * 8, 1)
SCORES = '{"timeliness":0.9}'


class Station:
    """The pipeline in a world of its own."""

    def __init__(self, text: str = OPEN, *, scope: str = "a") -> None:
        self.world: World = written(text)
        self.topic_keys = TopicKeys(self.world.site, Keys(), None, None)
        for each in self.world.realm.scopes.values():
            each.path.protector.keyring = self.topic_keys
        self.scope = self.world.realm.scopes[scope]
        self.service = Deriving(self.scope, "pipeline", scores=True)
        self.count = 0

    @property
    def denials(self) -> list[tuple[str, str, str, str]]:
        found: list[tuple[str, str, str, str]] = self.world.heard.denials  # type: ignore[attr-defined]
        return found

    def come(self, client: str, *filters: str, scope: str = "a", where: str | None = None, **fields: Any) -> End:
        end = self.world.peer(client, scope=scope, username=client, **fields)
        about = wire.NONE if where is None else wire.Properties(user_properties=(("where", where),))
        for filter in filters:
            end.send(
                wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter=filter, qos=1),), properties=about)
            )
        end.take()
        return end

    def context(self, user: str | None = "mary", scope: str = "a", level: str = "plain", **fields: Any) -> bytes:
        subject = Subject(kind="client", client=f"{user}'s", user=user, scope=scope, node="n", domain="n", level=level)
        return Context(subject=subject, **fields).encode()

    def publish(
        self,
        topic: str,
        payload: bytes = BODY,
        *,
        context: bytes | None = None,
        before: str | None = "raw/1",
        **more: Any,
    ) -> Deny | int:
        self.world.site.open()
        self.count += 1
        more.setdefault("said", (("id", f"{self.count}"), ("scores", SCORES)))
        more.setdefault("number", (NODE, self.count, 1))
        data = self.context() if context is None else context
        return self.service.publish(data, before, topic, payload, **more)


def messages(end: End) -> list[wire.Publish]:
    found = end.messages()
    for packet in found:
        if packet.qos == 1:
            end.send(wire.Puback(packet_id=packet.packet_id))
    return found


def pairs(packet: wire.Publish) -> dict[str, str]:
    return dict(packet.properties.user_properties)


# -- who writes ----------------------------------------------------------------------------------------------------


def test_policies_for_the_service_decide_and_a_denial_is_heard() -> None:
    here = Station()
    end = here.come("bob", "#")
    assert here.publish("weather/1") == 1
    assert got(end) == [("weather/1", BODY)]
    denied = here.publish("elsewhere")
    assert isinstance(denied, Deny)
    assert denied.step is Step.WRITE
    assert here.denials == [("write", "service:pipeline->scope:a", "elsewhere", denied.rule)]
    assert got(end) == []


def test_what_the_publisher_may_not_write_the_service_may_and_the_other_way_round() -> None:
    here = Station(
        ONE
        + """
policies:
  - {id: pipe, subject: "service:pipeline", topic: "weather/#", action: write}
  - {id: mary, subject: "user:mary", topic: "raw/#", action: write}
  - {id: read, subject: "*", topic: "#", action: read}
"""
    )
    assert here.publish("weather/1") == 0
    assert isinstance(here.publish("raw/2"), Deny)


def test_each_record_is_decided_by_its_content() -> None:
    here = Station()
    end = here.come("bob", "#")
    assert [isinstance(here.publish("warm/1", b'{"value":%d}' % value), Deny) for value in (19, 21, 20)] == [
        True,
        False,
        True,
    ]
    assert got(end) == [("warm/1", b'{"value":21}')]
    assert isinstance(here.publish("warm/1", b"no JSON"), Deny)


def test_conditions_on_writing_see_the_scores() -> None:
    here = Station(
        ONE
        + """
policies:
  - {id: good, subject: "service:pipeline", topic: "#", action: write, when: "o.scores.timeliness > 0.5"}
  - {id: read, subject: "*", topic: "#", action: read}
"""
    )
    assert here.publish("t") == 0
    assert isinstance(here.publish("t", said=(("scores", '{"timeliness":0.1}'),)), Deny)
    assert isinstance(here.publish("t", said=(("scores", "{}"),)), Deny)


@pytest.mark.parametrize(
    ("topic", "rule"),
    [("$SYS/x", "reserved"), ("$tidegate/rules", "reserved"), ("a/+", "topic"), ("", "topic"), ("x" * 65_536, "topic")],
)
def test_topics_that_are_none_of_its(topic: str, rule: str) -> None:
    here = Station(ONE)
    denied = here.publish(topic)
    assert isinstance(denied, Deny)
    assert denied.rule == rule
    assert [each[3] for each in here.denials] == [rule]


def test_a_monitor_of_the_same_name_is_somebody_else() -> None:
    here = Station(
        ONE
        + """
monitors:
  - {id: pipeline, link: "client:mary->scope:a", map: {"raw/#": "weather/#"}}
policies:
  - {id: pipe, subject: "service:pipeline", topic: "#", action: write}
  - {id: mary, subject: "user:mary", topic: "raw/#", action: write}
  - {id: read, subject: "*", topic: "#", action: read}
"""
    )
    end, mary = here.come("bob", "#"), here.come("mary")
    here.service = Deriving(here.scope, "pipeline", scores=False)  # contexts are equal then
    assert here.publish("weather/1", context=mary.connection.session.context) == 1
    assert got(end) == [("weather/1", BODY)]
    say(mary, "raw/1", BODY)
    assert got(end) == [], "nobody lets the monitor write"


# -- what it keeps -------------------------------------------------------------------------------------------------


def test_the_owner_speaks_of_the_topic_it_was_published_under() -> None:
    here = Station(
        ONE
        + """
directory: {users: {mary: {password: "plain:m"}}}
preferences:
  - {id: raw, user: mary, topic: "raw/1", when: "s.user == 'alice'"}
  - {id: weather, user: mary, topic: "weather/#", when: "s.user == 'bob'"}
"""
    )
    alice, bob = here.come("alice", "#"), here.come("bob", "#")
    here.publish("weather/1", before="raw/1")
    assert (len(got(alice)), len(got(bob))) == (1, 0)
    here.publish("weather/1", before="raw/2")
    assert (len(got(alice)), len(got(bob))) == (1, 1), "there is no preference about that"
    here.publish("weather/1", before=None)
    assert (len(got(alice)), len(got(bob))) == (0, 1), "it is published for the first time"
    here.publish("weather/1", context=here.context(topic="raw/1"), before="mapped/1")
    assert (len(got(alice)), len(got(bob))) == (1, 0), "a monitor had given it another name before"
    here.publish("weather/1", context=here.context("carol"))
    assert (len(got(alice)), len(got(bob))) == (1, 1), "hers are not everybody's"


def test_conditions_see_who_published_it_where_and_when() -> None:
    published = "p.user == 'mary' && p.topic == 'raw/1' && p.e.location == 'barn'"
    said = f"{published} && p.time == timestamp('2026-03-02T09:00:00Z')"
    here = Station(
        ONE
        + f"""
policies:
  - {{id: pipe, subject: "service:pipeline", topic: "#", action: write}}
  - {{id: read, subject: "*", topic: "#", action: read, when: "{said}"}}
"""
    )
    end = here.come("bob", "#")
    context = here.context(surroundings={"location": "barn"})
    at = 1772442000.0
    here.publish("t", context=context, at=at)
    assert len(got(end)) == 1
    here.publish("t", context=context, at=at, before="raw/2")
    here.publish("t", context=context, at=at + 1)
    here.publish("t", at=at)
    here.publish("t", context=here.context("bob", surroundings={"location": "barn"}), at=at)
    assert got(end) == []


def test_the_demand_and_the_floor_of_what_it_was_made_of() -> None:
    here = Station(ONE + "levels: {}\n")
    end = here.come("bob", "#")
    here.publish("t", context=here.context(demand=Demand(("tls",))))
    assert got(end) == [], "it is connected in clear"
    for level in ("plain", "tls"):
        here.publish("t", context=here.context(level=level))
        (packet,) = messages(end)
        assert packet.properties.user_properties[-1] == ("floor", level)
    picky = here.world.peer("picky", scope="a", username="picky")
    about = wire.Properties(user_properties=(("require", "tls"),))
    picky.send(wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter="#", qos=1),), properties=about))
    picky.take()
    here.publish("t")
    assert got(picky) == []
    here.publish("t", context=here.context(level="mtls"))
    assert len(got(picky)) == 1


def test_the_table_of_visibility() -> None:
    here = Station(ONE)
    bob, carol, eve = (here.come(name, "#") for name in ("bob", "carol", "eve"))
    table = {"user:bob": ["/value"], "user:carol": "all"}
    here.publish("t", context=here.context(view=json.dumps(table)))
    (packet,) = messages(carol)
    assert packet.payload == BODY
    assert pairs(packet)["scores"] == SCORES
    assert got(bob) == [], "`/value` of what came in is not `/value` of this"
    assert got(eve) == []


def test_parts_that_an_owner_keeps_of_a_message_are_not_parts_of_what_is_made_of_it() -> None:
    here = Station(
        ONE
        + """
directory: {users: {mary: {password: "plain:m"}}}
preferences:
  - {id: part, user: mary, topic: "raw/1", when: "s.user == 'bob'", keep: [/value]}
  - {id: whole, user: mary, topic: "raw/1", when: "s.user == 'carol'"}
  - {id: later, user: mary, topic: "raw/2", when: "s.user == 'bob' && o.size > 1", keep: [/value]}
"""
    )
    bob, carol = here.come("bob", "#"), here.come("carol", "#")
    here.publish("weather/1", before="raw/1")
    assert (len(got(bob)), len(got(carol))) == (0, 1)
    here.publish("weather/1", before="raw/2")
    assert (len(got(bob)), len(got(carol))) == (0, 0)


def test_labels_do_not_fall() -> None:
    here = Station(
        ONE
        + """
brokering:
  preset: blp
  labels: [public, secret]
  assign:
    - {client: "user:general", in: secret, out: secret}
    - {client: "*", in: public, out: public}
"""
    )
    general, bob = here.come("general", "#"), here.come("bob", "#")
    here.publish("t", context=here.context("general"))
    assert (len(got(general)), len(got(bob))) == (1, 0)
    here.publish("t")
    assert (len(got(general)), len(got(bob))) == (1, 1)


def test_it_crosses_to_other_scopes_like_anything_else() -> None:
    text = """
scopes: {a: {}, b: {}}
links: [{from: a, to: b, share: [{topic: "weather/#", remote_prefix: "far/"}]}]
directory: {users: {mary: {password: "plain:m"}}}
preferences: [{id: near, user: mary, topic: "raw/secret", to: b, when: "false"}]
"""
    here = Station(text)
    far = here.come("far", "#", scope="b")
    assert here.publish("weather/1") == 1
    (packet,) = messages(far)
    assert (packet.topic, pairs(packet)["scores"]) == ("far/weather/1", SCORES)
    assert here.publish("other/1") == 0
    assert here.publish("weather/1", before="raw/secret") == 0
    assert got(far) == []


def test_rules_that_change_bind_the_next_one() -> None:
    here = Station()
    end = here.come("bob", "#")
    assert here.publish("weather/1") == 1
    here.world.realm.change(rules(OPEN.replace("weather", "climate")))
    here.service = Deriving(here.scope, "pipeline", scores=True)
    assert isinstance(here.publish("weather/1"), Deny)
    assert here.publish("climate/1") == 1
    assert [topic for topic, _ in got(end)] == ["weather/1", "climate/1"]


def test_what_a_monitor_makes_of_it_is_another_message() -> None:
    here = Station(
        ONE
        + """
monitors:
  - id: twice
    link: "scope:a->client:bob"
    automaton: {start: s, states: {s: [{on: t, emit: [same, {topic: t, payload: "{}"}, {topic: u, payload: "{}"}]}]}}
"""
    )
    end = here.come("bob", "#")
    number = (NODE, 0x2B, 3)
    given = f"{'ab' * 8}-1-2b.3"
    here.publish("t", number=number, said=(("id", given), ("scores", SCORES)))
    found = messages(end)
    assert [(each.topic, pairs(each)["id"]) for each in found] == [
        ("t", given),
        ("t", f"{given}.1"),
        ("u", f"{given}.2"),
    ]
    assert all(pairs(each)["scores"] == SCORES for each in found)


# -- scores --------------------------------------------------------------------------------------------------------


def test_subscribers_choose_by_score() -> None:
    here = Station(ONE)
    ends = {
        text: here.come(f"c{at}", "#", where=text)
        for at, text in enumerate(
            (
                "o.scores.timeliness >= 0.8",
                "has(o.scores.timeliness)",
                "!has(o.scores.timeliness)",
                "has(o.scores) && (!has(o.scores.accuracy) || o.scores.accuracy > 0.5)",
                "o.scores.accuracy < 2.0",
            )
        )
    }
    expected = {
        '{"timeliness":0.9}': [1, 1, 0, 1, 0],
        '{"timeliness":0.2}': [0, 1, 0, 1, 0],
        '{"accuracy":0.2}': [0, 0, 1, 0, 1],
        "{}": [0, 0, 1, 1, 0],
    }
    for scores, wanted in expected.items():
        here.publish("t", said=(("id", "1"), ("scores", scores)))
        assert [len(got(end)) for end in ends.values()] == wanted, scores


def test_nobody_vouches_for_himself() -> None:
    here = Station(ONE)
    mary = here.come("mary")
    choosy, anybody = here.come("c", "#", where="o.scores.timeliness >= 0.8"), here.come("d", "#")
    said = wire.Properties(user_properties=(("scores", '{"timeliness":1.0}'), ("id", "7"), ("other", "1")))
    for qos in (0, 1):
        say(mary, "t", BODY, qos=qos, properties=said)
    say(mary, "t", BODY, retain=True, properties=said)
    will = wire.Will(topic="t", payload=BODY, qos=1, retain=False, properties=said)
    here.world.peer("dying", scope="a", username="dying", will=will).lose()
    assert got(choosy) == []
    found = messages(anybody)
    assert len(found) == 4
    for packet in found:
        assert pairs(packet) == {"id": "7", "other": "1"}, "only what the pipeline says of scores is passed on"


def test_what_is_queued_keeps_its_scores() -> None:
    here = Station(ONE)
    keep = wire.Properties(session_expiry_interval=1000)
    end = here.come("away", "#", where="o.scores.timeliness >= 0.8", properties=keep)
    end.lose()
    here.publish("t", said=(("id", "1"), ("scores", '{"timeliness":0.7}')))
    here.publish("t", said=(("id", "2"), ("scores", '{"timeliness":0.8}')))
    back = here.world.peer("away", scope="a", username="away", clean_start=False, properties=keep)
    assert [pairs(each)["id"] for each in messages(back)] == ["2"]


# -- protected topics ----------------------------------------------------------------------------------------------

SEALED = (
    ONE
    + """
keys: {protect: ["p/#"], end_to_end: ["e/#"]}
directory: {users: {mary: {password: "plain:m"}}}
preferences: [{id: mine, user: mary, topic: "raw/mine", when: "s.user == 'bob'"}]
policies:
  - {id: pipe, subject: "service:pipeline", topic: "p/#", action: write, when: "o.payload.value > 20"}
  - {id: free, subject: "service:pipeline", topic: "e/#", action: write}
  - {id: other, subject: "service:pipeline", topic: "p/free/#", action: write}
  - {id: people, subject: "*", topic: "#", action: read}
"""
)


def sealed(here: Station, topic: str, payload: bytes = BODY, before: str = "raw/1", rotate: bool = False) -> bytes:
    """A record under the key that the pipeline is given for it."""
    here.world.site.open()
    found = here.service.planned(here.context(), before, topic)
    assert not isinstance(found, Deny)
    assert found[1].sealing is not None
    key = here.topic_keys.current(found[1].sealing.group)
    if rotate:
        here.topic_keys.rotate()
    return seal(key, payload, topic=topic, nonce=bytes(NONCE))


def opened(here: Station, packet: wire.Publish) -> bytes:
    assert list(json.loads(packet.payload)) == ["keyId", "data"]
    id = key_id(packet.payload)
    assert pairs(packet)["keyId"] == id
    assert id is not None
    key = here.topic_keys.ring.find(id, here.world.site.wall)
    assert key is not None
    return unseal(key.secret, packet.payload, topic=packet.topic)


@pytest.mark.parametrize("topic", ["p/1", "p/free/1", "e/1"])
def test_what_comes_under_its_key_stays_as_it_is(topic: str) -> None:
    here = Station(SEALED)
    end = here.come("bob", "#")
    body = sealed(here, topic)
    assert here.publish(topic, body) == 1
    (packet,) = messages(end)
    assert packet.payload == body
    assert opened(here, packet) == BODY


def test_a_condition_on_writing_looks_inside() -> None:
    here = Station(SEALED)
    end = here.come("bob", "#")
    denied = here.publish("p/1", sealed(here, "p/1", b'{"value":3}'))
    assert isinstance(denied, Deny)
    assert (denied.step, got(end)) == (Step.WRITE, [])


def test_what_comes_in_clear_is_sealed_here() -> None:
    here = Station(SEALED)
    end = here.come("bob", "#")
    assert here.publish("p/free/1") == 1
    (packet,) = messages(end)
    assert opened(here, packet) == BODY
    denied = here.publish("e/1")
    assert isinstance(denied, Deny)
    assert (denied.step, denied.rule) == (Step.PROTECT, "keys")


def test_a_key_that_does_not_seal_any_more_is_replaced() -> None:
    here = Station(SEALED)
    end = here.come("bob", "#")
    old = sealed(here, "p/free/1", rotate=True)
    assert here.publish("p/free/1", old) == 1
    (packet,) = messages(end)
    assert key_id(packet.payload) != key_id(old)
    assert opened(here, packet) == BODY


def test_a_key_for_other_readers_is_replaced() -> None:
    here = Station(SEALED)
    bob = here.come("bob", "#")
    wide = sealed(here, "p/free/1")
    assert here.publish("p/free/1", wide, before="raw/mine") == 1
    (packet,) = messages(bob)
    assert key_id(packet.payload) != key_id(wide), "mary lets only bob read that"
    assert opened(here, packet) == BODY


def test_a_key_that_is_gone_denies() -> None:
    here = Station(SEALED)
    body = sealed(here, "p/free/1")
    assert here.topic_keys.revoke(key_id(body) or "")
    denied = here.publish("p/free/1", body)
    assert isinstance(denied, Deny)
    assert (denied.step, denied.rule) == (Step.PROTECT, "keys")
    assert "ask for another key" in denied.error


def test_what_came_in_sealed_is_clear_in_between() -> None:
    here = Station(SEALED.replace('topic: "p/free/#"', 'topic: "#"'))
    end = here.come("bob", "#", where="o.payload.value > 20")
    context = here.context(sealed=True, under="p/raw", key=b"wrapped")
    assert here.publish("t", context=context, before="p/raw") == 1
    assert got(end) == [("t", BODY)]
    way = here.service.planned(context, "p/raw", "t")
    assert not isinstance(way, Deny)
    made = Context.decode(way[0].data)
    assert (made.sealed, made.under, made.key, made.scored, made.topic) == (False, None, None, True, "p/raw")
    assert replace(made, scored=False, topic=None).encode() == here.context()


def test_the_readers_of_a_key_are_those_of_what_it_was_made_of() -> None:
    here = Station(SEALED)
    here.world.site.open()
    groups = []
    for before in ("raw/1", "raw/mine"):
        found = here.service.planned(here.context(), before, "p/free/1")
        assert not isinstance(found, Deny)
        assert found[1].sealing is not None
        groups.append(found[1].sealing.group)
    assert groups[0].id != groups[1].id
    assert (groups[0].owner, groups[1].owner) == (None, "mary")


# -- reading -------------------------------------------------------------------------------------------------------


def test_what_it_may_read() -> None:
    here = Station(
        ONE
        + """
keys: {protect: ["p/#"]}
levels: {implied: true}
directory: {users: {mary: {password: "plain:m"}, ann: {password: "plain:a"}}}
preferences: [{id: not-you, user: ann, topic: "p/#", when: "s.kind == 'client'"}]
policies: [{id: pipe, subject: "service:pipeline", topic: "p/yes", action: read}]
"""
    )
    here.world.site.open()

    def denied(topic: str, user: str) -> str | None:
        found = here.service.readable(topic, here.context(user, sealed=True, demand=Demand(("trusted",))))
        return found.rule if isinstance(found, Deny) else None

    assert denied("p/yes", "mary") is None
    assert denied("p/no", "mary") is not None
    assert denied("p/yes", "ann") == "not-you"
