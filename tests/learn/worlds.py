"""Random small worlds: people, the rights that they have, and what was seen of them; and the gate that decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from tidegate.config import Config, parse
from tidegate.gate import Deny, RuleSet, undecided
from tidegate.learn.as_yaml import to_yaml
from tidegate.learn.propose import Options, Proposals, propose
from tidegate.learn.table import PERSON, READ, SUBSCRIBE, WRITE, Row, Table, tabulate
from tidegate.pipeline.replay.replay_engine import NOWHERE, Publisher, ReplayEngine
from tidegate.pipeline.replay.uses import described
from tidegate.session import NO_OPTIONS, Context, Message, Subject

MIDNIGHT = 1_700_006_400.0
NODE = "version: 1\nnode: {name: n}\nlisteners: [{url: 'mqtt://127.0.0.1:1883', anonymous: true}]\n"

# whatever a client may be called: also what means something to YAML, CEL, MQTT, policies or a shell
NAMES = ["mary", "bob", "tr1", "tr2", "x", "o'hara", 'a"b', "{s.user}", "${HOME}", "*", "a+b", "c#", "d/e", " f", "g@h"]
NAMES += ["yes", "#", "null", "- a", "ü", "user:mary", "a: b", "\\", "%00", "[x]", "}{", "\u2028", "=1"]
LEVELS = ["speed", "heart", "tr1", "tr2", "tr3", "a", "", "{x}", "}}", "'", '"', "ts1", "$x", "mary", "é"]


@dataclass(slots=True)
class World:
    people: list[Subject] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def table(self) -> Table:
        return tabulate(self.rows, (), "n")


def subject(user: str | None, client: str, roles: tuple[str, ...], attributes: dict[str, object]) -> Subject:
    return Subject(
        kind="client",
        client=client,
        user=user,
        scope="main",
        node="n",
        domain="n",
        level="plain",
        address="127.0.0.1",
        listener="mqtt://127.0.0.1:1883",
        roles=roles,
        attributes=attributes,
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World()
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True))
    for name in names:
        attributes = {
            "machine": draw(st.sampled_from(LEVELS)),
            "reads": tuple(draw(st.lists(st.sampled_from(LEVELS), max_size=3))),
        }
        roles = draw(st.sampled_from([(), ("r",), ("q",), ("r", "q")]))
        user = draw(st.sampled_from([None, name, name]))
        person = subject(user, draw(st.sampled_from([name, f"{name}-phone"])), roles, attributes)
        world.people.append(person)
        at = MIDNIGHT
        world.rows.append((user, person.client, PERSON, "", 0, "", described(person), 1, at, at))
    part = st.sampled_from([*LEVELS, "{user}", "{client}", "{machine}", "{any}", "{any}"])
    rights = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["*", "r", "q", *names]),
                st.lists(part, min_size=1, max_size=4),
                st.sampled_from([READ, WRITE]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    for whose, parts, action in rights:
        for person in world.people:
            if whose in ("*", *person.roles, person.user, person.client):
                for _ in range(draw(st.integers(0, 4))):
                    _use(draw, world, person, parts, action)
    return world


def _use(draw: st.DrawFn, world: World, person: Subject, parts: list[str], action: str) -> None:
    known = {"{user}": person.user or "nobody", "{client}": person.client, "{machine}": person.attributes["machine"]}
    topic = "/".join(draw(st.sampled_from(LEVELS)) if part == "{any}" else str(known.get(part, part)) for part in parts)
    if not topic or topic.startswith("$") or set(topic) & set("+#"):
        return
    hour = draw(st.integers(0, 23))
    at = MIDNIGHT + draw(st.integers(0, 9)) * 86400 + hour * 3600
    rule = draw(st.sampled_from(["", "", "", "default"]))
    count = draw(st.sampled_from([1, 30]))
    world.rows.append((person.user, person.client, action, topic, hour, rule, "", count, at, at))
    if action == READ and draw(st.booleans()):
        levels = topic.split("/")
        wide = [draw(st.sampled_from([level, "+"])) for level in levels[: draw(st.integers(1, len(levels)))]]
        filter = "/".join([*wide, *(["#"] if len(wide) < len(levels) or draw(st.booleans()) else [])])
        if filter and not filter.startswith("$"):
            world.rows.append((person.user, person.client, SUBSCRIBE, filter, hour, "", "", 1, at, at))


def learned(world: World, options: Options | None = None) -> tuple[Proposals, Config]:
    """What is proposed, and the configuration that it makes."""
    proposals = propose(world.table(), options)
    text = to_yaml(proposals, [])
    return proposals, parse(text.replace("version: 1\n", NODE, 1), "learned.yaml", variables={})


class Judge:
    """The gate of a node with these rules."""

    def __init__(self, rules: RuleSet) -> None:
        self.engine = ReplayEngine(rules, "n")

    def allows(self, person: Subject, action: str, topic: str, at: float) -> bool:
        engine = self.engine
        engine.at(at)
        session = engine.recorded(person)
        assert session is not None
        engine.identify(session, person, (), True)
        gate = engine.realm.scopes["main"].gate
        if action == SUBSCRIBE:
            return not isinstance(gate.grant(topic, session.outward), Deny)
        if action == READ:
            context = Context(subject=subject("somebody", "else", (), {})).encode()
            message = Message(topic, b"", 0, False, at, NOWHERE, 0, context, "in")
            return not isinstance(gate.permits(message, session), Deny)
        context = Context(subject=person)
        publisher = engine.publisher(context, context.encode(), None, NO_OPTIONS, False)
        assert isinstance(publisher, Publisher)
        plan = engine.plan(publisher, engine.lane(publisher), topic.encode())
        message = Message(topic, b"", 0, False, at, NOWHERE, 0, publisher.context, publisher.link.type)
        return plan.refusal is None and undecided(plan.admission, message) is None
