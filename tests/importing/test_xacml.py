"""XACML, judged by a second reading of its text: see `xacml_oracle`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from generated import examples
from importing.decided import allowed, rules
from importing.xacml_documents import (
    APPENDIX_A,
    FUNCTION,
    MYSTERY,
    NAMESPACE,
    TOPIC_FILTER,
    apply,
    designator,
    match,
    only,
    policy,
    policy_set,
    random_policy,
    rule,
    section,
    target,
    value,
)
from importing.xacml_oracle import permitted
from policy.people import Person
from tidegate.errors import ConfigError
from tidegate.importing import Imported, xacml
from tidegate.importing.xacml.document import MAX_BYTES
from tidegate.importing.xacml.patterns import as_re2

mary = Person(user="mary", roles=("coach", "member"), groups=("g",), attributes={"dept": "x"})
bob = Person(user="bob", roles=("member",), attributes={"dept": "y"})
odd = Person(user="it's", roles=("mary",))
nobody = Person()
PEOPLE = [mary, bob, odd, nobody]
TOPICS = ["a", "a/b", "a/{x}", "b", "mary", "$SYS/x"]
ACTIONS = {"publish": "write", "subscribe": "read"}


def imported(text: str) -> Imported:
    return xacml.read(text, "policy.xml")


def left(text: str) -> list[str]:
    return [one.what for one in imported(text).left]


def may(text: str, who: Person, action: str, topic: str) -> bool:
    return allowed(rules(imported(text)), who, action, topic)


def request(who: Person, topic: str, action: str) -> dict[str, list[str]]:
    return {
        "subject-id": [who.user] if who.user is not None else [],
        "role": list(who.roles),
        "group": list(who.groups),
        "dept": [who.attributes["dept"]] if "dept" in who.attributes else [],
        "resource-id": [topic],
        "action-id": [action],
    }


def subjects(*matches: str) -> str:
    return section("Subject", [list(matches)])


def resources(*matches: str) -> str:
    return section("Resource", [list(matches)])


def actions(*matches: str) -> str:
    return section("Action", [[one] for one in matches])


def first(*parts: str) -> str:
    return policy("p", "first-applicable", *parts)


# -- SEC-REDS, appendix A -------------------------------------------------------------------------------------------


def test_the_example_of_sec_reds() -> None:
    found = imported(APPENDIX_A)
    assert [taken.entry() for taken in found.policies] == [
        {
            "id": "SamplePolicy/FinalRule",
            "subject": "*",
            "topic": "SampleServer",
            "action": ["read", "write"],
            "effect": "deny",
        }
    ]
    assert found.combining == "first-applicable"
    (login,) = found.left
    assert (login.place, login.what) == ("policy.xml:44", "action `login`")
    assert "directory" in login.why


@pytest.mark.parametrize("action", ACTIONS)
def test_the_example_of_sec_reds_decides_as_xacml_does(action: str) -> None:
    plain = re.sub(r"(urn:\S*)\n\s*", r"\1", APPENDIX_A)
    for topic in ("SampleServer", "other"):
        asked = {**request(mary, topic, action), "Server Action": [action]}
        assert may(APPENDIX_A, mary, ACTIONS[action], topic) is permitted(plain, asked, {}) is False


def test_with_actions_of_mqtt_the_example_permits() -> None:
    text = APPENDIX_A.replace("login", "subscribe")
    assert may(text, mary, "read", "SampleServer")
    assert not may(text, mary, "write", "SampleServer")
    assert imported(text).left == ()


def test_as_it_is_printed_the_example_is_no_xml() -> None:
    printed = APPENDIX_A.replace('#string"\n      AttributeId="Server', '#string\n      AttributeId="Server')
    with pytest.raises(ConfigError, match="no well-formed XML") as wrong:
        imported(printed)
    assert wrong.value.line > 40


# -- subjects, topics, actions --------------------------------------------------------------------------------------


def test_what_a_target_becomes() -> None:
    who = section("Subject", [[match("subject-id", "mary")], [match("role", "coach")], [match("group", "g")]])
    what = section("Resource", [[match("resource-id", "a/{x}")], [match("resource-id", "a/#", TOPIC_FILTER)]])
    (one, two) = imported(
        first(rule("r", "Permit", target(who, what, actions(match("action-id", "publish")))))
    ).policies
    assert one.entry() == {
        "id": "p/r",
        "subject": ["user:mary", "role:coach", "group:g"],
        "topic": "a/{{x}}",
        "action": "write",
    }
    assert (two.id, two.topic, two.origin, one.origin) == ("p/r#2", "a/#", "", "line 1: p/r")


def test_several_matches_of_one_subject_are_all_needed() -> None:
    who = subjects(match("subject-id", "mary"), match("role", "coach"), match("dept", "x"))
    (taken,) = imported(first(rule("r", "Permit", target(who)))).policies
    assert (taken.subject, taken.topic) == ("user:mary", "#")
    assert taken.when == "'coach' in s.roles && has(s.dept) && s.dept == 'x'"
    assert imported(first(rule("r", "Permit", target(who)))).notes[0].endswith("give: s.dept.")


def test_nested_targets_are_all_needed() -> None:
    inner = rule("r", "Permit", target(resources(match("resource-id", "+/b", TOPIC_FILTER))))
    text = first(target(resources(match("resource-id", "a/#", TOPIC_FILTER))), inner)
    assert [may(text, mary, "read", topic) for topic in ("a/b", "a/c", "c/b")] == [True, False, False]


def test_a_filter_is_no_topic() -> None:
    text = first(rule("r", "Permit", target(resources(match("resource-id", "a/#")))))
    assert not may(text, mary, "read", "a/b")
    assert left(text) == ["resource `a/#`"]
    assert TOPIC_FILTER in imported(text).left[0].why


def test_what_denies_everything_reaches_dollar_topics() -> None:
    sys = rule("sys", "Permit", target(resources(match("resource-id", "$SYS/#", TOPIC_FILTER))))
    assert not may(first(rule("no", "Deny"), sys), mary, "read", "$SYS/x")
    assert may(first(sys, rule("no", "Deny")), mary, "read", "$SYS/x")
    found = imported(first(rule("yes", "Permit")))
    assert any("`$`" in note for note in found.notes)
    assert not allowed(rules(found), mary, "read", "$SYS/x")


def test_any_uri() -> None:
    uri = "http://www.w3.org/2001/XMLSchema#anyURI"
    same = match("resource-id", "a").replace("string", "anyURI")
    assert uri in same
    assert may(first(rule("r", "Permit", target(resources(same)))), mary, "read", "a")
    mixed = match("resource-id", "a", FUNCTION + "anyURI-equal")
    assert not may(first(rule("r", "Permit", target(resources(mixed)))), mary, "read", "a")
    assert left(first(rule("r", "Permit", target(resources(mixed))))) == ["anyURI-equal with `a`"]


def test_xacml_1_has_its_condition_in_one() -> None:
    outer = apply("string-equal", only("subject-id"), value("mary")).replace("<Apply", "<Condition", 1)
    outer = outer.removesuffix("</Apply>") + "</Condition>"
    text = first(f'<Rule RuleId="r" Effect="Permit">{outer}</Rule>')
    text = text.replace(NAMESPACE, "urn:oasis:names:tc:xacml:1.0:policy")
    assert [may(text, who, "read", "a") for who in PEOPLE] == [True, False, False, False]


# -- what has no equivalent -----------------------------------------------------------------------------------------

mystery = subjects(match("subject-id", "x", MYSTERY))


def test_what_cannot_be_said_denies() -> None:
    may_be = rule("r", "Permit", target(mystery))
    yes = rule("s", "Permit", target(resources(match("resource-id", "a"))))
    overriding = policy("p", "permit-overrides", may_be, yes)
    assert [may(overriding, mary, "read", topic) for topic in ("a", "b")] == [True, False]
    assert not may(first(may_be, yes), mary, "read", "a")  # the first rule may fail, and then the second is not asked
    ignoring = subjects(match("subject-id", "x", FUNCTION + "rfc822Name-match"))  # of the standard: it does not fail
    assert may(first(rule("r", "Permit", target(ignoring)), yes), mary, "read", "a")
    deny = first(rule("r", "Deny", target(ignoring, resources(match("resource-id", "a")))), rule("s", "Permit"))
    assert [may(deny, mary, "read", topic) for topic in ("a", "b")] == [False, True]
    negated = first(rule("r", "Permit", "", apply("not", apply(MYSTERY, value("x")))))
    assert not may(negated, mary, "read", "a")
    assert left(negated) == [f"function {MYSTERY}"]


def test_what_cannot_be_said_is_not_taken_for_something_else_that_cannot() -> None:
    one, other = (subjects(match("subject-id", text, FUNCTION + "rfc822Name-match")) for text in ("x", "y"))
    where = resources(match("resource-id", "a"))
    mixed = first(rule("r", "Permit", target(one, where)), rule("s", "Deny", target(other, where)))
    text = policy_set("s", "deny-overrides", mixed, first(rule("t", "Permit")))
    assert not may(text, mary, "read", "a")


@pytest.mark.parametrize(
    "attribute",
    [
        designator("subject-id", more=' Issuer="somebody"'),
        designator("subject-id", more=' SubjectCategory="urn:oasis:names:tc:xacml:1.0:subject-category:codebase"'),
        designator("subject-id", type="http://www.w3.org/2001/XMLSchema#integer"),
        designator("urn:example:level"),
        designator("urn:example:in"),
        '<AttributeSelector RequestContextPath="//x" DataType="http://www.w3.org/2001/XMLSchema#string"/>',
    ],
)
def test_attributes_that_no_request_has(attribute: str) -> None:
    one = f'<SubjectMatch MatchId="{FUNCTION}string-equal">{value("mary")}{attribute}</SubjectMatch>'
    text = first(rule("r", "Permit", target(subjects(one))))
    assert not may(text, mary, "read", "a")
    assert len(left(text)) == 1


def test_two_attributes_of_one_name_are_not_confused() -> None:
    text = first(
        rule("r", "Permit", target(subjects(match("urn:one:dept", "x")))),
        rule("s", "Permit", target(subjects(match("urn:two:dept", "y")))),
    )
    assert [may(text, who, "read", "a") for who in (mary, bob)] == [True, False]
    assert left(text) == ["attribute `urn:two:dept`"]


def test_references_and_other_algorithms_deny() -> None:
    yes = first(rule("r", "Permit"))
    where = target(resources(match("resource-id", "a")))
    only_one = policy_set("inner", "only-one-applicable", where, yes)
    text = policy_set("s", "first-applicable", only_one, yes)
    assert [may(text, mary, "read", topic) for topic in ("a", "b")] == [False, True]
    assert left(text) == ["algorithm only-one-applicable"]
    text = policy_set("s", "deny-overrides", "<PolicyIdReference>urn:x</PolicyIdReference>", yes)
    assert not may(text, mary, "read", "b")
    assert left(text) == ["reference to `urn:x`"]
    unknown = policy("p", "first-applicable", rule("r", "Permit")).replace("urn:oasis", "urn:example")
    unknown = unknown.replace(NAMESPACE.replace("oasis", "example"), NAMESPACE)
    assert not may(unknown, mary, "read", "b")


def test_nobody_carries_obligations_out() -> None:
    text = policy("p", "first-applicable", rule("r", "Permit"), owed="Permit")
    assert not may(text, mary, "read", "a")
    assert left(text) == ["obligation `log`"]
    yes = first(rule("s", "Permit"))
    assert not may(policy_set("s", "permit-overrides", text, yes), mary, "read", "a")  # the first is what permits
    assert may(policy_set("s", "permit-overrides", yes, text), mary, "read", "a")
    assert not may(policy_set("s", "deny-overrides", yes, text), mary, "read", "a")
    text = policy("p", "first-applicable", rule("r", "Permit"), owed="Deny")
    assert may(text, mary, "read", "a")
    assert left(text) == ["obligation `log`"]


def test_names_that_cannot_be_here() -> None:
    text = first(rule("r", "Permit", target(subjects(match("subject-id", "a@b")))))
    assert left(text) == ["user `a@b`"]
    assert may(text, Person(user="a@b"), "read", "a")
    assert not may(text, Person(user="a", domain="b"), "read", "a")


def test_what_is_too_large_denies() -> None:
    def about(text: str) -> str:
        return target(subjects(match("dept", f"^{text}$", FUNCTION + "string-regexp-match")))

    both = "".join(rule(f"r{n}", ("Permit", "Deny")[n % 2], about(f"d{n}")) for n in range(120))
    text = policy_set("s", "deny-overrides", first(both), first(rule("other", "Permit", about("o"))))
    found = imported(text)
    policies = rules(found)
    assert allowed(policies, Person(attributes={"dept": "d0"}), "read", "a")
    assert not allowed(policies, Person(attributes={"dept": "d1"}), "read", "a")
    assert not allowed(policies, Person(attributes={"dept": "d119"}), "read", "a")
    assert len(found.left) > 10
    mustered = apply("or", *(apply("string-equal", only(f"urn:x:a{n}"), value("v")) for n in range(500)))
    assert not may(first(rule("r", "Permit", "", mustered)), mary, "read", "a")


def test_what_is_too_large_to_be_excepted_is_not_forgotten() -> None:
    """A denial behind those that fill a condition still stands before what is permitted after it."""
    shared = [match("subject-id", f"^[a-z{n}]+$", FUNCTION + "string-regexp-match") for n in range(10)]
    denials = "".join(rule(f"d{n}", "Deny", target(subjects(*shared, match("role", f"bad{n}")))) for n in range(6))
    banned = rule("banned", "Deny", target(subjects(match("role", "banned"))))
    good = rule("ok", "Permit", target(subjects(*shared)))
    text = policy_set(
        "s",
        "permit-overrides",
        first(denials + banned + good),
        first(rule("boss", "Permit", target(subjects(match("role", "boss"))))),
    )
    for role, expected in (("banned", False), ("bad0", False), ("bad5", False), ("boss", True)):
        assert may(text, Person(user="mary", roles=(role,)), "read", "a") is expected, role
    assert any("too much stands before it" in one.why for one in imported(text).left)


def test_ids_are_unique_and_allowed() -> None:
    same = "".join(rule("r", "Permit", target(subjects(match("dept", f"d{n}")))) for n in range(3))
    text = policy("rule:x", "first-applicable", same, rule("r#2", "Permit"), rule("y" * 300, "Deny"))
    ids = [taken.id for taken in imported(text).policies]
    assert ids[:4] == ["xacml-rule:x/r", "xacml-rule:x/r#2", "xacml-rule:x/r#3", "xacml-rule:x/r#2#2"]
    assert len(ids[4]) <= 200


# -- against the oracle ---------------------------------------------------------------------------------------------

many = settings(max_examples=examples(50, 1500), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(random_policy())
def test_it_decides_as_xacml_does(text: str) -> None:
    found = imported(text)
    exact = all(one.what.startswith(("action", "resource", "obligation")) for one in found.left)
    event(f"exact: {exact}")
    policies = rules(found)
    for who in PEOPLE:
        for topic in TOPICS:
            for action, ours in ACTIONS.items():
                theirs = permitted(text, request(who, topic, action), {})
                here = allowed(policies, who, ours, topic)
                assert theirs or not here, (who, topic, action)
                if exact and not topic.startswith("$"):
                    assert here is theirs, (who, topic, action)


@many
@given(random_policy(True), st.fixed_dictionaries({name: st.sampled_from([True, False, None]) for name in "pqr"}))
def test_it_never_allows_more_whatever_has_no_equivalent(text: str, mysteries: dict[str, bool | None]) -> None:
    policies = rules(imported(text))
    for who in PEOPLE:
        for topic in TOPICS:
            for action, ours in ACTIONS.items():
                if allowed(policies, who, ours, topic):
                    assert permitted(text, request(who, topic, action), mysteries), (who, topic, action)


# -- patterns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^a/[a-z]+$", "^a/[a-z]+$"),
        (r"\d{2,}\s\w", r"\p{Nd}{2,}[ \t\n\r][^\p{P}\p{Z}\p{C}]"),
        (r"[\d\s]\.", r"[\p{Nd} \t\n\r]\."),
        (r"\p{Lu}\P{L}", r"\p{Lu}\P{L}"),
        (r"[\w]", None),
        (r"\i\c", None),
        (r"\p{IsBasicLatin}", None),
        (r"[a-z-[aeiou]]", None),
        (r"(?i)a", None),
        (r"a{,3}", None),
        (r"(a)\1", None),
        ("[]a]", None),
        ("[a", None),
        ("a]", None),
        ("a\\", None),
        (r"\bx", None),
    ],
)
def test_patterns(pattern: str, expected: str | None) -> None:
    assert as_re2(pattern) == expected


def test_a_pattern_that_cannot_be_said_denies() -> None:
    one = match("resource-id", "(a)\\1", FUNCTION + "string-regexp-match")
    assert not may(first(rule("r", "Deny", target(resources(one))), rule("s", "Permit")), mary, "read", "b")


# -- XML from strangers ---------------------------------------------------------------------------------------------

YES = first(rule("r", "Permit"))


def test_no_file_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mary")
    inside = YES.replace("<Rule", "<Description>&x;</Description><Rule", 1)
    text = f'<!DOCTYPE Policy [<!ENTITY x SYSTEM "file://{secret}">]>\n{inside}'
    with pytest.raises(ConfigError, match="document type declaration") as wrong:
        imported(text)
    assert wrong.value.line == 1


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE Policy SYSTEM "http://127.0.0.1:9/x.dtd">',
        '<!DOCTYPE Policy PUBLIC "-//X//Y" "http://127.0.0.1:9/x.dtd">',
        "<!DOCTYPE Policy>",
        '<!DOCTYPE Policy [<!ENTITY % p SYSTEM "http://127.0.0.1:9/"> %p;]>',
        '<!DOCTYPE Policy [<!ATTLIST Rule Effect CDATA "Permit">]>',
    ],
)
def test_no_document_type(doctype: str) -> None:
    with pytest.raises(ConfigError, match="document type declaration"):
        imported(doctype + YES)


def test_no_entity_bomb() -> None:
    entities = '<!ENTITY e0 "lol">' + "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    with pytest.raises(ConfigError, match="document type declaration"):
        imported(f"<!DOCTYPE Policy [{entities}]>{YES.replace('r', '&e11;', 1)}")
    with pytest.raises(ConfigError, match="no well-formed XML: undefined entity"):
        imported(YES.replace("<Rule", "<Description>&e11;</Description><Rule", 1))


def test_no_hundred_megabytes() -> None:
    with pytest.raises(ConfigError, match="larger than 8 MiB"):
        imported(YES.replace("<Rule", "<Description>" + "x" * (100 << 20) + "</Description><Rule", 1))
    with pytest.raises(ConfigError, match="elements"):
        imported(YES.replace("<Rule", "<Description>" + "<a/>" * 300_000 + "</Description><Rule", 1))
    assert MAX_BYTES == 8 << 20


def test_no_deep_nesting() -> None:
    with pytest.raises(ConfigError, match="nested more than 60 deep"):
        imported("<Policy>" * 100_000)
    text = YES
    for _ in range(25):
        text = policy_set("s", "first-applicable", text)
    with pytest.raises(ConfigError, match="nested more than 20 deep"):
        imported(text)
    inner = value("true", "http://www.w3.org/2001/XMLSchema#boolean")
    for _ in range(50):
        inner = apply("not", inner)
    assert may(first(rule("r", "Permit", "", inner)), mary, "read", "a")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no well-formed XML"),
        ("hello", "no well-formed XML"),
        ("<Request/>", "is no policy"),
        ("<a xmlns='urn:oasis:names:tc:xacml:3.0:core:schema:wd-17'/>", "save the policy in XACML 2.0"),
        ("<Policy/>", "has no `PolicyId`"),
        ("<Policy PolicyId='p'/>", "has no `RuleCombiningAlgId`"),
        (YES.replace("Permit", "permit"), "has no `Effect`"),
        (first("<Rules/>"), "is no part of a policy"),
        (first('<Rule RuleId="r" Effect="Permit"><Conditions/></Rule>'), "is no part of a rule"),
        (first(rule("r", "Permit", "<Target><Subject/></Target>")), "is no part of a target"),
        (first(rule("r", "Permit", "<Target><Subjects><Resource/></Subjects></Target>")), "is no part of `<Subjects>`"),
        (first(rule("r", "Permit", "<Target><Subjects><Subject><x/></Subject></Subjects></Target>")), "<SubjectMatch>"),
        (first(rule("r", "Permit", target(subjects("<SubjectMatch MatchId='x'/>")))), "write both"),
        (first(rule("r", "Permit", "", "<Apply/>")), "has no `FunctionId`"),
        (first(rule("r", "Permit", "<Target/><Target/>")), "stands twice"),
        (policy_set("s", "first-applicable", "<Rule/>"), "is no part of a policy set"),
        ("\ud800", "UTF-8"),
    ],
)
def test_what_is_wrong_is_told(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as wrong:
        imported(text)
    assert wrong.value.file == "policy.xml"


def test_white_space_and_encodings() -> None:
    text = '<?xml version="1.0" encoding="ISO-8859-1"?>' + first(
        rule("r", "Permit", target(subjects(match("subject-id", "\n  jürgen &amp; <x>\n".replace("&amp;", "&")))))
    )
    assert may(text, Person(user="jürgen & <x>"), "read", "a")
