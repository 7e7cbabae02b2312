"""Brokering in the configuration: what it builds, and each way to write it wrong."""

from __future__ import annotations

import pytest

from tidegate.config import Config, ConfigErrors, parse
from tidegate.policy.brokering import OPEN, UNTYPED, Types, chain, ordered
from tidegate.session import Subject

HEAD = "version: 1\nnode: {name: n}\nlisteners: [{url: 'mqtt://127.0.0.1', anonymous: true}]\npolicies: open\n"
OWN = "allow: [[sensor, display], [console, actuator]]"
BLP = "preset: blp, labels: [low, high]"


def read(section: str) -> Config:
    return parse(f"{HEAD}brokering: {{{section}}}\n", "f.yaml", variables={})


def problems(section: str) -> list[str]:
    with pytest.raises(ConfigErrors) as wrong:
        read(section)
    return [line.removeprefix("f.yaml:5: ") for line in str(wrong.value).splitlines()]


def types(config: Config, *roles: str) -> tuple[str, str]:
    who = Subject(kind="client", client="c", user="u", scope="main", node="n", domain="n", roles=roles)
    found: Types = config.built.rules.brokering.types(who)
    return found.inward, found.outward


@pytest.mark.parametrize("section", ["", "preset: open"])
def test_open(section: str) -> None:
    assert read(section).built.rules.brokering.open
    assert parse(HEAD, "f.yaml", variables={}).built.rules.brokering.open
    assert OPEN.open


def test_own_types() -> None:
    config = read(
        OWN + ", assign: [{client: 'role:meter', in: sensor}, {client: 'role:desk', in: console, out: display}],"
        " default: {out: display}"
    )
    brokering = config.built.rules.brokering
    assert brokering.pairs == {("sensor", "display"), ("console", "actuator")}
    assert not brokering.labelled
    assert types(config, "meter") == ("sensor", "display")
    assert types(config, "desk", "meter") == ("sensor", "display")
    assert types(config, "desk") == ("console", "display")
    assert types(config) == (UNTYPED, "display")


def test_labels() -> None:
    config = read(BLP + ", assign: [{client: 'role:doctor', in: high}], default: {in: low, out: low}")
    assert config.built.rules.brokering.pairs == chain(("low", "high"))
    assert config.built.rules.brokering.labelled
    assert types(config, "doctor") == ("high", "low")
    assert types(config) == ("low", "low")
    partly = read("preset: blp, order: {secret: [nurses, labs], nurses: [public]}")
    assert partly.built.rules.brokering.pairs == ordered({"secret": ["nurses", "labs"], "nurses": ["public"]})


def test_a_change_of_brokering_is_another_policy_version() -> None:
    texts = ["", OWN, OWN + ", default: {in: sensor}", OWN + ", default: {out: sensor}", BLP]
    versions = [read(text).built.policy_version for text in texts]
    assert len(set(versions)) == len(versions)
    assert versions[0] == parse(HEAD, "f.yaml", variables={}).built.policy_version


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            f"preset: component, {OWN}",
            "`brokering.allow` has no effect with `preset: component`; remove it, or the preset",
        ),
        (
            "preset: component, labels: [a]",
            "`brokering.labels` has no effect without `preset: blp`; add that, or remove it",
        ),
        (
            "preset: component, default: {link: up}",
            "`brokering.default` has no effect with `preset: component`, where links are `up` or `down`; remove it",
        ),
        (
            "preset: component, assign: [{client: '*', in: up, out: down}]",
            "`brokering.assign[0].client` has no effect with `preset: component`, where links from clients are `up` "
            "and those to them `down`; remove it",
        ),
        (
            "preset: component, assign: [{link: a->b, type: sideways}]",
            "`brokering.assign[0].type` names the unknown type `sideways`; write `up` or `down`",
        ),
        (
            "preset: rbac, roles: {r: {pub: [a]}}",
            "`brokering.bus` is missing, which `rbac` needs; name the scope that clients connect to",
        ),
        (
            "preset: rbac, bus: main",
            "`brokering.roles` is missing, which `rbac` needs; add at least one role, with `pub` and `sub`",
        ),
        ("preset: rbac, bus: main, roles: {}", "`brokering.roles` must not be empty; add at least one entry"),
        ("bus: main", "`brokering.bus` has no effect without `preset: rbac`; add that, or remove it"),
        (
            f"{BLP}, roles: {{r: {{pub: [a]}}}}",
            "`brokering.roles` has no effect without `preset: rbac`; add that, or remove it",
        ),
        *(
            (
                f"preset: rbac, bus: main, roles: {{r: {{pub: [a]}}}}, {key}: {value}",
                f"`brokering.{key}` has no effect with `preset: rbac`, which makes its own links; remove it",
            )
            for key, value in (("assign", "[]"), ("default", "{}"), ("interface", "[]"))
        ),
        ("preset: rbac, bus: main, roles: {r: {}}", "`brokering.roles.r` may do nothing; add `pub` or `sub`"),
        (
            "preset: rbac, bus: main, roles: {r: {pub: [x, 'a/+'], sub: [b, 'a/#', '+/c']}}",
            "`brokering.roles.r.pub[1]` is `a/+`, which overlaps `a/#` of `sub`, and a role cannot receive what it "
            "publishes; make one of the two narrower, or make two roles\n"
            "`brokering.roles.r.pub[1]` is `a/+`, which overlaps `+/c` of `sub`, and a role cannot receive what it "
            "publishes; make one of the two narrower, or make two roles",
        ),
        (
            "preset: rbac, bus: main, roles: {'a b': {pub: [a]}}",
            '`brokering.roles["a b"]` becomes the name of scopes; write at most 60 letters, digits, `.`, `_` and `-`',
        ),
        (
            f"preset: rbac, bus: main, roles: {{{'r' * 61}: {{pub: [a]}}}}",
            f"`brokering.roles.{'r' * 61}` becomes the name of scopes; "
            "write at most 60 letters, digits, `.`, `_` and `-`",
        ),
        (
            "preset: rbac, bus: main, roles: {r: {pub: ['a/#/b']}}",
            "`brokering.roles.r.pub[0]` is wrong: `a/#/b` is no topic filter; "
            "`+` is a whole level, `#` the whole last one",
        ),
        (
            f"{OWN}, assign: [{{in: sensor}}]",
            "`brokering.assign[0]` is about nobody; add `client`, or `link` and `type`",
        ),
        (f"{OWN}, assign: [{{link: a->b}}]", "`brokering.assign[0].type` is missing, which `link` needs; add it"),
        (
            f"{OWN}, assign: [{{link: a->b, type: sensor, in: sensor}}]",
            "`brokering.assign[0].in` has no effect beside `link`, which has one `type`; remove one of the two",
        ),
        (
            f"{OWN}, assign: [{{client: '*', type: sensor}}]",
            "`brokering.assign[0].type` has no effect beside `client`, which has two links; write `in` and `out`",
        ),
        (
            f"{OWN}, assign: [{{link: 'client:a->b', type: sensor}}]",
            "`brokering.assign[0].link` has a client at one end; write `client` instead of `link`, with `in` and `out`",
        ),
        (
            f"{OWN}, assign: [{{link: 'a', type: sensor}}]",
            "`brokering.assign[0].link` is no link; write it as `from->to`, for example `client:lock->home`",
        ),
        (
            f"{OWN}, assign: [{{link: a->b, type: sensr}}]",
            "`brokering.assign[0].type` names the unknown type `sensr`; did you mean `sensor`?",
        ),
        (
            f"{OWN}, default: {{link: sensr}}",
            "`brokering.default.link` names the unknown type `sensr`; did you mean `sensor`?",
        ),
        (
            "interface: {scope: main, parent: top}",
            "`brokering.interface` keeps nothing back; add `export` or `import`",
        ),
        (
            "interface: [{scope: main, parent: top, exports: []}]",
            "unknown key `exports` in `brokering.interface[0]`; did you mean `export`?",
        ),
        ("preset: bpl", "`brokering.preset` must be `open`, `component`, `blp` or `rbac`; did you mean `blp`?"),
        ("presets: blp", "unknown key `presets` in `brokering`; did you mean `preset`?"),
        (
            "preset: blp",
            "`brokering.labels` is missing, which `blp` needs; list the labels, lowest first, or write an `order`",
        ),
        ("preset: blp, labels: []", "`brokering.labels` must not be empty; add at least one entry"),
        (
            "preset: blp, labels: [a, b, a]",
            "`brokering.labels` is wrong: a label stands there twice; remove one of them",
        ),
        (
            "preset: blp, order: {a: [b], b: [a]}",
            "`brokering.order` is wrong: `a` is below itself (a > b > a); labels need an order without cycles",
        ),
        (f"{BLP}, order: {{a: [b]}}", "`brokering.order` is a second order beside `labels`; remove one of them"),
        (f"{BLP}, {OWN}", "`brokering.allow` has no effect with `preset: blp`; remove it, or the preset"),
        ("labels: [a]", "`brokering.labels` has no effect without `preset: blp`; add that, or remove it"),
        (f"{OWN}, order: {{a: [b]}}", "`brokering.order` has no effect without `preset: blp`; add that, or remove it"),
        (
            "assign: []",
            "`brokering.assign` has no effect while brokering is open; add `allow` or `preset: blp`, or remove it",
        ),
        (
            "preset: open, default: {in: a}",
            "`brokering.default` has no effect while brokering is open; add `allow` or `preset: blp`, or remove it",
        ),
        (f"preset: open, {OWN}", "`brokering.allow` has no effect with `preset: open`; remove it, or the preset"),
        ("allow: []", "`brokering.allow` must not be empty; add at least one entry"),
        ("allow: [[a]]", "`brokering.allow[0][1]` is missing; add it"),
        ("allow: [[a, b, c]]", "`brokering.allow[0]` has too many entries; remove some"),
        ("allow: [a]", "`brokering.allow[0]` must be a list; write it as `[a, b]`, or each item on a line after `- `"),
        (
            "allow: [[in, b]]",
            "`brokering.allow[0][0]` is `in`, which the node calls links without a type; choose another name",
        ),
        (
            "allow: [['a b', b]]",
            "`brokering.allow[0][0]` must be a name; write at most 64 letters, digits, `.`, `_` and `-`",
        ),
        (
            f"{OWN}, assign: [{{client: '*', in: sensr}}]",
            "`brokering.assign[0].in` names the unknown type `sensr`; did you mean `sensor`?",
        ),
        (
            f"{OWN}, default: {{out: x}}",
            "`brokering.default.out` names the unknown type `x`; write it among the labels, or into a pair of `allow`",
        ),
        (
            f"{OWN}, assign: [{{client: meter, in: sensor}}]",
            "`brokering.assign[0].client` is wrong: `meter` is no subject; "
            "say what it is, for instance `user:meter` or `role:meter`",
        ),
        (
            f"{BLP}, assign: [{{client: '*', in: low, out: high}}]",
            "`brokering.assign[0]` reads `high` (out) and writes `low` (in), which is not as high; "
            "raise `in`, or lower `out`",
        ),
        (
            f"{BLP}, default: {{in: low, out: high}}",
            "`brokering.default` reads `high` (out) and writes `low` (in), which is not as high; "
            "raise `in`, or lower `out`",
        ),
        (
            "preset: blp, order: {top: [left, right]}, default: {in: left, out: right}",
            "`brokering.default` reads `right` (out) and writes `left` (in), which is not as high; "
            "raise `in`, or lower `out`",
        ),
        (
            f"{BLP}, assign: [{{client: '*', in: low}}]",
            "`brokering.assign[0]` has no label `out`, and neither has `default`; add one",
        ),
        (
            f"{BLP}, assign: [{{client: 'role:a', in: low}}], default: {{out: high}}",
            "`brokering.assign[0]` reads `high` (out) and writes `low` (in), which is not as high; "
            "raise `in`, or lower `out`",
        ),
    ],
)
def test_each_way_to_write_it_wrong(section: str, said: str) -> None:
    assert problems(section) == said.split("\n")


def test_too_many_types() -> None:
    pairs = ", ".join(f"[a{number}, b{number}]" for number in range(129))
    assert problems(f"allow: [{pairs}]") == ["`brokering.allow` has more than 256 types; use fewer"]


def test_what_is_probably_not_meant() -> None:
    config = read(
        OWN + ", assign: [{client: 'role:meter', in: sensor}, {client: ['user:ann', 'role:meter'], in: console},"
        " {client: 'user:ann', out: display}, {client: '*', in: console}, {client: 'link:a->b', in: sensor}]"
    )
    never = "never counts: earlier ones select everybody it selects; move it up, or remove it"
    found = [text for _, text in config.warnings()]
    assert [text for text in found if never in text] == [
        f"`brokering.assign[2]` {never}",
        f"`brokering.assign[4]` {never}",
    ]
    unknown = "names the unknown role `meter`; add it under `directory`, or remove it"
    assert f"`brokering.assign[0].client` {unknown}" in found
    assert f"`brokering.assign[1].client[1]` {unknown}" in found
    nobody = "speaks of `link:a->b`, and is about clients and services only; nobody is meant"
    assert f"`brokering.assign[4].client` {nobody}" in found
