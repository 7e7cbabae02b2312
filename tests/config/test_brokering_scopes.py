"""Brokering with several scopes: a good file for each preset, and types, interfaces and roles that are wrong."""

from __future__ import annotations

import pytest

from tidegate.config import Config, ConfigErrors, parse
from tidegate.monitor import Direction
from tidegate.monitor.event import Event
from tidegate.monitor.library import Filter
from tidegate.policy.brokering import PLAIN, Types, chain
from tidegate.policy.scopes import ALL, Role, ScopeLink, Way
from tidegate.session import Subject

HEAD = (
    "version: 1\nnode: {name: n}\npolicies: open\nlisteners: [{url: 'mqtt://127.0.0.1', anonymous: true, scope: H2}]\n"
)
HOME = """\
scopes:
  I: {}
  H1: {parents: [I]}
  H2: {parents: [H1, H4]}
  H3: {parents: [H1]}
  H4: {}
"""
BUS = HEAD.replace("H2", "plant")
RBAC = """\
brokering:
  preset: rbac
  bus: plant
  roles:
    operator: {pub: ["cmd/#"], sub: ["state/#", alarm]}
    machine: {pub: ["state/+"], sub: ["cmd/#"]}
"""


def read(more: str, head: str = HEAD) -> Config:
    return parse(head + more, "f.yaml", variables={})


def problems(more: str, head: str = HEAD) -> list[str]:
    with pytest.raises(ConfigErrors) as wrong:
        read(more, head)
    return str(wrong.value).splitlines()


def types(config: Config) -> dict[str, str]:
    return {link.name: link.type for link in config.built.rules.space.links}


def of_client(config: Config) -> Types:
    who = Subject(kind="client", client="c", user=None, scope="H2", node="n", domain="n")
    return config.built.rules.brokering.types(who)


class TestComponent:
    def test_links_go_up_and_down(self) -> None:
        config = read(HOME + "brokering: {preset: component}\n")
        rules = config.built.rules
        assert rules.space.scopes == ("I", "H1", "H2", "H3", "H4")
        assert dict(rules.space.parents) == {"H1": ("I",), "H2": ("H1", "H4"), "H3": ("H1",)}
        assert types(config) == {
            "H1->I": "up",
            "I->H1": "down",
            "H2->H1": "up",
            "H1->H2": "down",
            "H2->H4": "up",
            "H4->H2": "down",
            "H3->H1": "up",
            "H1->H3": "down",
        }
        assert rules.brokering.pairs == {("up", "up"), ("up", "down"), ("down", "down")}
        assert not rules.brokering.labelled
        assert of_client(config) == Types(inward="up", outward="down")

    def test_other_links_are_given_a_type(self) -> None:
        more = HOME + "links: [{from: H3, to: H4}]\nbrokering:\n  preset: component\n  assign:\n"
        config = read(more + "    - {link: H3->H4, type: up}\n    - {link: 'scope:H4 -> scope:H3', type: down}\n")
        assert {name: types(config)[name] for name in ("H3->H4", "H4->H3")} == {"H3->H4": "up", "H4->H3": "down"}
        assert problems(more + "    - {link: H3->H4, type: up}\n") == [
            "f.yaml:11: `links[0]` has no type for `H4->H3`, so nothing would pass there; "
            'add `{link: "H4->H3", type: …}` to `brokering.assign`'
        ]

    def test_parents_and_children_have_theirs(self) -> None:
        assert problems(HOME + "brokering:\n  preset: component\n  assign: [{link: I->H1, type: up}]\n") == [
            "f.yaml:13: `brokering.assign[0].link` is `I->H1`, which is `down` because one is the parent of the other; "
            "remove it"
        ]


class TestAssigned:
    LABELS = "brokering:\n  preset: blp\n  labels: [low, high]\n"
    TWO = "scopes: {H2: {parents: [top]}, top: {}, side: {}}\nlinks: [{from: H2, to: side, direction: out}]\n"

    def test_labels(self) -> None:
        config = read(
            self.TWO + self.LABELS + "  assign: [{link: H2->top, type: high}, {client: '*', in: high, out: low}]\n"
            "  default: {link: low}\n"
        )
        assert types(config) == {"H2->top": "high", "top->H2": "low", "H2->side": "low"}
        assert config.built.rules.brokering.pairs == chain(("low", "high"))
        assert config.built.rules.brokering.labelled
        assert of_client(config) == Types(inward="high", outward="low")
        assert config.warnings() == []

    def test_own_types(self) -> None:
        more = "brokering: {allow: [[x, y]], default: {link: y, in: x}, assign: [{link: top->H2, type: x}]}\n"
        config = read(self.TWO + more)
        assert types(config) == {"H2->top": "y", "top->H2": "x", "H2->side": "y"}

    @pytest.mark.parametrize("preset", [LABELS, "brokering:\n  preset:\n  allow: [[low, high]]\n"])
    def test_a_link_without_a_type_would_carry_nothing(self, preset: str) -> None:
        remedy = "to `brokering.assign`, or set `brokering.default.link`"
        assert problems(self.TWO + preset.replace("  preset:\n", "")) == [
            "f.yaml:5: `scopes.H2.parents[0]` has no type for `H2->top` and `top->H2`, so nothing would pass there; "
            f'add `{{link: "H2->top", type: …}}` {remedy}',
            "f.yaml:6: `links[0]` has no type for `H2->side`, so nothing would pass there; "
            f'add `{{link: "H2->side", type: …}}` {remedy}',
        ]

    def test_links_that_there_are_not(self) -> None:
        more = self.TWO + self.LABELS + "  default: {link: low}\n  assign:\n"
        more += "".join(
            f"    - {{link: {link}, type: low}}\n" for link in ("H2->tap", "side->H2", "H2->top", "H2->top")
        )
        assert problems(more) == [
            "f.yaml:12: `brokering.assign[0].link` names the unknown link `H2->tap`; did you mean `H2->top`?",
            "f.yaml:13: `brokering.assign[1].link` names the unknown link `side->H2`; did you mean `H2->side`?",
            "f.yaml:15: `brokering.assign[3].link` is `H2->top`, and so is that of `brokering.assign[2]`; "
            "remove one of them",
        ]

    def test_labels_of_a_client_that_fall(self) -> None:
        more = self.TWO + self.LABELS + "  default: {link: low}\n  assign: [{client: '*', in: low, out: high}]\n"
        [told] = problems(more)
        assert told.startswith("f.yaml:11: `brokering.assign[0]` reads `high` (out) and writes `low` (in)")

    def test_without_types_every_link_is_like_any_other(self) -> None:
        assert set(types(read(self.TWO)).values()) == {PLAIN.inward}


class TestInterface:
    @pytest.mark.parametrize("preset", ["open", "component"])
    def test_filters_in_both_directions_behind_what_is_written(self, preset: str) -> None:
        config = read(
            HOME + f"brokering:\n  preset: {preset}\n  interface:\n"
            '    - {scope: H1, parent: I, export: ["DL/#"], import: ["cmd/#"]}\n'
            "    - {scope: H3, parent: H1, import: []}\n"
            "monitors: [{id: own, link: H1->I, filter: ['#']}]\n"
        )
        monitors = config.built.rules.monitors
        assert [each.id for each in monitors] == [
            "own",
            "interface[0].export",
            "interface[0].import",
            "interface[1].import",
        ]
        assert monitors.by_id["interface[0].export"].link == ("scope:H1", "scope:I")
        assert monitors.by_id["interface[1].import"].link == ("scope:H1", "scope:H3")
        passes(monitors.by_id["interface[0].export"].monitor, "DL/x", "cmd/x")
        passes(monitors.by_id["interface[0].import"].monitor, "cmd/x", "DL/x")
        passes(monitors.by_id["interface[1].import"].monitor, None, "cmd/x")
        acting = monitors.over("scope:H1", "scope:I", kind=Direction.IM_PUB, scope="I")
        assert [each.id for each in acting] == ["own", "interface[0].export"]

    def test_one_need_not_be_a_list(self) -> None:
        config = read(HOME + "brokering: {preset: component, interface: {scope: H1, parent: I, export: [a]}}\n")
        assert list(config.built.rules.monitors.by_id) == ["interface[0].export"]

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ("scope: H9, parent: I", "[0].scope` names the unknown scope `H9`; add it under `scopes`"),
            ("scope: h1, parent: I", "[0].scope` names the unknown scope `h1`; did you mean `H1`?"),
            ("scope: I, parent: H1", "[0].parent` is `H1`, which is no parent of `I`; add it to `scopes.I.parents`"),
            ("scope: H1, parent: i", "[0].parent` is `i`, which is no parent of `H1`; did you mean `I`?"),
        ],
    )
    def test_it_is_between_parent_and_child(self, entry: str, said: str) -> None:
        more = HOME + f"brokering:\n  interface:\n    - {{{entry}, export: [a]}}\n"
        assert problems(more) == [f"f.yaml:13: `brokering.interface{said}"]
        alone = HOME + f"brokering:\n  interface:\n    {{{entry}, export: [a]}}\n"
        assert problems(alone) == [f"f.yaml:13: `brokering.interface{said.removeprefix('[0]')}"]

    def test_there_is_one_for_each_parent(self) -> None:
        entry = "    - {scope: H1, parent: I, export: [a]}\n"
        assert problems(HOME + "brokering:\n  interface:\n" + entry * 2) == [
            "f.yaml:14: `brokering.interface[1]` is a second one for `H1` and `I`; make one of the two"
        ]

    def test_its_ids_are_taken(self) -> None:
        more = HOME + "brokering: {interface: {scope: H1, parent: I, export: [a]}}\n"
        more += "monitors:\n  - {id: 'interface[0].export', link: H1->I, filter: [a]}\n"
        assert problems(more) == [
            "f.yaml:13: `monitors[0].id` is `interface[0].export`, which the node calls one of its own filters; "
            "choose another id"
        ]


def passes(monitor: object, yes: str | None, no: str) -> None:
    assert isinstance(monitor, Filter)
    for topic, passed in ((yes, 1), (no, 0)):
        if topic is not None:
            _, found = monitor.step(monitor.start(), Event(topic=topic, payload=b"", qos=0, retain=False))
            assert len(found) == passed


class TestRoles:
    @pytest.mark.parametrize("scopes", ["", "scopes: {plant: {}}\n"])
    def test_each_becomes_two_scopes_around_the_bus(self, scopes: str) -> None:
        config = read(scopes + RBAC, BUS)
        rules = config.built.rules
        assert list(config.scopes) == ["plant"]
        assert rules.space.scopes == ("plant", "operator.pub", "operator.sub", "machine.pub", "machine.sub")
        assert rules.space.bus == "plant"
        assert dict(rules.space.roles) == {
            "operator": Role(publishing="operator.pub", receiving="operator.sub"),
            "machine": Role(publishing="machine.pub", receiving="machine.sub"),
        }
        assert dict(rules.space.parents) == dict.fromkeys(rules.space.scopes[1:], ("plant",))
        assert rules.space.links[:4] == (
            ScopeLink(source="operator.pub", target="plant", type="PubUp", way=Way.UP, shares=ALL, back=ALL),
            ScopeLink(source="plant", target="operator.pub", type="PubDown", way=Way.DOWN, shares=ALL, back=ALL),
            ScopeLink(source="operator.sub", target="plant", type="SubUp", way=Way.UP, shares=ALL, back=ALL),
            ScopeLink(source="plant", target="operator.sub", type="SubDown", way=Way.DOWN, shares=ALL, back=ALL),
        )
        assert len(rules.space.links) == 8
        assert rules.brokering.pairs == {("DevUp", "PubUp"), ("PubUp", "SubDown"), ("SubDown", "DevDown")}
        assert of_client(config) == Types(inward="DevUp", outward="DevDown")

    def test_rights_are_filters(self) -> None:
        monitors = read(RBAC, BUS).built.rules.monitors
        found = {each.id: each.link for each in monitors}
        assert found == {
            "rbac.operator.pub": ("scope:operator.pub", "scope:plant"),
            "rbac.operator.sub": ("scope:plant", "scope:operator.sub"),
            "rbac.machine.pub": ("scope:machine.pub", "scope:plant"),
            "rbac.machine.sub": ("scope:plant", "scope:machine.sub"),
        }
        passes(monitors.by_id["rbac.operator.pub"].monitor, "cmd/x", "state/x")
        passes(monitors.by_id["rbac.operator.sub"].monitor, "alarm", "cmd/x")

    def test_a_listener_enters_the_bus(self) -> None:
        head = BUS.replace(", scope: plant", "")
        assert read(RBAC, head).listeners[0].scope == "plant"
        [told] = problems(RBAC, BUS.replace("plant", "operator.pub"))
        assert told.startswith("f.yaml:4: `listeners[0].scope` names the unknown scope `operator.pub`")

    def test_what_cannot_stand_beside_it(self) -> None:
        more = "scopes:\n  plant:\n    parents: [other]\n  other: {}\nlinks: [{from: plant, to: other}]\n" + RBAC
        assert problems(more, BUS) == [
            "f.yaml:7: `scopes.plant.parents` cannot stand beside `preset: rbac`: the bus has no parents; remove it",
            "f.yaml:8: `scopes.other` cannot stand beside `preset: rbac`, which makes all scopes but the bus `plant`; "
            "remove it",
            "f.yaml:9: `links[0]` joins `plant` and `other`, as `scopes.plant.parents[0]` does; remove one of the two",
            "f.yaml:9: `links` cannot stand beside `preset: rbac`, which makes all links; remove it",
        ]

    def test_the_bus_is_a_scope(self) -> None:
        head = BUS.replace("scope: plant", "scope: plants")
        assert problems("scopes: {plants: {}}\n" + RBAC, head) == [
            "f.yaml:8: `brokering.bus` names the unknown scope `plant`; did you mean `plants`?"
        ]
        named = RBAC.replace("bus: plant", "bus: operator.pub")
        assert problems(named, BUS.replace("plant", "operator.pub")) == [
            "f.yaml:9: `brokering.roles.operator` has the scope `operator.pub`, which is the bus; rename one of the two"
        ]
        [told] = problems(RBAC.replace("bus: plant", "bus: 'a b'"), BUS.replace(", scope: plant", ""))
        assert told.startswith("f.yaml:7: `brokering.bus` must be a name")

    def test_nobody_has_two_of_them(self) -> None:
        more = RBAC + (
            "directory:\n  users:\n"
            "    ann: {password: 'plain:a', roles: [operator, staff, machine]}\n"
            "    bob: {password: 'plain:b', roles: [staff, machine, machine]}\n"
            "  clients:\n"
            "    of-ann: {user: ann, roles: [machine]}\n"
            "    of-bob: {user: bob, roles: [operator]}\n"
            "    robot: {roles: [machine, operator]}\n"
            "    fine: {user: bob, roles: [machine]}\n"
        )
        allows = "and `preset: rbac` allows one of these; remove the others"
        assert problems(more, BUS) == [
            f"f.yaml:13: `directory.users.ann.roles` has `operator` and `machine`, {allows}",
            f"f.yaml:17: `directory.clients.of-bob.roles` has `machine` and `operator` with those of `bob`, {allows}",
            f"f.yaml:18: `directory.clients.robot.roles` has `machine` and `operator`, {allows}",
        ]

    def test_roles_that_nobody_has_are_doubted(self) -> None:
        people = (
            "directory: {users: {ann: {password: 'plain:a', roles: [operators]}}, clients: {m: {roles: [machine]}}}\n"
        )
        found = [text for _, text in read(RBAC + people, BUS).warnings()]
        assert "`brokering.roles.operator` names the unknown role `operator`; did you mean `operators`?" in found
        assert not any("roles.machine" in text for text in found)

    def test_ids_are_taken(self) -> None:
        more = RBAC + "preferences: [{id: rbac.machine.sub, user: ann, topic: x}]\n"
        [told] = problems(more, BUS)
        assert told.startswith(
            "f.yaml:11: `preferences[0].id` is `rbac.machine.sub`, which the node calls one of its own"
        )
