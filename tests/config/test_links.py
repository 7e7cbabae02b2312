"""Scopes and the links between them: how they are built, and each way to write them wrong."""

from __future__ import annotations

import pytest

from tidegate.config import Config, ConfigErrors, parse
from tidegate.policy.scopes import ALL, ScopeLink, TopicMapping, Way

HEAD = (
    "version: 1\nnode: {name: n}\npolicies: open\nlisteners: [{url: 'mqtt://127.0.0.1', anonymous: true, scope: a}]\n"
)
SCOPES = "scopes: {a: {}, b: {}, c: {}}\n"


def read(more: str) -> Config:
    return parse(HEAD + more, "f.yaml", variables={})


def built(more: str) -> dict[str, ScopeLink]:
    return {link.name: link for link in read(more).built.rules.space.links}


def problems(more: str) -> list[str]:
    with pytest.raises(ConfigErrors) as wrong:
        read(more)
    return str(wrong.value).splitlines()


def test_one_scope_has_no_links() -> None:
    space = read("scopes: {a: {}}\n").built.rules.space
    assert (space.scopes, space.links, dict(space.parents)) == (("a",), (), {})
    assert not space.roles
    assert space.bus == ""


def test_parents_are_linked_in_both_directions() -> None:
    space = read("scopes: {a: {parents: [top, side]}, top: {}, side: {}}\n").built.rules.space
    assert space.scopes == ("a", "top", "side")
    assert dict(space.parents) == {"a": ("top", "side")}
    assert [(link.name, link.way, link.type) for link in space.links] == [
        ("a->top", Way.UP, "in"),
        ("top->a", Way.DOWN, "in"),
        ("a->side", Way.UP, "in"),
        ("side->a", Way.DOWN, "in"),
    ]
    assert all(link.shares == link.back == ALL for link in space.links)


@pytest.mark.parametrize(
    ("direction", "names"),
    [
        ("", ["a->b", "b->a"]),
        (", direction: both", ["a->b", "b->a"]),
        (", direction: out", ["a->b"]),
        (", direction: in", ["b->a"]),
    ],
)
def test_everything_crosses_a_link(direction: str, names: list[str]) -> None:
    found = built(f"{SCOPES}links: [{{from: a, to: b{direction}}}]\n")
    assert list(found) == names
    back = ALL if len(names) == 2 else ()
    assert all((link.way, link.shares, link.back) == (Way.ACROSS, ALL, back) for link in found.values())


def test_only_what_is_shared_crosses_under_the_names_of_either_side() -> None:
    found = built(
        SCOPES
        + """\
links:
  - from: a
    to: b
    share:
      - {topic: "+/speed", qos: 1, remote_prefix: "MyGym/"}
      - {topic: "cmd/#", direction: in, local_prefix: "from-b/"}
      - {topic: "both", direction: both, qos: 0, local_prefix: "l/", remote_prefix: "r/"}
  - {from: b, to: c, share: [{topic: x, direction: in}]}
"""
    )
    out = (
        TopicMapping(filter="+/speed", there="MyGym/", qos=1),
        TopicMapping(filter="both", here="l/", there="r/", qos=0),
    )
    back = (TopicMapping(filter="cmd/#", there="from-b/"), TopicMapping(filter="both", here="r/", there="l/", qos=0))
    assert list(found) == ["a->b", "b->a", "c->b"]
    assert (found["a->b"].shares, found["a->b"].back) == (out, back)
    assert (found["b->a"].shares, found["b->a"].back) == (back, out)
    assert (found["c->b"].shares, found["c->b"].back) == ((TopicMapping(filter="x"),), ())
    assert found["a->b"].crossing("tr1/speed") == ("MyGym/tr1/speed", 1)
    assert found["b->a"].crossing("r/both") == ("l/both", 0)
    assert found["a->b"].crossing("cmd/x") is None
    assert found["b->a"].crossing("cmd/x") == ("from-b/cmd/x", 2)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "scopes:\n  a: {}\n  b:\n    parents: [A]\n",
            "f.yaml:8: `scopes.b.parents[0]` names the unknown scope `A`; did you mean `a`?",
        ),
        (
            "scopes: {a: {parents: [top]}}\n",
            "f.yaml:5: `scopes.a.parents[0]` names the unknown scope `top`; add it under `scopes`",
        ),
        ("scopes: {a: {parents: top}}\n", "f.yaml:5: `scopes.a.parents` must be a list; write it as `[a, b]`, or "),
        (
            "scopes: {a: {parents: [b, b]}, b: {}}\n",
            "f.yaml:5: `scopes.a.parents[1]` is `b` again; remove one of the two",
        ),
        (
            "scopes:\n  a:\n    parents: [a]\n",
            "f.yaml:7: `scopes.a.parents` is wrong: `a` is above itself (a > a); take one of these parents away",
        ),
        (
            "scopes:\n  a: {}\n  b:\n    parents: [c]\n  c:\n    parents: [d]\n  d: {parents: [b]}\n",
            "f.yaml:8: `scopes.b.parents` is wrong: `b` is above itself (b > c > d > b); take one of these parents ",
        ),
        (
            "scopes:\n  top: {}\n  l: {parents: [top]}\n  r: {parents: [top]}\n  a:\n    parents: [l, r]\n",
            "f.yaml:10: `scopes.a.parents` is wrong: there are two paths from `a` to `top`, a > l > top and "
            "a > r > top; take a parent away from one of them",
        ),
        (
            f"{SCOPES}links:\n  - from: a\n    to: d\n",
            "f.yaml:8: `links[0].to` names the unknown scope `d`; add it under `scopes`",
        ),
        (
            "scopes: {a: {}, brand: {}}\nlinks:\n  - {to: a, from: brnd}\n",
            "f.yaml:7: `links[0].from` names the unknown scope `brnd`; did you mean `brand`?",
        ),
        (f"{SCOPES}links: [{{from: a}}]\n", "f.yaml:6: `links[0].to` is missing; add it (The other one)"),
        (
            f"{SCOPES}links: [{{from: a, to: a}}]\n",
            "f.yaml:6: `links[0].to` is `a`, as `from` is; name two different scopes",
        ),
        (
            f"{SCOPES}links:\n  - {{from: a, to: b, direction: out}}\n  - {{from: b, to: a, direction: out}}\n",
            "f.yaml:8: `links[1]` joins `b` and `a`, as `links[0]` does; remove one of the two",
        ),
        (
            "scopes: {a: {parents: [b]}, b: {}}\nlinks:\n  - {from: b, to: a}\n",
            "f.yaml:7: `links[0]` joins `b` and `a`, as `scopes.a.parents[0]` does; remove one of the two",
        ),
        (
            f"{SCOPES}links: [{{from: a, to: b, direction: up}}]\n",
            "f.yaml:6: `links[0].direction` must be `out`, `in` or `both`; write one of these",
        ),
        (
            f"{SCOPES}links: [{{from: a, to: b, direction: out, share: [{{topic: x}}]}}]\n",
            "f.yaml:6: `links[0].direction` has no effect beside `share`, where each entry says its own; remove it",
        ),
        (f"{SCOPES}links: [{{from: a, to: b, share: []}}]\n", "f.yaml:6: `links[0].share` must not be empty; add "),
        (
            f"{SCOPES}links:\n  - from: a\n    to: b\n    share:\n      - {{topic: 'x/#/y'}}\n",
            "f.yaml:10: `links[0].share[0].topic` is wrong: `x/#/y` is no topic filter; ",
        ),
        (
            f"{SCOPES}links: [{{from: a, to: b, share: [{{topic: $SYS/x}}]}}]\n",
            "f.yaml:6: `links[0].share[0].topic` begins with `$`, and reserved topics never cross; choose another one",
        ),
        (
            f"{SCOPES}links: [{{from: a, to: b, share: [{{topic: x, remote_prefix: '+/'}}]}}]\n",
            "f.yaml:6: `links[0].share[0].remote_prefix` is put in front of topics as it is; write it without ",
        ),
        (
            f"{SCOPES}links: [{{from: a, to: b, share: [{{topic: x, local_prefix: '$x/'}}]}}]\n",
            "f.yaml:6: `links[0].share[0].local_prefix` begins with `$`, and reserved topics never cross; choose ",
        ),
        (
            f"{SCOPES}links: [{{from: a, to: b, share: [{{topic: x, qos: 3}}]}}]\n",
            "f.yaml:6: `links[0].share[0].qos` must be at most 2; lower it",
        ),
        (
            f"{SCOPES}links: [{{from: a, to: b, share: [{{topic: x, prefix: y}}]}}]\n",
            "f.yaml:6: unknown key `prefix` in `links[0].share[0]`; did you mean `local_prefix`?",
        ),
    ],
)
def test_each_way_to_write_it_wrong(more: str, said: str) -> None:
    [told] = problems(more)
    assert told.startswith(said)


def test_a_parent_that_is_below_is_a_circle_and_not_a_second_link() -> None:
    [told] = problems("scopes: {a: {parents: [b]}, b: {parents: [a]}}\n")
    assert told.startswith("f.yaml:5: `scopes.a.parents` is wrong: `a` is above itself (a > b > a)")


def test_what_follows_from_a_wrong_link_is_not_told_too() -> None:
    more = "scopes: {a: {parents: [tap]}, top: {}}\nmonitors: [{id: m, link: a->top, filter: [x]}]\n"
    assert problems(more) == ["f.yaml:5: `scopes.a.parents[0]` names the unknown scope `tap`; did you mean `top`?"]


def test_a_listener_must_say_which_of_several_scopes_is_entered() -> None:
    head = HEAD.replace(", scope: a", "")
    with pytest.raises(ConfigErrors, match=r"f.yaml:4: `listeners\[0\].scope` is missing and there are several scopes"):
        parse(head + SCOPES, "f.yaml", variables={})
    with pytest.raises(ConfigErrors, match="names the unknown scope `aa`; did you mean `a`"):
        parse(HEAD.replace("scope: a", "scope: aa") + SCOPES, "f.yaml", variables={})
    assert parse(head + "scopes: {z: {}}\n", "f.yaml", variables={}).listeners[0].scope == "z"


def test_only_scopes_that_nothing_can_come_into_are_doubted() -> None:
    config = read("scopes: {a: {parents: [b]}, b: {}, c: {}, d: {}}\nlinks: [{from: b, to: c}]\n")
    told = "has neither a listener nor links, so nothing can come into it; add one, or remove the scope"
    assert [text for _, text in config.warnings()] == [f"`scopes.d` {told}"]


def test_each_change_of_scopes_and_links_is_another_policy_version() -> None:
    texts = [
        SCOPES,
        "scopes: {a: {parents: [b]}, b: {}, c: {}}\n",
        SCOPES + "links: [{from: a, to: b}]\n",
        SCOPES + "links: [{from: a, to: b, direction: out}]\n",
        SCOPES + "links: [{from: a, to: b, share: [{topic: x}]}]\n",
        SCOPES + "links: [{from: a, to: b, share: [{topic: x, qos: 1}]}]\n",
        SCOPES + "flows: {forbid: ['scope:a -> scope:b']}\n",
    ]
    assert len({read(text).built.policy_version for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("subjects", "told"),
    [
        (("user:mary", "user:mary"), True),
        (("scope:a", "scope:a"), True),
        (("scope:a", "scope:b"), False),
        (("link:a->b", "link:a->b"), False),
        (("*", "*"), False),
    ],
)
def test_links_that_no_policy_opens_are_told(subjects: tuple[str, str], told: bool) -> None:
    write, read_ = subjects
    text = HEAD.replace(
        "policies: open\n",
        f"policies: [{{id: w, subject: '{write}', topic: '#', action: write}}, "
        f"{{id: r, subject: '{read_}', topic: '#', action: read}}]\n",
    )
    more = SCOPES + "links: [{from: a, to: b, direction: out}]\ndirectory: {users: {mary: {password: 'plain:m'}}}\n"
    found = [said for _, said in parse(text + more, "f.yaml", variables={}).warnings()]
    assert any("let nothing pass from one scope to another" in said for said in found) is told
