"""Monitors in the file: each way to write one wrong, with the place and the remedy, and what is only doubtful."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.test_json_schema import accepts
from tidegate.config import Config, ConfigErrors, parse, schema
from tidegate.config.tree import compose
from tidegate.monitor import Direction, Each, Suppressed, analysis
from tidegate.monitor.automaton import Automaton
from tidegate.monitor.machines_in_a_row import Chain

HEAD = """\
version: 1
node: {name: n}
scopes: {home: {}}
listeners: [{url: 'mqtt://127.0.0.1', anonymous: true}]
policies: open
"""
HERE = "scope: home, direction: im_pub"


def read(more: str) -> Config:
    return parse(HEAD + more, "f.yaml", variables={})


def problems(more: str) -> list[str]:
    with pytest.raises(ConfigErrors) as wrong:
        read(more)
    return str(wrong.value).splitlines()


def entry(text: str) -> str:
    return "monitors:\n  - {id: m, " + text + "}\n"


def automaton(states: str, start: str = "a") -> str:
    """Each state on a line of its own, from line 11 on."""
    lines = "".join(f"        {line.strip()}\n" for line in states.strip().splitlines())
    return (
        f"monitors:\n  - id: m\n    link: client:x->home\n    automaton:\n      start: {start}\n      states:\n{lines}"
    )


# interfaces.md, with the one scope that this version has
ALL = """\
monitors:
  - {id: door, link: "home->client:lock", only: DL_unlock, after: [AccessRequest, AccessGranted], reset: AccessDenied}
  - {id: calm, scope: home, direction: im_pub, each: client, rate: 20/s, burst: 40}
  - {id: names, link: "home -> client:x", map: {"old/#": "new/#"}}
  - {id: allowed, scope: home, direction: im_pub, filter: ["+/performance/#", "status/+"], suppressed: refuse}
  - {id: half, scope: home, direction: im_pub, use: hsup_em, default: true}
  - {id: mine, scope: home, direction: im_sub, python: "monitor.mine:Counting", with: {most: 5}}
  - id: door-by-hand
    link: "client:lock->scope:home"
    automaton:
      start: idle
      states:
        idle:      [{on: AccessRequest, go: requested}, {on: DL_unlock, emit: []}]
        requested: [{on: AccessDenied, go: idle}, {on: AccessGranted, go: granted}, {on: DL_unlock, emit: []}]
        granted:   [{on: DL_unlock, go: idle}, {on: "alarm/#", when: "o.payload.level > 3",
                                                emit: [same, {topic: siren, payload: "on"}]}]
  - {id: every, scope: home, direction: im_pub, each: scope, only: {on: [a, b], when: "s.user == 'x'"}, payload: "true",
     dedupe: 10s, rate: 5/m, silence: 500ms, emit: {topic: t}, on: [c, "d/#"]}
"""


def test_everything_that_can_be_written() -> None:
    monitors = read(ALL).built.rules.monitors
    assert [each.id for each in monitors] == [
        "door",
        "calm",
        "names",
        "allowed",
        "half",
        "mine",
        "door-by-hand",
        "every",
    ]
    door = monitors.by_id["door"]
    assert isinstance(door.monitor, Automaton)
    assert (door.link, door.scope, door.each) == (("scope:home", "client:lock"), None, Each.LINK)
    assert door.suppressed is Suppressed.ACCEPT
    calm = monitors.by_id["calm"]
    assert (calm.link, calm.scope, calm.direction, calm.each) == (None, "home", Direction.IM_PUB, Each.CLIENT)
    assert monitors.by_id["names"].link == ("scope:home", "client:x")
    assert (monitors.by_id["allowed"].suppressed, monitors.by_id["half"].default) == (Suppressed.REFUSE, True)
    assert monitors.by_id["door-by-hand"].link == ("client:lock", "scope:home")
    assert isinstance(monitors.by_id["every"].monitor, Chain)
    assert monitors.by_id["every"].monitor.reads == {"s.user"}
    acting = monitors.over("client:lock", "scope:home", kind=Direction.IM_PUB, scope="home")
    assert [each.id for each in acting] == ["calm", "allowed", "door-by-hand", "every"]
    assert [text for _, text in read(ALL).warnings()] == [
        "`monitors[7].only.when` names the unknown user `x`; add it under `directory`, or remove it"
    ]


def test_the_schema_accepts_it() -> None:
    tree, _ = compose(HEAD + ALL, "f.yaml", {})
    assert accepts(schema(), schema(), tree.data())
    tree, _ = compose(HEAD + ALL.replace("burst: 40", "burst: [40]"), "f.yaml", {})
    assert not accepts(schema(), schema(), tree.data())


def test_monitors_are_part_of_the_policy_version() -> None:
    versions = {read(more).built.policy_version for more in (ALL, ALL.replace("20/s", "21/s"), "")}
    assert len(versions) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # where
        ("rate: 1/s", "`monitors[0]` is nowhere; add `link`, or `scope` and `direction`"),
        (
            "rate: 1/s, scope: home",
            "`monitors[0].direction` is missing, which `scope` needs; add `im_pub`, `im_sub`, `ex_pub` or `ex_sub`",
        ),
        ("rate: 1/s, direction: im_pub", "`monitors[0].scope` is missing, which `direction` needs; add it"),
        (
            f"rate: 1/s, link: 'home->client:x', {HERE}",
            "`monitors[0].scope` has no effect beside `link`; remove one of "
            "the two\n`monitors[0].direction` has no effect beside `link`; remove one of the two",
        ),
        (
            "rate: 1/s, scope: hom, direction: im_pub",
            "`monitors[0].scope` names the unknown scope `hom`; did you mean `home`?",
        ),
        (
            "rate: 1/s, scope: home, direction: im_pup",
            "`monitors[0].direction` must be `im_pub`, `im_sub`, `ex_pub` or `ex_sub`; did you mean `im_pub`?",
        ),
        (
            "rate: 1/s, link: 'lock->home'",
            "`monitors[0].link` names the unknown scope `lock`; a client is written `client:lock`",
        ),
        (
            "rate: 1/s, link: 'scope:hme->client:x'",
            "`monitors[0].link` names the unknown scope `hme`; did you mean `home`? A client is written `client:hme`",
        ),
        (
            "rate: 1/s, link: home",
            "`monitors[0].link` is no link; write it as `from->to`, for example `client:lock->home`",
        ),
        (
            "rate: 1/s, link: 'a->b->home'",
            "`monitors[0].link` is no link; write it as `from->to`, for example `client:lock->home`",
        ),
        (
            "rate: 1/s, link: 'user:x->home'",
            "`monitors[0].link` has `user:x` at one end; write a scope by its name, and a client as `client:ID`",
        ),
        (
            "rate: 1/s, link: 'client:->home'",
            "`monitors[0].link` has `client:` at one end; write a scope by its name, and a client as `client:ID`",
        ),
        (
            "rate: 1/s, link: 'home->scope:home'",
            "`monitors[0].link` begins and ends at the same place; write two different ones",
        ),
        (
            "rate: 1/s, link: 'client:a->client:b'",
            "`monitors[0].link` has no scope at either end; clients are linked with scopes, not with each other",
        ),
        (
            "rate: 1/s, link: 'home->client:x', suppressed: refuse",
            "`monitors[0].suppressed` has no effect where events leave a scope: nobody is acknowledged; remove it",
        ),
        # which way
        (HERE, "`monitors[0]` does nothing; add for example `only` and `after`, `rate`, `filter` or `automaton`"),
        (f"{HERE}, rate: 1/s, filter: [a]", "`monitors[0].rate` cannot stand beside `filter`; write two monitors"),
        (
            f"{HERE}, python: 'm:C', filter: [a]",
            "`monitors[0].python` cannot stand beside `filter`; write two monitors",
        ),
        (f"{HERE}, use: hsup_em, map: {{a: b}}", "`monitors[0].map` has no effect on `hsup_em`; remove it"),
        (
            f"{HERE}, use: hsub_em",
            "`monitors[0].use` must be `simple_em`, `complex_em`, `hsup_em` or `multi_em`; did you mean `hsup_em`?",
        ),
        (
            f"{HERE}, filter: [a], with: {{b: 1}}",
            "`monitors[0].with` has no effect without `python`; add that, or remove it",
        ),
        (f"{HERE}, rat: 1/s", "unknown key `rat` in `monitors[0]`; did you mean `rate`?"),
        # the sequence language
        (f"{HERE}, only: a", "`monitors[0].only` has no effect without `after` or `payload`; add one of the two"),
        (
            f"{HERE}, after: [a], rate: 1/s",
            "`monitors[0].after` has no effect without `only`, which says what must wait; add that",
        ),
        (
            f"{HERE}, only: a, payload: 'true', reset: b",
            "`monitors[0].reset` has no effect without `after`; add that, or remove it",
        ),
        (
            f"{HERE}, only: a, after: [b, 'a']",
            "`monitors[0].after[1]` can never be seen, because `only` takes all its "
            "events; make one of the two narrower",
        ),
        (
            f"{HERE}, only: x, after: [b/c], reset: 'b/#'",
            "`monitors[0].after` can never be seen, because `reset` takes all its events; make one of the two narrower",
        ),
        (f"{HERE}, only: x, after: []", "`monitors[0].after` must not be empty; add at least one entry"),
        (f"{HERE}, only: x, after: [y, []]", "`monitors[0].after[1]` must not be empty; add at least one entry"),
        (f"{HERE}, only: 5, after: [y]", "`monitors[0].only` must be text; put it in quotes"),
        (
            f"{HERE}, only: x, after: [{{on: y, wen: 'true'}}]",
            "unknown key `wen` in `monitors[0].after[0]`; did you mean `when`?",
        ),
        (
            f"{HERE}, only: 'a/#/b', after: [y]",
            "`monitors[0].only` is wrong: `a/#/b` is no topic filter; `+` is a whole level, `#` the whole last one",
        ),
        (f"{HERE}, payload: 'o.payload >'", "`monitors[0].payload` is no condition, at column"),
        (f"{HERE}, payload: '5'", "`monitors[0].payload` is no condition, at column"),
        (
            f"{HERE}, rate: 20",
            "`monitors[0].rate` must say how many and in which time; write for example `20/s`, `5/m` or `100/h`",
        ),
        (
            f"{HERE}, rate: 0/s",
            "`monitors[0].rate` must say how many and in which time; write for example `20/s`, `5/m` or `100/h`",
        ),
        (f"{HERE}, dedupe: 1s, burst: 4", "`monitors[0].burst` has no effect without `rate`; add that, or remove it"),
        (f"{HERE}, rate: 1/s, burst: 0", "`monitors[0].burst` must be at least 1; raise it"),
        (f"{HERE}, dedupe: 1ms", "`monitors[0].dedupe` must be at least 0.01; raise it"),
        (f"{HERE}, silence: 1s", "`monitors[0].silence` has no effect without `emit`; add what shall be put out"),
        (
            f"{HERE}, silence: 1s, emit: []",
            "`monitors[0].emit` is empty, so nobody is told of a silence; add what shall be put out",
        ),
        (
            f"{HERE}, silence: 1s, emit: same",
            "`monitors[0].emit` is `same`, but in a silence there is no event; write `{topic: …, payload: …}`",
        ),
        (
            f"{HERE}, silence: 1s, emit: [{{topic: a}}, {{payload: x}}]",
            "`monitors[0].emit[1].topic` is missing, and in a silence there is no event to take it from; add it",
        ),
        (
            f"{HERE}, silence: 1s, emit: {{topic: 'a/+'}}",
            "`monitors[0].emit.topic` is no topic, and events are put out to one; write it without `+` and `#`",
        ),
        (
            f"{HERE}, silence: 1s, emit: {{topic: '$SYS/x'}}",
            "`monitors[0].emit.topic` is reserved, because it begins with `$`; choose another topic",
        ),
        (
            f"{HERE}, silence: 1s, emit: {{topic: a, payload: {{b: [1, -1e400]}}}}",
            "`monitors[0].emit.payload` has a number that JSON cannot hold; write a smaller one, or put it in quotes",
        ),
        (
            f"{HERE}, rate: 1/s, emit: {{topic: a}}",
            "`monitors[0].emit` has no effect without `silence`; add that, or write an `automaton`",
        ),
        (
            f"{HERE}, only: a, after: [b], on: c",
            "`monitors[0].on` has no effect without `dedupe`, `rate` or `silence`; add one of these, or write `only`",
        ),
        # the library
        (f"{HERE}, filter: []", "`monitors[0].filter` must not be empty; add at least one entry"),
        (
            f"{HERE}, map: {{'a/#': b}}",
            '`monitors[0].map["a/#"]` cannot carry the wildcards over: `a/#` and `b` do not '
            "have the same number of `#`; write as many in the new one",
        ),
        (
            f"{HERE}, map: {{'a/+': '+/+'}}",
            '`monitors[0].map["a/+"]` cannot carry the wildcards over: `a/+` and `+/+` '
            "do not have the same number of `+`; write as many in the new one",
        ),
        (
            f"{HERE}, map: {{a: $SYS/x}}",
            "`monitors[0].map.a` is reserved, because it begins with `$`; choose another topic",
        ),
        (
            f"{HERE}, python: nothing",
            "`monitors[0].python` must name a Python callable; write `package.module:factory`",
        ),
    ],
)
def test_what_is_wrong_with_an_entry(text: str, said: str) -> None:
    found = problems(entry(text))
    wanted = said.split("\n")
    assert len(found) == len(wanted)
    for line, start in zip(found, wanted, strict=True):
        assert line.startswith(f"f.yaml:7: {start}")


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (
            "a: [{on: x, go: b}]",
            ["13: `monitors[0].automaton.states.a[0].go` names the unknown state `b`; there are `a`"],
        ),
        (
            "a: []\nb: []\nc: [{go: b}]",
            [
                "14: `monitors[0].automaton.states.b` cannot be reached from `a`; let a transition "
                "go there, or remove it",
                "15: `monitors[0].automaton.states.c` cannot be reached from `a`; let a transition "
                "go there, or remove it",
            ],
        ),
        (
            "a:\n  - {on: 'x/#', emit: []}\n  - {on: x/y, when: 'true', emit: [same]}",
            [
                "15: `monitors[0].automaton.states.a[1]` can never be taken, because `states.a[0]` "
                "takes all its events; put "
                "it first, or remove it"
            ],
        ),
        (
            "a:\n  - {on: x, when: 'o.qos > 0', emit: []}\n  - {on: x, when: 'o.qos > 0'}",
            [
                "15: `monitors[0].automaton.states.a[1]` can never be taken, because `states.a[0]` "
                "takes all its events; put "
                "it first, or remove it"
            ],
        ),
        (
            "a:\n  - {silent: 5s}\n  - {silent: 6s}",
            [
                "15: `monitors[0].automaton.states.a[1]` is a second timer of `a`; a state has one, "
                "so remove one of the two"
            ],
        ),
        (
            "a: [{silent: 5s, on: x}]",
            [
                "13: `monitors[0].automaton.states.a[0].on` has no effect beside `silent`, which is "
                "about no event at all; "
                "remove one of the two"
            ],
        ),
        (
            "a: [{silent: 5s, emit: [same]}]",
            [
                "13: `monitors[0].automaton.states.a[0].emit[0]` is `same`, but in a silence there is no event; write "
                "`{topic: …, payload: …}`"
            ],
        ),
        ("a: [{silent: 1ms}]", ["13: `monitors[0].automaton.states.a[0].silent` must be at least 0.01; raise it"]),
        (
            "a: [{emit: [{}]}]",
            [
                "13: `monitors[0].automaton.states.a[0].emit[0]` changes nothing; write `same`, or what "
                "shall be different"
            ],
        ),
        (
            "a: [{emit: [sam]}]",
            ["13: `monitors[0].automaton.states.a[0].emit[0]` must be `same`; did you mean `same`?"],
        ),
        (
            "a: [{emit: [{topic: x, qos: 3}]}]",
            ["13: `monitors[0].automaton.states.a[0].emit[0].qos` must be at most 2; lower it"],
        ),
        (
            "a: [{emit: {topic: $tidegate/rules}}]",
            [
                "13: `monitors[0].automaton.states.a[0].emit.topic` is reserved, because it begins "
                "with `$`; choose another "
                "topic"
            ],
        ),
        (
            "a@b: []\na: []",
            [
                '13: `monitors[0].automaton.states["a@b"]` must be the name of a state; write 1 to 100 '
                "characters, without `@`"
            ],
        ),
        (
            "a: [{on: x, when: 'o.qos >> 1'}]",
            [
                "13: `monitors[0].automaton.states.a[0].when` is no condition, at column "
                "35: unexpected '>'; mend it there"
            ],
        ),
        ("a: [{got: a}]", ["13: unknown key `got` in `monitors[0].automaton.states.a[0]`; did you mean `go`?"]),
    ],
)
def test_what_is_wrong_with_an_automaton(states: str, said: list[str]) -> None:
    shift = -1  # the first state stands on line 12
    assert problems(automaton(states)) == [
        f"f.yaml:{int(line.partition(':')[0]) + shift}:{line.partition(':')[2]}" for line in said
    ]


def test_automata_have_bounds() -> None:
    many = "\n".join(f"s{number}: [{{on: a, go: s{number + 1}}}]" for number in range(1000))
    said = "and 1000 are the most; use `+` and `#`, or several monitors"
    assert problems(automaton(f"{many}\ns1000: []", start="s0")) == [
        f"f.yaml:11: `monitors[0].automaton.states` has 1001 states, {said}"
    ]
    wide = ", ".join(f"{{on: t{number}}}" for number in range(10_001))
    said = "and 10000 are the most; use `+` and `#`, or several monitors"
    assert problems(automaton(f"a: [{wide}]")) == [
        f"f.yaml:11: `monitors[0].automaton.states` has 10001 transitions, {said}"
    ]


def test_not_all_states_are_told_to_whoever_mistypes_one() -> None:
    many = "\n".join(f"s{number}: [{{on: a, go: s{number + 1}}}]" for number in range(20))
    [said] = problems(automaton(many, start="s0"))
    assert said.endswith("names the unknown state `s20`; there are " + ", ".join(f"`s{n}`" for n in range(10)) + ", …")


def crossing(count: int) -> str:
    """Transitions of which each crosses every other one, and does something else."""
    filters = [f"+/{number}" if number % 2 else f"{number}/+" for number in range(count)]
    return automaton("a: [" + ", ".join(f"{{on: {one}, emit: {{topic: t{n}}}}}" for n, one in enumerate(filters)) + "]")


def test_only_so_many_doubts_are_told() -> None:
    told = [text for _, text in read(crossing(40)).warnings()]
    assert len(told) == 11
    assert told[-1].endswith(" and others overlap in the same way; make those above narrower first")
    assert not any("others" in text for text in told[:-1])
    assert len(read(crossing(3)).warnings()) == 2


def test_only_so_many_filters_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "COMPARISONS", 3)
    never = "a: [{on: a}, {on: b}, {on: c}, {on: a}]"  # which would be found in the fourth comparison
    assert read(automaton(never)).warnings() == []
    assert len(read(crossing(40)).warnings()) == 2
    monkeypatch.setattr(analysis, "COMPARISONS", 4)
    assert len(problems(automaton(never))) == 1


def test_an_unknown_first_state() -> None:
    assert problems(automaton("a: []", start="b")) == [
        "f.yaml:10: `monitors[0].automaton.start` names the unknown state `b`; there are `a`"
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            entry("scope: home, direction: ex_pub, filter: [a]"),
            "`monitors[0].direction` acts on nothing, because `home` has neither parents nor such links; change it",
        ),
        (
            entry(f"{HERE}, only: 'a/+', after: ['b'], reset: '+/c'"),
            "`monitors[0].only` and `reset` both match some topics (`a/+` and `+/c` overlap), and "
            "`reset` wins; make one of "
            "the two narrower",
        ),
        (
            entry(f"{HERE}, only: 'a/b', after: ['+/+']"),
            "`monitors[0].after` and `only` both match some topics (`+/+` and `a/b` overlap)",
        ),
        (
            automaton("a: [{on: 'x/+', emit: []}, {on: '+/y'}]"),
            "`monitors[0].automaton.states.a[1]` and `states.a[0]` both match some topics (`+/y` and "
            "`x/+` overlap), and "
            "the first of the two wins; make one narrower, or order them on purpose",
        ),
        (
            "monitors: [{filter: [a], scope: home, direction: im_pub}]\n",
            "`monitors[0]` has no `id`, and is called `monitors[0]` until its position changes; add an `id`",
        ),
    ],
)
def test_what_is_only_doubtful(more: str, said: str) -> None:
    [(_, text)] = read(more).warnings()
    assert text.startswith(said)


@pytest.mark.parametrize(
    "states",
    [
        "a: [{on: x/y, emit: []}, {on: 'x/+', emit: {topic: z}}]",  # the narrower one first, as one does
        "a: [{on: 'x/+', emit: []}, {on: '+/y', emit: []}]",  # both do the same
        "a: [{on: x, when: 'o.qos > 0', emit: []}, {on: x, emit: {topic: z}}]",
        "a: [{on: '#', emit: []}, {on: '$SYS/#', emit: {topic: z}}]",
        "a: [{silent: 5s, go: b}]\nb: [{on: x, go: a}]",
    ],
)
def test_what_is_neither(states: str) -> None:
    assert read(automaton(states)).warnings() == []


def test_policies_speak_of_monitors_that_there_are() -> None:
    more = entry(f"{HERE}, filter: [a]")
    policies = "policies:\n  - {id: p, subject: 'monitor:%s', topic: t, action: write}\n"
    head = HEAD.replace("policies: open\n", "")
    config = parse(head + policies % "m" + more, "f.yaml", variables={})
    assert not any("monitor" in text for _, text in config.warnings())
    config = parse(head + policies % "n" + more, "f.yaml", variables={})
    assert any(text.startswith("`policies[0].subject` names the unknown monitor `n`") for _, text in config.warnings())


@pytest.mark.parametrize(
    ("monitor", "doubtful"),
    [
        (f"{HERE}, map: {{a: b}}", True),
        (f"{HERE}, use: multi_em", True),
        (f"{HERE}, silence: 1s, emit: {{topic: t}}", True),
        (f"{HERE}, automaton: {{start: s, states: {{s: [{{on: a, emit: [same, {{topic: t}}]}}]}}}}", True),
        (f"{HERE}, automaton: {{start: s, states: {{s: [{{on: a, emit: []}}]}}}}", False),
        (f"{HERE}, rate: 1/s", False),
        ("scope: home, direction: im_sub, map: {a: b}", False),
    ],
)
def test_what_monitors_make_needs_a_policy_that_names_them(monitor: str, doubtful: bool) -> None:
    head = HEAD.replace("policies: open\n", "")
    everybody = "policies:\n  - {id: p, subject: %s, topic: '#', action: [read, write]}\n"
    for subject, said in (("'*'", doubtful), ("['*', 'monitor:m']", False)):
        config = parse(head + everybody % subject + entry(monitor), "f.yaml", variables={})
        text = "`monitors[0]` makes messages that no policy allows it to write, and `*` does not count for monitors"
        assert any(each.startswith(text) for _, each in config.warnings()) is said
    assert read(entry(monitor)).warnings() == []


def test_ids_are_unique_among_all_rules() -> None:
    more = "views: [{id: m, topic: a, for: '*', keep: all}]\n" + entry(f"{HERE}, filter: [a]")
    assert problems(more) == [
        "f.yaml:8: `monitors[0].id` is `m`, and so is that of `views[0]`; give each rule an id of its own"
    ]


@pytest.mark.parametrize(
    ("python", "said"),
    [
        (
            "monitor.nothing:X",
            "it cannot be imported (ModuleNotFoundError: No module named 'monitor.nothing'); check its "
            "name, and that Python finds it",
        ),
        ("monitor.mine:NoStep", "`NoStep` has no `start` and `step`; write both"),
        ("monitor.mine:BrokenStart", "its `start` fails (OSError: no disk); mend it"),
    ],
)
def test_python_that_cannot_be_used(python: str, said: str) -> None:
    config = read(entry(f"{HERE}, python: '{python}'"))
    with pytest.raises(ConfigErrors) as wrong:
        config.built  # noqa: B018
    assert str(wrong.value) == f"f.yaml:7: `monitors[0].python` is wrong: {said}"


def test_a_condition_that_calls_what_cannot_be_loaded_is_not_blamed_twice() -> None:
    found = problems(
        "functions: ['nothing.here:tide']\n" + automaton("a: [{on: x, when: 'tide()', emit: []}, {on: x, go: b}]")
    )
    assert len(found) == 1
    assert found[0].startswith("f.yaml:6: `functions[0]` cannot be used: ")


def test_functions_of_administrators_can_be_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tides_of_test.py").write_text(
        "from tidegate.predicate import function\n\n\n"
        "@function()\ndef high(level: int) -> bool:\n    return level > 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = read("functions: ['tides_of_test:high']\n" + entry(f"{HERE}, payload: 'high(o.payload)'"))
    assert [each.id for each in config.built.rules.monitors] == ["m"]
    assert config.warnings() == []
