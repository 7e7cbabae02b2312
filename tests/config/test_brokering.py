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


LATER = "is not supported by this version yet; remove it: nothing may look enforced that is not"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("preset: component", f"`preset` as `component`, which is for several scopes, {LATER}"),
        ("preset: rbac", f"`preset` as `rbac`, which is for several scopes, {LATER}"),
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
    assert problems(section) == [said]


def test_links_between_scopes_have_no_types_yet() -> None:
    found = problems(OWN + ", assign: [{link: 'gym->brand', type: up}]")
    assert f"`link` {LATER}" in found
    assert f"`type` {LATER}" in found


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
    assert any(text.startswith("`brokering.assign[4].client` speaks of `link:a->b`") for text in found)
