"""Flows in the file: what they are read as, who is where, and what does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config import Config, ConfigErrors, load, parse
from tidegate.flow.assertions import Assertion, Expect
from tidegate.flow.presence import Presence

HEAD = "version: 1\nnode: {name: n}\npolicies: open\n"
HOME = f"""\
{HEAD}listeners:
  - {{url: "mqtt://127.0.0.1:1", scope: H1, anonymous: true}}
  - {{url: "mqtt://127.0.0.1:2", scope: H2, anonymous: true}}
  - {{url: "mqtt://127.0.0.1:3", scope: H2, anonymous: true}}
scopes: {{I: {{}}, H1: {{parents: [I]}}, H2: {{parents: [H1]}}, H4: {{}}}}
directory:
  users: {{ann: {{password: "plain:a", roles: [guest]}}}}
  clients:
    MD: {{scopes: [H4]}}
    SP: {{user: ann}}
"""


def read(text: str) -> Config:
    return parse(text, "f.yaml", variables={})


def at(client: str, enters: str, inward: str, outward: str, leaves: str | None = None) -> Presence:
    return Presence(client=f"client:{client}", enters=enters, leaves=leaves or enters, inward=inward, outward=outward)


def test_in_the_order_of_the_file_but_what_is_forbidden_first() -> None:
    text = "flows: {require: ['client:a -> scope:I'], paths: %s, "
    text += "forbid: ['client:MD->scope:I', 'service:s -> client:b']}\n"
    for paths in (True, False):
        assert read(HOME + text % str(paths).lower()).built.flows == tuple(
            Assertion(source=source, target=target, expect=expect, paths=paths)
            for source, target, expect in (
                ("client:MD", "scope:I", Expect.FORBID),
                ("service:s", "client:b", Expect.FORBID),
                ("client:a", "scope:I", Expect.REQUIRE),
            )
        )
    assert read(HOME).built.flows == ()


@pytest.mark.parametrize(
    ("flows", "said"),
    [
        ("forbid: [a]", "`flows.forbid[0]` is wrong: `a` is no flow; write it as in `client:MD -> scope:internet`"),
        ("require: ['client:a -> b']", "`flows.require[0]` is wrong: `client:a -> b` is no flow; write it as in "),
        (
            "forbid: ['client:a -> client:b -> client:c']",
            "`flows.forbid[0]` is wrong: `client:a -> client:b -> client:c` has more than two ends; write one flow ",
        ),
        ("paths: maybe", "`flows.paths` must be `true` or `false`; write one of the two"),
        ("allow: []", "unknown key `allow` in `flows`; known here: forbid, require, topology, paths"),
    ],
)
def test_what_is_no_flow(flows: str, said: str) -> None:
    with pytest.raises(ConfigErrors) as wrong:
        read(f"{HOME}flows: {{{flows}}}\n")
    [told] = str(wrong.value).splitlines()
    assert told.startswith(f"f.yaml:14: {said}")


class TestPresences:
    def test_where_a_client_may_connect(self) -> None:
        assert read(HOME).built.presences == (
            at("MD", "H4", "in", "out"),
            at("SP", "H1", "in", "out"),
            at("SP", "H2", "in", "out"),
        )

    def test_with_the_types_of_its_links(self) -> None:
        assert read(HOME + "brokering: {preset: component}\n").built.presences[0] == at("MD", "H4", "up", "down")
        labels = "brokering: {preset: blp, labels: [l, h], default: {link: l}, "
        labels += "assign: [{client: 'role:guest', in: h, out: l}]}\n"
        # MD has no labels, and may connect nowhere
        assert read(HOME + labels).built.presences == (at("SP", "H1", "h", "l"), at("SP", "H2", "h", "l"))

    def test_placed_by_its_role(self) -> None:
        text = HEAD + (
            "listeners: [{url: 'mqtt://127.0.0.1'}]\n"
            "brokering: {preset: rbac, bus: plant, roles: {op: {pub: [a]}, machine: {sub: [a]}}}\n"
            "directory:\n"
            "  users: {ann: {password: 'plain:a', roles: [op]}}\n"
            "  clients: {desk: {user: ann}, press: {roles: [machine], scopes: [plant]}, other: {}}\n"
        )
        assert read(text).built.presences == (
            at("desk", "op.pub", "DevUp", "DevDown", leaves="op.sub"),
            at("press", "machine.pub", "DevUp", "DevDown", leaves="machine.sub"),
        )


class TestWhatDoesNotHold:
    def written(self, tmp_path: Path, more: str) -> Path:
        file = tmp_path / "f.yaml"
        file.write_text(HOME + more)
        return file

    def problems(self, tmp_path: Path, more: str) -> list[str]:
        with pytest.raises(ConfigErrors) as wrong:
            load(self.written(tmp_path, more))
        return [line.removeprefix(str(tmp_path / "f.yaml")) for line in str(wrong.value).splitlines()]

    def test_is_told_at_its_line_with_the_route(self, tmp_path: Path) -> None:
        more = "flows:\n  forbid:\n    - client:MD -> scope:I\n    - client:SP -> scope:I\n"
        assert self.problems(tmp_path, more + "  require:\n    - client:MD -> client:SP\n") == [
            ":17: `flows.forbid[1]` does not hold: `client:SP -> scope:I` is forbidden, and there is the route "
            "client:SP -> scope:H1 -> scope:I; take one of these links away, give it another type, or allow less in "
            "`brokering`",
            ":19: `flows.require[0]` does not hold: `client:MD -> client:SP` is required, and there is no route; "
            "add a link, give one another type, or allow more in `brokering`",
        ]

    def test_is_asked_last(self, tmp_path: Path) -> None:
        more = "flows: {forbid: ['client:SP -> scope:I']}\ntrust: {by: certificate, accept: [no.pem]}\n"
        [told] = self.problems(tmp_path, more)
        assert told.startswith(":15: `trust.accept[0]`")

    def test_and_what_does(self, tmp_path: Path) -> None:
        more = "flows: {forbid: ['client:MD -> scope:I'], require: ['client:SP -> scope:I']}\n"
        assert len(load(self.written(tmp_path, more)).built.flows) == 2

    def test_a_type_can_close_a_route(self, tmp_path: Path) -> None:
        more = "flows: {forbid: ['scope:I -> scope:H4']}\nlinks: [{from: H2, to: H4, direction: out}]\nbrokering:\n"
        load(self.written(tmp_path, more + "  {preset: component, assign: [{link: H2->H4, type: up}]}\n"))
        [told] = self.problems(tmp_path, more + "  {preset: component, assign: [{link: H2->H4, type: down}]}\n")
        assert "scope:I -> scope:H1 -> scope:H2 -> scope:H4" in told
