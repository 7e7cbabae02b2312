# ruff: noqa: E501  rows of tables are not broken
"""Predicates and values meant to hold the event loop: what one evaluation of each costs.

`test_bounds` counts their work. Run as a program, it shows how long they take:

    python tests/policy/predicate/adversaries.py [budget [limit]]
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from tidegate.predicate import Predicate, PredicateFailed, compile

MEGA = 1 << 20


def deep(levels: int) -> list[Any]:
    made: list[Any] = [1]
    for _ in range(levels):
        made = [made]
    return made


def shared(levels: int) -> list[Any]:
    """A list that is small in memory and exponentially large to look at."""
    made: list[Any] = [1]
    for _ in range(levels):
        made = [made, made]
    return made


class Rude:
    """An attribute group that has nothing and says so at length."""

    def __getitem__(self, name: str) -> object:
        raise ValueError("no " * 10)


@cache
def values() -> Mapping[str, Any]:
    """What a payload or a directory may hold. Pairs such as `t` and `t2` are equal and not the same object."""
    rome = ZoneInfo("Europe/Rome")
    now = datetime(2026, 3, 2, 10, 30, tzinfo=rome)
    made: dict[str, Any] = {
        "i": 5, "f": 1.5, "b": True, "nan": float("nan"), "d": timedelta(hours=1), "a": "x", "z": "Europe/Rome",
        "l100": list(range(100)), "l1000": list(range(1000)), "l": list(range(10_000)), "huge": list(range(200_000)),
        "fl": [n + 0.5 for n in range(10_000)], "bools": [True] * 10_000, "nulls": [None] * 10_000,
        "times": [now + timedelta(minutes=n) for n in range(5_000)], "spans": [timedelta(n) for n in range(10_000)],
        "texts": [f"text {n}" for n in range(10_000)], "same": ["a" * 999 + chr(n) for n in range(9_000)],
        "long": ["a" * 60_000 + str(n) for n in range(64)], "pairs": [[n, n] for n in range(9_000)],
        "maps": [{"a": n, "b": [n]} for n in range(5_000)], "rude": [Rude() for _ in range(5_000)],
        "keys": {f"key {n}": n for n in range(100_000)}, "numbers": {n: n for n in range(100_000)}, "flags": {True: 1, **{n: n for n in range(2, 50_000)}},
        "deep": deep(900), "deeper": deep(50_000), "shared": shared(60), "wide": [[0] * 100 for _ in range(100)],
        "t": "a" * MEGA, "wide_t": "a" * (MEGA - 1) + "\U0001f431", "accents": "é" * 100_000, "bytes": b"a" * MEGA,
        "kilo": "a" * 1000, "t10": "ab" * 5_000, "t29": "a" * 29_000, "part50": "a" * 25 + "b" + "a" * 24, "part99": "a" * 50 + "b" + "a" * 48,
        "t2400": "a" * 2_400, "part1200": "a" * 600 + "b" + "a" * 599, "part": "a" * 500_000 + "b" + "a" * 500_000, "part9": "a" * 4_500 + "b" + "a" * 4_499,
        "random": "".join("ab"[hash((n, 7)) % 2] for n in range(20_000)), "slashes": "/" * 60_000, "filter": "+/" * 30_000 + "#",
        "patterns": [f"(a|b)*{n}" for n in range(5_000)], "bad_patterns": ["(" * n for n in range(1, 1_000)], "heavy": [f"\\pL{{{n}}}" for n in range(5, 300)],
        "heavy_p": "[\\pL\\pN]{1,2}x", "evil_p": "[ab]*a[ab]{50}c", "addresses": [f"fe80:{n:x}:2:3:4:5:6:7" for n in range(5_000)], "networks": [f"10.{n // 256}.{n % 256}.0/24" for n in range(5_000)],
        "address": "10.1.2.3", "colons": ":" * MEGA, "windows": [f"{n // 60 % 24:02}:{n % 60:02}-{(n // 60 + 1 + n // 1440) % 24:02}:{n % 60:02}" for n in range(5_000)],
        "zones": [f"Etc/GMT+{n % 13}" for n in range(50)] + [f"No/Zone{n}" for n in range(200)], "stamps": [f"2026-03-02T10:{n % 60:02}:00.123456+01:00" for n in range(5_000)],
        "durations": ["1h" * 60 + str(n) + "s" for n in range(1_000)], "digits": ["9" * 32 for _ in range(5_000)], "doubles": ["1." + "3" * 500 for _ in range(5_000)],
        "big": 1 << 60_000, "topics": [f"gym/{n}/speed/of/the/device" for n in range(5_000)], "when": now.astimezone(UTC),
    }  # fmt: skip
    for name in ("t", "wide_t", "kilo", "bytes"):
        made[name + "2"] = made[name][:-1] + made[name][-1:]
    made["l2"], made["huge2"], made["pairs2"], made["keys2"] = (
        list(made["l"]),
        list(made["huge"]),
        [list(pair) for pair in made["pairs"]],
        {key + "": value for key, value in made["keys"].items()},
    )
    made["numbers2"], made["deep2"], made["shared2"] = dict(made["numbers"]), deep(900), shared(60)
    made["maps2"], made["texts2"] = [dict(item) for item in made["maps"]], [item + "" for item in made["texts"]]
    return made


def environment() -> dict[str, Any]:
    now = datetime(2026, 3, 2, 10, 30, tzinfo=ZoneInfo("Europe/Rome"))
    return {"s": values(), "o": {"payload": values()}, "e": {"now": now, "hour": 10}, "p": {"time": now}}


MACROS = [
    "s.l.all(x, true)", "s.l.all(x, x >= 0 && x < 10000)", "s.l.exists(x, x == -1)", "s.l.exists_one(x, x > 5)", "s.l.map(x, x) == []", "s.l.filter(x, x > 5) == []",
    "s.l.map(x, x > 5, x * 2) == []", "s.l.all(x, s.l.all(y, s.l.all(z, true)))", "s.l.all(x, s.l.exists(y, y == x))", "s.l.map(x, s.l.map(y, [x, y])) == []",
    "s.keys.all(k, k != '')", "s.keys.exists(k, s.keys[k] == -1)", "s.l.all(x, x in s.l)", "s.l.all(x, s.l == s.l2)", "s.l.all(x, s.deep == s.deep2)",
    "s.l.all(x, !s.t.contains('b'))", "s.l.all(x, s.t.matches('(a+)+$'))", "s.l.map(x, string(x) + s.t).size() == 0", "s.l.map(x, s.kilo + s.kilo2) == []", "s.l.map(x, [x, x, x, x, x]) == []",
    "s.l.map(x, {'a': x, 'b': x}) == []", "s.l.all(x, x + 1 > x - 1)", "s.l.all(x, x * 2 / 2 % 7 != 9)", "s.l.all(x, s.d + s.d == s.d || s.b)", "s.times.all(t, t + s.d > t)",
    "s.times.all(t, e.now - t < s.d || s.b)", "s.times.all(t, t.getDayOfYear('Europe/Rome') >= 0)", "s.times.all(t, within(t, '00:00-23:00', 'Asia/Tokyo') || s.b)", "s.times.all(t, string(t) != '')",
    "s.times.all(t, int(t) != 0)", "s.times.all(t, age(t) < s.d || s.b)", "s.spans.all(d, string(d) != '')", "s.stamps.all(t, timestamp(t) < e.now || s.b)", "s.durations.all(d, duration(d) > s.d)",
    "s.digits.all(d, double(d) > 0.0)", "s.doubles.all(d, double(d) > 0.0)", "s.digits.all(d, int(d) > 0 || s.b)", "s.l.all(x, string(x) != '')", "s.fl.all(x, string(x) != '')", "s.fl.all(x, int(x) >= 0)",
    "s.texts.all(t, t.matches('^text [0-9]+$'))", "s.texts.all(t, t.contains('9') || s.b)", "s.texts.all(t, t.startsWith('text'))", "s.texts.all(t, t + t != '')", "s.texts.all(t, t in s.texts)",
    "s.texts.all(t, t in s.keys || s.b)", "s.topics.all(t, matchesFilter(t, 'gym/+/speed/#'))", "s.topics.all(t, matchesFilter(t, t))", "s.addresses.all(a, cidr(a, 'fe80::/10'))", "s.networks.all(n, cidr(s.address, n) || s.b)",
    "s.windows.all(w, within(e.now, w) || s.b)", "s.zones.all(z, e.now.getHours(z) >= 0 || s.b)", "s.patterns.all(p, 'abc'.matches(p) || s.b)", "s.bad_patterns.all(p, 'abc'.matches(p) || s.b)",
    "s.heavy.all(p, 'abc'.matches(p) || s.b)", "s.maps.all(m, m.a >= 0)", "s.maps.all(m, has(m.c) || s.b)", "s.maps.all(m, m == m)", "s.maps.exists(m, m in s.maps2 && !s.b)", "s.pairs.all(p, p[0] == p[1])",
    "s.l.all(x, sets.contains(s.l100, [x]) || s.b)", "s.l.all(x, union(s.l100, [x]) != [])", "s.l.all(x, size(s.l) > x)", "s.l.all(x, x in [1, 2, 3] || s.b)", "s.texts.all(t, t in ['a', 'b', 'c'] || s.b)",
    "s.flags.all(k, true in s.flags)", "s.numbers.all(k, k in s.numbers)", "s.bools.all(b, b)", "s.bools.all(b, b == true && !false)", "s.l.all(x, s.i == 5 ? true : false)", "s.l.all(x, e.hour == 10 && s.a == 'x' && s.i == 5)",
    "s.l.all(x, o.payload.a == o.payload.a)", "s.l.all(x, s.big + 1 == 1 || s.b)", "s.l.all(x, s.big == s.big)", "s.l.all(x, -x <= 0)", "s.l.all(x, bytes(s.a) == b'x')", "s.l.all(x, dyn(dyn(dyn(x))) == x)",
]  # fmt: skip
"""Many rounds of something cheap, and a few of something that is not."""

ABSORBED = [
    "s.l.all(x, s.nope)", "s.l.all(x, x + 'a' == 'a')", "s.rude.all(r, r.x == 1)", "s.rude.all(r, has(r.x))", "s.l.all(x, 1 / 0 == x)", "s.l.all(x, s.nope || s.nope || s.nope)", "s.l.all(x, x.a.b.c)",
    "s.texts.all(t, int(t) == 1)", "s.texts.all(t, timestamp(t) == e.now)", "s.texts.all(t, duration(t) == s.d)", "s.texts.all(t, cidr(t, '10.0.0.0/8'))", "s.texts.all(t, matchesFilter(t + '+', t))", "s.l.all(x, s.l[x + 10000] == 1)",
    "s.texts.all(t, t.a.b)", "s.texts.all(t, s.keys[t] == 1)", "s.colons.contains('x') || s.l.all(x, cidr(s.colons, '10.0.0.0/8'))", "s.l.all(x, bool(s.t))", "s.l.all(x, timestamp(s.t) == e.now)", "s.l.all(x, s.keys[s.t] == 1)",
    "s.l.all(x, {s.a: 1, 'x': 2} == {})", "s.l.all(x, within(e.now, s.t))", "s.l.all(x, e.now.getHours(s.t) == 1)", "s.nope || s.l.exists(x, x == -1)", "s.l.exists(x, x == -1) || s.nope", "s.l.all(x, s.l.all(y, s.nope))",
    "s.l.all(x, x >= 0) && s.nope", "s.l100.all(x, s.l100.exists(y, s.nope))", "s.l.all(x, s.big * s.big == 1)", "s.l.all(x, s.big / 3 == 1)",
]  # fmt: skip
"""Errors, round after round, and the exact evaluator after the fast one."""

LARGE = [
    "s.l == s.l2", "s.huge == s.huge2", "s.pairs == s.pairs2", "s.keys == s.keys2", "s.numbers == s.numbers2", "s.maps == s.maps2", "s.texts == s.texts2", "s.deep == s.deep2", "s.deeper == s.deeper",
    "s.shared == s.shared2", "s.wide == s.wide", "s.t == s.t2", "s.wide_t == s.wide_t2", "s.bytes == s.bytes2", "s.t < s.t2", "s.t < s.wide_t", "s.wide_t <= s.wide_t2", "s.bytes < s.bytes2", "s.t + 'a' == s.t",
    "s.wide_t + 'a' == s.t", "s.l1000 + s.l1000 == []", "s.bytes + b'a' == b''", "-1 in s.l", "-1 in s.huge", "'x' in s.texts", "'x' in s.huge", "s.kilo in s.same", "s.long[0] in s.long", "s.t in s.keys", "s.wide_t in s.keys", "true in s.flags", "1 in s.numbers",
    "s.keys[s.wide_t] == 1", "[1] in s.pairs", "{'a': 1} in s.maps", "s.pairs in s.pairs", "s.shared in [s.shared2]", "sets.contains(s.l, s.l)", "sets.contains(s.texts, s.texts)", "sets.contains(s.pairs, s.pairs)",
    "sets.equivalent(s.maps, s.maps)", "sets.intersects(s.l, s.texts)", "union(s.l, s.l) == []", "union(s.l1000, s.fl) == []", "intersection(s.texts, s.texts) == []", "difference(s.same, s.same) == []", "sets.contains(s.times, s.times)",
    "sets.contains([s.wide_t], [s.t])", "sets.contains(s.long, s.long)", "sets.contains([s.shared], [s.shared2])", "s.t.contains('b')", "s.t.contains('ab')", "s.wide_t.contains('aab')", "s.t29.contains(s.part50)", "s.t29.contains(s.part99)",
    "s.t2400.contains(s.part1200)", "s.t.contains(s.part)", "s.t10.contains(s.part9)", "s.wide_t.contains(s.part)", "s.wide_t.contains(s.part50)", "s.t.startsWith(s.t2)", "s.wide_t.endsWith(s.wide_t2)", "s.t.matches('(a+)+$')", "s.t.matches('b')",
    "s.kilo.matches('(a|aa)+$')", "s.random.matches('[ab]*a[ab]{10}c')", "s.random.matches('[ab]*a[ab]{50}c')", "s.random.matches('[ab]*a[ab]{999}c')", "s.random.matches(s.evil_p)", "s.accents.matches('\\\\pL+x')", "s.kilo.matches('(?:a?){200}a{200}$')",
    "s.a.matches(s.heavy_p)", "s.a.matches(s.kilo)", "s.a.matches(s.heavy[100])", "s.a.matches(s.heavy[2])", "s.kilo.matches('^(([a-z])+.)+[A-Z]([a-z])+$')", "bytes(s.t) == b''", "bytes(s.wide_t) == b''", "string(s.bytes) == ''", "size(s.huge) == 1", "size(s.keys) == 1",
    "matchesFilter(s.slashes, '+/#')", "matchesFilter(s.slashes, s.filter)", "matchesFilter(s.t, '#')", "cidr(s.colons, '10.0.0.0/8')", "cidr(s.address, s.networks)", "cidr(s.address, s.t)", "within(e.now, s.windows)", "within(e.now, s.t)", "within(s.t, '08:00-09:00')",
    "e.now.getHours(s.t) == 1", "timestamp(s.t) == e.now", "duration(s.t) == s.d", "int(s.t) == 1", "double(s.t) == 1.0", "bool(s.t)", "s.big * s.big == 1", "s.big / 3 == 1", "s.big % 3 == 1", "string(s.big) == ''", "double(s.big) == 1.0", "{s.wide_t: 1, s.t: 2} == {}", "s.l[s.big] == 1",
    "{'a': s.l} == {'a': s.l2}", "[s.l, s.l] == [s.l2, s.l2]", "[s.t, s.wide_t] == [s.t2, s.wide_t2]", "[s.bytes] == [s.bytes2]", "s.times == s.times", "s.deeper in [s.deeper, 1]",
]  # fmt: skip
"""One call on something large."""


def wide(limit: int) -> list[str]:
    """Texts as long as they may be."""

    def many(part: str, between: str = "||", less: int = 0) -> str:
        return between.join([part] * ((limit - less + len(between)) // (len(part) + len(between))))

    def listed(items: Iterable[str]) -> str:
        made = ""
        for item in items:
            if len(made) + len(item) > limit - 100:
                break
            made += item + ","
        return f"[{made}]"

    return [
    many("s.nope"), many("s.a==s.t"), many("s.a<s.t"), many("s.i<s.f"), many("s.nan==s.i"), many("has(s.x)"), many("s.b", "&&"), many("s.a=='y'"), many("s.t==s.t2", "&&"), many("s.t<s.t2"), many("s.t.contains('b')"), many("s.t.contains(s.kilo)", "&&"),
    many("s.t2400.contains(s.part1200)"), many("s.kilo.matches('b')"), many("s.t.matches('b')"), many("s.i in s.texts"), many("'x' in s.l1000"), many("s.nan in s.l100"), many("s.l1000==s.l1000", "&&"), many("cidr(s.address,'1.0.0.0/8')"),
    many("cidr(s.a,'1.0.0.0/8')"), many("cidr(s.address,s.a)"), many("within(e.now,'01:00-02:00')"), many("within(e.now,s.a)"), many("e.now.getHours(s.z)==1"), many("age(p.time)>s.d"), many("e.now+s.d<e.now"), many("matchesFilter(s.slashes,'+')"),
    many("s.l100.all(x,x<0)"), many("s.l100.all(x,x>=0)", "&&"), many("s.l1000.exists(x,x<0)"), many("s.nope.all(x,x<0)"), many("string(e.now)==s.a"), many("timestamp(s.z)==e.now"), many("duration(s.z)==s.d"), many("s.t+s.a==s.t"), many("{s.t:1}=={}"), many("union(s.l100,[])==[]"),
    many("s.t in s.keys"), many("s.wide_t in s.long"), many("s.keys[s.t]==1"), many("s.a.matches(s.a)"), many("s.a.matches(s.kilo)"), many("s.flags[true]==2"), "[" + many("s.t+s.a", ",", 100) + "] == []", "[" + many("s.i", ",", 100) + "] == []", "[" + many("[s.i]", ",", 100) + "] == [[1]]",
    "{" + listed(f"s.a+'{n}':1" for n in range(1200))[1:-1] + "} == {}", "s.a in " + listed(f"'{n}'" for n in range(3000)), "s.i in " + listed(str(n + 10) for n in range(3000)), "s.l.all(x, " + many("x==-1", "||", 100) + ")", "s.l.all(x, " + many("s.nope", "||", 100) + ")",
    "cidr(s.address, " + listed(f"'11.{n // 200}.{n % 200}.0/24'" for n in range(1000)) + ")", "s.l.all(x, " + " && ".join(["x >= 0"] * 40) + ")", "s.l" + ".map(x, [x, x])" * 20 + " == []", "s.l1000" + ".filter(x, x >= 0)" * 25 + " == []", "s.l" + ".union([])" * 30 + " == []", "s.t" + "+s.a" * 60 + " == s.t",
    "s.l100.all(a, s.l100.all(b, s.l100.all(c, s.l100.all(d, a + b + c + d >= 0))))", "[1]" + ".map(x, [x, x])" * 40 + " == [1]" + ".map(x, [x, x])" * 40, many("[1].all(x,[1].all(y,s.nope))"), many("(s.b?s.i:s.f)==s.nan"),
    ]  # fmt: skip


def texts(limit: int = 16_384) -> list[str]:
    """All of them that are not longer."""
    return [text for text in (*MACROS, *ABSORBED, *LARGE, *wide(limit)) if len(text) <= limit]


def asked(predicate: Predicate, env: Mapping[str, Any]) -> str:
    """What an evaluation comes to."""
    try:
        return str(predicate(env))
    except PredicateFailed as failed:
        return failed.reason


def main(budget: int, limit: int) -> None:
    """Each adversary's first evaluation, its best of the next three, and partial evaluation, the slowest at the end."""
    env, rows = environment(), []
    gc.disable()
    for text in texts(limit):
        predicate = compile(text, budget=budget, limit=limit)
        spent = []
        for _ in range(4):
            begin = time.thread_time()
            answer = asked(predicate, env)
            spent.append((time.thread_time() - begin) * 1e6)
        begin = time.thread_time()
        predicate.partial({"s": env["s"]})
        folding = (time.thread_time() - begin) * 1e6
        rows.append((min(spent[1:]), spent[0], folding, text[:70], answer[:40]))
    for again, first, folding, text, answer in sorted(rows):
        print(f"{again:9.0f} us  first {first:9.0f} us  partial {folding:9.0f} us  {text:70}  {answer}")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [10_000, 16_384][len(given) :]))
