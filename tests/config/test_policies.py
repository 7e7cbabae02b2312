"""What decides: each way to write it wrong, with the place and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config import ConfigErrors, parse

HEAD = "version: 1\nnode: {name: n}\nlisteners: [{url: 'mqtt://127.0.0.1'}]\n"


def problems(more: str) -> list[str]:
    with pytest.raises(ConfigErrors) as wrong:
        parse(HEAD + more, "f.yaml", variables={})
    return str(wrong.value).splitlines()


def policy(**other: str) -> str:
    said = {"id": "p", "subject": "'*'", "topic": "t", "action": "read", **other}
    return "policies:\n  - {" + ", ".join(f"{key}: {value}" for key, value in said.items() if value) + "}\n"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"id": "5"}, "`policies[0].id` must be text; put it in quotes"),
        (
            {"id": "''"},
            "`policies[0].id` must have 1 to 200 characters and no control characters; choose another id",
        ),
        (
            {"id": "builtin:sys"},
            "`policies[0].id` is `builtin:sys`, which the node calls rules of its own; choose another id",
        ),
        (
            {"id": "rule:mary/1"},
            "`policies[0].id` is `rule:mary/1`, which the node calls rules of its own; choose another id",
        ),
        (
            {"id": "default"},
            "`policies[0].id` is `default`, which the node calls rules of its own; choose another id",
        ),
        (
            {"subject": ""},
            "`policies[0].subject` is missing; add it "
            "(Who: `*`, `user:…`, `role:…`, `group:…`, `client:…`, `service:…`, `monitor:…`, `scope:…` (with all its "
            "links), `link:A->B`, or a list of these)",
        ),
        (
            {"subject": "coach"},
            "`policies[0].subject` is wrong: `coach` is no subject; "
            "say what it is, for instance `user:coach` or `role:coach`",
        ),
        ({"subject": "5"}, "`policies[0].subject` must be text; put it in quotes"),
        ({"subject": "[]"}, "`policies[0].subject` must not be empty; add at least one entry"),
        (
            {"subject": "['*', 'rol:x']"},
            "`policies[0].subject[1]` is wrong: `rol:x` is no subject; did you mean `role:`?",
        ),
        (
            {"subject": "'user:*'"},
            "`policies[0].subject` is wrong: `user:*` is no subject; "
            "`*` alone means everybody, and names have no wildcards",
        ),
        (
            {"topic": "a/#/b"},
            "`policies[0].topic` is wrong: `a/#/b` is no topic filter; `+` is a whole level, `#` the whole last one",
        ),
        (
            {"topic": "'{user}'"},
            "`policies[0].topic` is wrong: `{user}` is no attribute of the subject; write for instance `{s.user}`",
        ),
        (
            {"topic": "$share/g/a"},
            "`policies[0].topic` is wrong: `$share/g/a` is shared; policies speak of the filter without `$share/g/`",
        ),
        ({"action": "reed"}, "`policies[0].action` must be `read` or `write`; did you mean `read`?"),
        ({"action": "[read, 5]"}, "`policies[0].action[1]` must be `read` or `write`; write one of these"),
        ({"action": "[]"}, "`policies[0].action` must not be empty; add at least one entry"),
        (
            {"action": ""},
            "`policies[0].action` is missing; add it (`read` (receive), `write` (publish), or a list of both)",
        ),
        ({"effect": "permit"}, "`policies[0].effect` must be `allow` or `deny`; write one of these"),
        ({"effect": "alow"}, "`policies[0].effect` must be `allow` or `deny`; did you mean `allow`?"),
        ({"efect": "deny"}, "unknown key `efect` in `policies[0]`; did you mean `effect`?"),
        ({"when": "5"}, "`policies[0].when` must be text; put it in quotes"),
        (
            {"when": "s.a = 1"},
            "`policies[0].when` is no condition, at column 61: unexpected '='; write `==`",
        ),
        (
            {"when": "s.a or s.b"},
            "`policies[0].when` is no condition, at column 61: unexpected 'or'; write `||`",
        ),
        ({"when": "''"}, "`policies[0].when` is no condition, at column 58: it ends too early; mend it there"),
        (
            {"when": "x == 1"},
            "`policies[0].when` is no condition, at column 57: unknown name x; there is e, o, p, s",
        ),
        (
            {"when": "wihtin(e.now)"},
            "`policies[0].when` is no condition, at column 57: unknown function wihtin; did you mean `within`?",
        ),
        (
            {"when": "zzz(e.now)"},
            "`policies[0].when` is no condition, at column 57: unknown function zzz; "
            "add it under `functions`, or remove it",
        ),
        (
            {"when": "1 + 1"},
            "`policies[0].when` is no condition, at column 59: the result is int, not bool; mend it there",
        ),
    ],
)
def test_policies(other: dict[str, str], said: str) -> None:
    assert problems(policy(**other)) == [f"f.yaml:5: {said}"]


@pytest.mark.parametrize(
    ("when", "line", "column"),
    [
        (" |\n      s.user == 'x'\n        and s.role", 7, 9),
        (" >\n      s.user == 'x'\n      && s.role and s.x", 7, 17),
        (" s.user == 'x' &&\n      s.role and s.x", 6, 14),
        (" 's.user == ''x'' &&\n      s.role and s.x'", 6, 14),
        (' "s.user == \\"x\\" &&\n      s.role and s.x"', 6, 14),
    ],
)
def test_a_condition_over_several_lines(when: str, line: int, column: int) -> None:
    text = f"policies:\n  - when:{when}\n    subject: '*'\n    topic: t\n    action: read\n"
    said = f"`policies[0].when` is no condition, at column {column}: unexpected 'and'; write `&&`"
    assert problems(text) == [f"f.yaml:{line}: {said}"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "preferences: [{id: u, user: mary@x, topic: t}]\n",
            "`preferences[0].user` has an `@`, which stands between a name and its domain; choose a name without one",
        ),
        (
            "preferences: [{id: u, user: mary, topic: t, to: ''}]\n",
            "`preferences[0].to` names the unknown scope ``; add it under `scopes`",
        ),
        ("classify: [{topic: t, category: ''}]\n", "`classify[0].category` is empty; write for example `sensitive`"),
        (
            "preferences: [{id: u, user: mary, topic: '{s.user}'}]\n",
            "`preferences[0].topic` is wrong: `{s.user}` has a placeholder, which only policies can have; "
            "write it otherwise",
        ),
        (
            "preferences: [{id: u, user: mary, topic: t, keep: some}]\n",
            "`preferences[0].keep` is wrong: `some` is no view; write `all` or a list of JSON pointers",
        ),
        (
            "preferences: [{id: u, user: mary, topic: t, keep: [/a, b]}]\n",
            "`preferences[0].keep[1]` is wrong: `b` is no JSON pointer; it begins with `/`, as in `/illness`",
        ),
        (
            "views: [{id: v, topic: t, keep: all}]\n",
            "`views[0].for` is missing; add it (For whom, as in policies)",
        ),
        (
            "views: [{id: v, topic: t, for: '*', keep: all, subject: '*'}]\n",
            "unknown key `subject` in `views[0]`; known here: id, topic, for, keep, enforce",
        ),
        (
            "views: [{id: v, topic: t, for: ['*', x], keep: all}]\n",
            "`views[0].for[1]` is wrong: `x` is no subject; say what it is, for instance `user:x` or `role:x`",
        ),
        ("view_default: some\n", "`view_default` must be `nothing` or `all`; write one of these"),
        (
            "combining: deny-override\n",
            "`combining` must be `deny-overrides`, `permit-overrides` or `first-applicable`; "
            "did you mean `deny-overrides`?",
        ),
        ("subscribe: held\n", "`subscribe` must be `strict` or `hold`; did you mean `hold`?"),
        ("limits: {held: -1}\n", "`limits.held` must be at least 0; raise it"),
        (
            "levels: {order: [plain, gold]}\n",
            "`levels.order` is wrong: `gold` needs a condition that says which connections have that level; "
            "write it otherwise",
        ),
        (
            "levels: {define: {gold: s.trusted}}\n",
            "`levels.define.gold` is wrong: `gold` has a condition but no place in the order; write it otherwise",
        ),
        (
            "levels: {order: [tls, plain]}\n",
            "`levels.order` is wrong: `tls` is the lowest level, which every connection has; put `plain` below it",
        ),
        (
            "levels: {define: {tls: s.trusted}}\n",
            "`levels.define.tls` is wrong: `tls` has its meaning already; give the level with a condition another name",
        ),
        ("levels: {order: []}\n", "`levels.order` must not be empty; add at least one entry"),
        (
            "levels: {order: [plain, gold], define: {gold: o.size > 1}}\n",
            "`levels.define.gold` is no condition, at column 47: unknown name o; there is s",
        ),
        ("trust: {by: subject}\n", "`trust.accept` is missing; add it (Who is trusted)"),
        (
            "trust: {accept: [remote]}\n",
            "`trust.accept[0]` is wrong: `remote` is no subject; write it as in `CN=remotegym,O=MyGymBrand`",
        ),
        (
            "trust: {by: certificate, accept: ['CN=x', a.pem]}\n",
            "`trust.accept[0]` is wrong: `CN=x` is no certificate; give its SHA-256 fingerprint in hexadecimal, or PEM",
        ),
        (
            "classify: [{topic: a/b#, category: x}]\n",
            "`classify[0].topic` is wrong: `a/b#` is no topic filter; `+` is a whole level, `#` the whole last one",
        ),
        ("classify: [{topic: a, category: ''}]\n", "`classify[0].category` is empty; write for example `sensitive`"),
        ("environment: {now: 1}\n", "`environment.now` is the clock's; call it otherwise"),
        (
            "environment: {a b: 1}\n",
            '`environment["a b"]` cannot be read as `e.a b`; name it with letters, digits and `_`',
        ),
        (
            "directory: {users: {a@b: {}}}\n",
            '`directory.users["a@b"]` has an `@`, which stands between a name and its domain; '
            "choose a name without one",
        ),
        (
            "directory: {users: {a: {attributes: {role: x}}}}\n",
            "`directory.users.a.attributes.role` is set by the node itself and nobody else; "
            "call the attribute otherwise",
        ),
        (
            "directory: {clients: {a: {attributes: {x y: x}}}}\n",
            '`directory.clients.a.attributes["x y"]` cannot be read as `s.x y`; name it with letters, digits and `_`',
        ),
        (
            "directory: {roles: {a: {attributes: {level: x}}}}\n",
            "`directory.roles.a.attributes.level` is set by the node itself and nobody else; "
            "call the attribute otherwise",
        ),
        (
            "directory: {groups: {a: {users: []}}}\n",
            "unknown key `users` in `directory.groups.a`; known here: attributes",
        ),
        ("functions: [json]\n", "`functions[0]` must name a Python callable; write `package.module:factory`"),
        (
            "functions: ['json:loads']\n",
            "`functions[0]` cannot be used: it is no function for conditions; decorate it with @function()",
        ),
        (
            "functions: ['no_such_package:f']\n",
            "`functions[0]` cannot be used: it cannot be imported "
            "(ModuleNotFoundError: No module named 'no_such_package'); check its name, and that Python finds it",
        ),
        ("record: all\n", "`record` must be `off`, `decisions` or `traffic`; write one of these"),
        ("audit: {size: 5}\n", "`audit.size` must be at least 1048576; raise it"),
        ("audit: {rate: 0}\n", "`audit.rate` must be more than 0; raise it"),
        ("traffic: {keep: 0s}\n", "`traffic.keep` must be more than 0; raise it"),
        ("traffic: {payloads: some}\n", "`traffic.payloads` must be `true` or `false`; write one of the two"),
    ],
)
def test_one_problem(more: str, said: str) -> None:
    assert problems(more) == [f"f.yaml:4: {said}"]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            "{as: mary, action: read, topic: t, expect: deny}",
            "`tests[0].as` is wrong: `mary` is nobody who acts; "
            "write for example `user:mary`, `client:tr1`, `user:mary/client:tr1` or `service:pipeline`",
        ),
        (
            "{as: 'user:m', action: read, topic: t/+, expect: deny}",
            "`tests[0].topic` is no topic, and `read` is of one; write it without `+` and `#`",
        ),
        (
            "{as: 'user:m', action: subscribe, topic: a/#/b, expect: deny}",
            "`tests[0].topic` is no topic filter; `+` is a whole level, `#` the whole last one",
        ),
        (
            "{as: 'user:m', action: write, topic: t, from: 'user:m', expect: deny}",
            "`tests[0].from` has no effect on `write`; remove it",
        ),
        (
            "{as: 'user:m', action: subscribe, topic: t, payload: 1, expect: deny}",
            "`tests[0].payload` has no effect on `subscribe`; remove it",
        ),
        (
            "{as: 'user:m', action: reads, topic: t, expect: deny}",
            "`tests[0].action` must be `read`, `write` or `subscribe`; did you mean `read`?",
        ),
        (
            "{as: 'user:m', action: read, topic: t}",
            "`tests[0].expect` is missing; add it (What should be decided: `allow` or `deny`)",
        ),
        (
            "{as: 'user:m', action: read, topic: t, at: noon, expect: deny}",
            "`tests[0].at` must be a time; write for example `2026-03-02T09:30:00` or `2026-03-02T09:30:00Z`",
        ),
        (
            "{as: 'user:m', action: read, topic: t, set: {level: tls}, expect: deny}",
            "`tests[0].set.level` is no attribute; write for example `s.level` or `e.location`",
        ),
        (
            "{as: 'user:m', action: read, topic: t, properties: {a: 1}, expect: deny}",
            "`tests[0].properties.a` must be text; put it in quotes",
        ),
        (
            "{as: 'user:m', action: read, topic: t, form: 'user:x', expect: deny}",
            "unknown key `form` in `tests[0]`; did you mean `from`?",
        ),
    ],
)
def test_tests(case: str, said: str) -> None:
    assert problems(f"tests:\n  - {case}\n") == [f"f.yaml:5: {said}"]


IDS = """\
policies:
  - {id: a, subject: "*", topic: t, action: read}
  - {subject: "*", topic: t, action: read}
  - {id: a, subject: "*", topic: t, action: read}
preferences:
  - {id: "policies[1]", user: u, topic: t}
views:
  - {topic: t, for: "*", keep: all,
     id: a}
"""
REPEATED = [
    "f.yaml:7: `policies[2].id` is `a`, and so is that of `policies[0]`; give each rule an id of its own",
    "f.yaml:9: `preferences[0].id` is `policies[1]`, and so is that of `policies[1]`; give each rule an id of its own",
    "f.yaml:12: `views[0].id` is `a`, and so is that of `policies[0]`; give each rule an id of its own",
]


def test_ids_are_unique_over_all_rules() -> None:
    assert problems(IDS) == REPEATED


def test_they_are_told_together_with_everything_else() -> None:
    assert problems(IDS + "record: all\n") == [
        *REPEATED,
        "f.yaml:13: `record` must be `off`, `decisions` or `traffic`; write one of these",
    ]
    assert problems("policies: [7, {id: 5}, {id: a, id: a}]\npreferences: 5\nviews: [{id: a}]\n")


def test_everything_wrong_with_rules_is_told_at_once() -> None:
    text = """\
policies:
  - {id: p1, subject: coach, topic: "a/#/b", action: reed, when: "s.a =="}
  - {id: p2, subject: "*", topic: t, action: read, when: "nope"}
preferences:
  - {id: p3, user: u, topic: t, when: "false &&"}
views:
  - {id: p4, topic: t, for: x, keep: y}
environment: {hour: 1}
"""
    told = problems(text)
    assert [line.split(":")[1] for line in told] == ["5", "5", "5", "5", "6", "8", "10", "10", "11"]


def test_a_function_that_is_missing_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config_test_clashing.py").write_text(
        "from tidegate.predicate import function\n"
        "@function()\n"
        "def within(a: str) -> bool: return True\n"
        "@function()\n"
        "def mine(a: str) -> bool: return True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = "config_test_clashing"
    told = problems(
        f"functions: ['{module}:within', '{module}:mine', '{module}:mine', '{module}:gone']\n"
        + policy(when="\"mine('a') && gone('a')\"")
    )
    assert told == [
        "f.yaml:4: `functions[0]` cannot be used: `within` is a function of the language already; call it otherwise",
        "f.yaml:4: `functions[2]` cannot be used: there is a function `mine` already; call one of the two otherwise",
        "f.yaml:4: `functions[3]` cannot be used: it cannot be imported (AttributeError: module "
        f"'{module}' has no attribute 'gone'); check its name, and that Python finds it",
    ]
