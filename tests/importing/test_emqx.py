"""EMQX's `acl.conf`. EMQX is no Debian package, so its rules are judged by a second reading of its sources, below."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generated import examples
from importing.decided import allowed, rules
from policy.people import Person
from tidegate.errors import ConfigError
from tidegate.importing import Imported, emqx
from tidegate.importing.erlang import MAX_TEXT

DEFAULT = """
%%-------------- the file that EMQX comes with ------------
{allow, {username, {re, "^dashboard$"}}, subscribe, ["$SYS/#"]}.

{allow, {ipaddr, "127.0.0.1"}, all, ["$SYS/#", "#"]}.

{deny, all, subscribe, ["$SYS/#", {eq, "#"}, {eq, "+/#"}]}.

{allow, all}.
%% NOTE: end
"""

remote = Person(user="mary", client="tr1", address="192.0.2.7")
local = Person(user="bob", client="b1", address="127.0.0.1")
dashboard = Person(user="dashboard", client="d", address="192.0.2.8")
nobody = Person(client="n", address="192.0.2.9")


def imported(text: str) -> Imported:
    return emqx.read(text, "acl.conf")


def left(text: str) -> list[tuple[str, str]]:
    return [(one.place, one.what) for one in imported(text).left]


def may(text: str, who: Person, action: str, topic: str, **message: Any) -> bool:
    return allowed(rules(imported(text)), who, action, topic, **message)


# -- by hand -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "action", "topic", "expected"),
    [
        (dashboard, "read", "$SYS/x", True),
        (remote, "read", "$SYS/x", False),
        (local, "read", "$SYS/x", True),
        (local, "write", "$SYS/x", True),
        (remote, "read", "a/b", True),
        (nobody, "write", "a", True),
    ],
)
def test_the_file_that_emqx_comes_with(who: Person, action: str, topic: str, expected: bool) -> None:
    assert may(DEFAULT, who, action, topic) is expected


def test_what_the_file_that_emqx_comes_with_leaves() -> None:
    assert left(DEFAULT) == [("acl.conf:7", '`{eq, "#"}`'), ("acl.conf:7", '`{eq, "+/#"}`')]
    assert not any("no_match" in note for note in imported(DEFAULT).notes)


def test_without_a_last_rule_for_everything_it_says_so() -> None:
    found = imported('{allow, {user, "mary"}, all, ["#"]}.')
    assert any("no_match" in note for note in found.notes)
    assert not allowed(rules(found), nobody, "read", "a")
    for last in ("{allow, all}.", "{deny, all}.", '{deny, all, all, ["a", "#"]}.', '{deny, all, pubsub, ["#"]}.'):
        assert not any("no_match" in note for note in imported(last).notes)
    assert any("no_match" in note for note in imported("% nothing\n").notes)


def test_and_or_networks() -> None:
    text = """{allow, {'and', [{user, "mary"}, {ipaddrs, ["192.0.2.0/24", "2001:db8::/32"]}]}, publish, ["a"]}.
    {allow, {'or', [{clientid, <<"b1">>}, {client, {re, "^d"}}]}, publish, ["b"]}."""
    assert may(text, remote, "write", "a")
    assert not may(text, Person(user="mary", address="198.51.100.1"), "write", "a")
    assert may(text, Person(user="mary", address="2001:db8::1"), "write", "a")
    assert not may(text, Person(user="mary", address=""), "write", "a")
    assert [may(text, who, "write", "b") for who in (remote, local, dashboard)] == [False, True, True]
    assert not may(text, remote, "read", "a")
    # host bits are ignored, as EMQX does
    assert may('{allow, {ipaddr, "192.0.2.99/24"}, all, ["a"]}.', remote, "read", "a")


def test_qos_and_retain_of_a_publish() -> None:
    text = '{allow, all, {publish, [{qos, [0, 1]}, {retain, false}]}, ["a"]}.'
    assert may(text, remote, "write", "a", qos=1)
    assert not may(text, remote, "write", "a", qos=2)
    assert not may(text, remote, "write", "a", retain=True)
    assert imported(text).left == ()


def test_qos_of_a_subscription_has_no_equivalent() -> None:
    text = '{deny, {user, "bob"}, {subscribe, [{qos, 2}]}, ["a"]}.\n{allow, all, {all, [{qos, 0}]}, ["a"]}.'
    assert left(text) == [("acl.conf:1", "`qos` of a subscription"), ("acl.conf:2", "`qos` of a subscription")]
    assert not may(text, remote, "read", "a")
    assert may(text, remote, "write", "a", qos=0)
    text = '{deny, {user, "bob"}, {subscribe, [{qos, 2}]}, ["a"]}.\n{allow, all}.'
    assert [may(text, who, "read", "a") for who in (remote, local)] == [True, False]
    assert left('{allow, all, {subscribe, [{qos, [0, 1]}, {qos, 2}]}, ["a"]}.') == []


def test_placeholders() -> None:
    text = '{allow, all, all, ["u/%u/x", "c/${clientid}-in/#", "%c", "a-%u", "{x}", "${$}/x"]}.'
    topics = ["u/mary/x", "u/bob/x", "c/tr1-in/x/y", "tr1", "a-mary", "a-%u", "{x}", "$/x", "${$}/x"]
    assert [may(text, remote, "read", topic) for topic in topics] == [
        True, False, True, True, False, True, True, True, False,
    ]  # fmt: skip
    assert not may(text, nobody, "read", "u//x")
    assert not may(text, Person(user="+"), "read", "u/bob/x")


def test_a_placeholder_in_what_is_denied_lets_no_odd_name_through() -> None:
    text = '{deny, all, publish, ["p/${username}/x"]}.\n{allow, all}.'
    assert not may(text, remote, "write", "p/mary/x")
    assert may(text, remote, "write", "p/bob/x")
    for odd in (Person(user="a/b"), Person(user="+"), Person(user=""), nobody):
        assert not may(text, odd, "write", "p/a/b/x")
    assert may(text, nobody, "read", "p/a/b/x")
    assert [place for place, _ in left(text)] == ["acl.conf:1"]


def test_other_placeholders_have_no_equivalent() -> None:
    text = '{deny, all, publish, ["p/${cert_common_name}/x"]}.\n{allow, all, publish, ["z/${zone}", "p/y", "q"]}.'
    assert [place for place, _ in left(text)] == ["acl.conf:1", "acl.conf:2"]
    assert [may(text, remote, "write", topic) for topic in ("p/y", "q", "z/1")] == [False, True, False]


def test_exact_topics() -> None:
    text = '{allow, all, publish, [{eq, "a/%u"}, "eq b", {eq, "c/#"}]}.'
    assert [may(text, remote, "write", topic) for topic in ("a/%u", "a/mary", "b", "c/d")] == [True, False, True, False]
    assert left(text) == []  # nobody publishes to a filter
    assert left(text.replace("publish", "all")) == [("acl.conf:1", '`{eq, "c/#"}`')]


def test_what_denies_reaches_dollar_topics_and_what_allows_does_not() -> None:
    text = '{deny, {user, "bob"}, all, ["#"]}.\n{deny, all, all, ["+/x"]}.\n{allow, all, all, ["$SYS/#", "#"]}.'
    assert not may(text, local, "read", "$SYS/y")
    assert not may(text, remote, "read", "$SYS/x")
    assert may(text, remote, "read", "$SYS/y")
    assert not may(text, remote, "read", "$other")


def test_patterns_that_re2_does_not_have() -> None:
    text = (
        '{deny, {user, {re, "^(?!bob)"}}, all, ["a"]}.\n{allow, {user, {re, "(.)\\\\1"}}, all, ["a"]}.\n{allow, all}.'
    )
    assert [place for place, _ in left(text)] == ["acl.conf:1", "acl.conf:2"]
    assert not may(text, local, "read", "a")
    assert may(text, local, "read", "b")


def test_conditions_of_later_versions() -> None:
    text = '{deny, {zone, "z"}, all, ["a"]}.\n{allow, {client_attr, "x", "y"}, all, ["b"]}.\n{allow, all, all, ["a"]}.'
    assert left(text) == [("acl.conf:1", "`zone`"), ("acl.conf:2", "`client_attr`")]
    assert not may(text, remote, "read", "a")
    assert not may(text, remote, "read", "b")


def test_names_that_cannot_be_here() -> None:
    text = '{allow, {user, "a@b"}, all, ["a"]}.\n{deny, {clientid, " x"}, all, ["b"]}.\n{allow, all, all, ["b"]}.'
    assert [place for place, _ in left(text)] == ["acl.conf:1", "acl.conf:2"]
    assert may(text, Person(user="a@b"), "read", "a")
    assert not may(text, Person(user="a", domain="b"), "read", "a")
    assert not may(text, Person(client=" x"), "read", "b")


def test_filters_that_are_none() -> None:
    assert left('{deny, all, all, ["a/#/b", "", "$share/g/a"]}.') == [
        ("acl.conf:1", '"a/#/b"'), ("acl.conf:1", '""'), ("acl.conf:1", '"$share/g/a"'),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("{allow, all}.\n{allow, all", 2, "ends inside a rule"),
        ("{allow, all}", 1, "ends inside a rule"),
        ("{allow, all} {deny, all}.", 1, "`.` is missing"),
        ('{allow, all, all ["a"]}.', 1, "`,` is missing"),
        ("\n\n{permit, all}.", 3, "is no rule"),
        ('{allow, everybody, all, ["a"]}.', 1, "does not say who"),
        ('{allow, {user, 5}, all, ["a"]}.', 1, "does not say who"),
        ('{allow, {ipaddr, "1.2.3"}, all, ["a"]}.', 1, "no network"),
        ('{allow, all, read, ["a"]}.', 1, "is no action"),
        ('{allow, all, {publish, [{qos, 3}]}, ["a"]}.', 1, "is no option"),
        ('{allow, all, {publish, [{qos, [0, x]}]}, ["a"]}.', 1, "`qos` other than"),
        ("{allow, all, all, [a]}.", 1, "is no topic"),
        ('{allow, all, all, ["a}.', 1, "is no part of a rule"),
        ("{allow, X}.", 1, "is no part of a rule"),
        ('{allow, all, all, ["\\x{110000}"]}.', 1, "is no character"),
        ("[" * 1000, 1, "nested more than"),
        ("-" + "9" * 5000 + ".", 1, "is no value"),
        (">>.", 1, "is no value"),
        ("<<a>>.", 1, "is no text"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as wrong:
        imported(text)
    assert (wrong.value.file, wrong.value.line) == ("acl.conf", line)


def test_too_much_is_refused() -> None:
    with pytest.raises(ConfigError, match="split it"):
        imported(" " * (MAX_TEXT + 1))
    with pytest.raises(ConfigError, match="split it"):
        imported("{deny, all}.\n" * (emqx.MAX_RULES + 1))


def test_a_who_that_is_too_large_denies() -> None:
    who = ", ".join(f'{{\'and\', [{{user, "u{n}"}}, {{clientid, "c{n}"}}]}}' for n in range(2000))
    text = f"{{EFFECT, {{'or', [{who}]}}, all, [\"a\"]}}.\n{{allow, all}}."
    assert not may(text.replace("EFFECT", "deny"), remote, "read", "a")
    assert len(left(text.replace("EFFECT", "deny"))) == 2
    assert not may(
        text.replace("EFFECT", "allow").replace("{allow, all}.", ""), Person(user="u1", client="c1"), "read", "a"
    )


def test_escapes_of_strings() -> None:
    text = r"""{allow, {user, "a\x41\x{e9}\101\s\"'\\"}, all, ["x"]}."""
    assert imported(text).policies[0].subject == "user:aAéA \"'\\"


# -- against an independent reading of EMQX -----------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A rule as values: how it is written, and what emqx_authz_rule and emqx_topic make of it."""

    effect: str
    who: Any
    action: str
    qos: tuple[int, ...] | None
    retain: bool | None
    topics: tuple[Any, ...]

    def text(self) -> str:
        options = [f"{{qos, [{', '.join(map(str, self.qos))}]}}"] if self.qos is not None else []
        options += [f"{{retain, {str(self.retain).lower()}}}"] if self.retain is not None else []
        action = f"{{{self.action}, [{', '.join(options)}]}}" if options else self.action
        topics = ", ".join(f'{{eq, "{one[1]}"}}' if isinstance(one, tuple) else f'"{one}"' for one in self.topics)
        return f"{{{self.effect}, {term(self.who)}, {action},\n  [{topics}]}}.  % a rule\n"

    @property
    def exact(self) -> bool:
        """Whether there is an equivalent of all of it."""
        subscribing = self.qos is not None and set(self.qos) != {0, 1, 2} and self.action != "publish"
        return not subscribing and not any("$" in str(one) and self.effect == "deny" for one in self.topics)


def term(who: Any) -> str:
    match who:
        case str():
            return who
        case (("and" | "or") as name, items):
            return f"{{'{name}', [{', '.join(map(term, items))}]}}"
        case ("ipaddrs", items):
            return "{ipaddrs, [" + ", ".join(f'"{item}"' for item in items) + "]}"
        case (name, ("re", pattern)):
            return f'{{{name}, {{re, "{pattern}"}}}}'
        case (name, value):
            return f'{{{name}, "{value}"}}'
    raise AssertionError(who)


def who_fits(who: Any, client: Person) -> bool:
    match who:
        case "all":
            return True
        case ("and", items):
            return all(who_fits(item, client) for item in items)
        case ("or", items):
            return any(who_fits(item, client) for item in items)
        case ("ipaddr", network):
            return who_fits(("ipaddrs", [network]), client)
        case ("ipaddrs", networks):
            return any(ipaddress.ip_address(client.address) in ipaddress.ip_network(one) for one in networks)
        case (name, wanted):
            value = client.user if name in ("user", "username") else client.client
            if value is None:
                return False
            return re.search(wanted[1], value) is not None if isinstance(wanted, tuple) else value == wanted
    raise AssertionError(who)


def topic_fits(wanted: Any, client: Person, topic: str) -> bool:
    if isinstance(wanted, tuple):
        return bool(wanted[1] == topic)
    filled = wanted.replace("${clientid}", client.client).replace("${username}", client.user or "undefined")
    return words_fit(topic.split("/"), filled.split("/"))


def words_fit(topic: list[str], wanted: list[str]) -> bool:
    """emqx_topic:match/2 on words: `$` means nothing."""
    if wanted == ["#"]:
        return True
    if not topic or not wanted:
        return topic == wanted
    return wanted[0] in ("+", topic[0]) and words_fit(topic[1:], wanted[1:])


def judged(acl: list[Rule], client: Person, action: str, topic: str, qos: int, retain: bool) -> bool:
    for rule in acl:
        if rule.action not in (action, "all"):
            continue
        if rule.qos is not None and qos not in rule.qos:
            continue
        if action == "publish" and rule.retain is not None and rule.retain is not retain:
            continue
        if who_fits(rule.who, client) and any(topic_fits(one, client, topic) for one in rule.topics):
            return rule.effect == "allow"
    return False


names = st.sampled_from(["mary", "bob", "tr1", "b1"])
patterns = st.sampled_from(["^m", "b", "1$", "^(mary|tr1)$", "[a-c]", "^.{3}$"])
networks = st.sampled_from(["127.0.0.1", "192.0.2.0/24", "192.0.2.7/32", "2001:db8::/32"])
simple = st.one_of(
    st.just("all"),
    st.tuples(st.sampled_from(["user", "username", "client", "clientid"]), names),
    st.tuples(st.sampled_from(["user", "username", "client", "clientid"]), st.tuples(st.just("re"), patterns)),
    st.tuples(st.just("ipaddr"), networks),
    st.tuples(st.just("ipaddrs"), st.lists(networks, max_size=2)),
)
anybody = st.recursive(
    simple, lambda inner: st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, max_size=3)), max_leaves=4
)
filters = st.one_of(
    st.sampled_from(["a", "a/b", "a/#", "+/b", "#", "+", "a/+/c", "/a", "$SYS/#", "$SYS/x"]),
    st.sampled_from(["a/${username}", "${clientid}/b", "${username}/#", "a/x${clientid}"]),
    st.tuples(st.just("eq"), st.sampled_from(["a", "a/b", "a/#", "#"])),
)
acls = st.lists(
    st.builds(
        Rule,
        effect=st.sampled_from(["allow", "deny"]),
        who=anybody,
        action=st.sampled_from(["publish", "subscribe", "all"]),
        qos=st.none() | st.lists(st.integers(0, 2), max_size=3).map(tuple),
        retain=st.none() | st.booleans(),
        topics=st.lists(filters, max_size=3).map(tuple),
    ),
    max_size=5,
)
PLAIN_TOPICS = ["a", "a/b", "a/b/c", "a/mary", "a/xtr1", "b1/b", "mary/z", "/a", "z", "a/undefined"]
CLIENTS = [remote, local, nobody, Person(user="bob", client="tr1", address="2001:db8::1")]


@settings(max_examples=examples(80, 2000), deadline=None)
@given(acls)
def test_it_decides_as_emqx_does(acl: list[Rule]) -> None:
    found = imported("".join(map(Rule.text, acl)))
    policies = rules(found)
    exact = all(rule.exact for rule in acl)
    if exact:
        assert all("eq" in one.what for one in found.left)
    for client in CLIENTS:
        for topic in [*PLAIN_TOPICS, "$SYS/x", "$SYS", "$z"]:
            for action, ours in (("publish", "write"), ("subscribe", "read")):
                for qos, retain in ((0, False), (2, True)):
                    theirs = judged(acl, client, action, topic, qos, retain)
                    here = allowed(policies, client, ours, topic, qos=qos, retain=retain)
                    assert theirs or not here, (client, action, topic)
                    if exact and topic[0] != "$" and not (client.user is None and topic == "a/undefined"):
                        assert here is theirs, (client, action, topic)


@given(st.text(alphabet="{}[]<>\"'%.,\\allow deny/eq#+${}usrm01\n", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ConfigError):
        rules(imported(text))
