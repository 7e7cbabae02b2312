"""XACML documents for tests: written by hand from short words, or at random."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from hypothesis import strategies as st

NAMESPACE = "urn:oasis:names:tc:xacml:2.0:policy:schema:os"
FUNCTION = "urn:oasis:names:tc:xacml:1.0:function:"
STRING = "http://www.w3.org/2001/XMLSchema#string"
TOPIC_FILTER = "urn:tidegate:xacml:function:topic-filter-match"
MYSTERY = "urn:example:function:mystery"
IDS = {
    "subject-id": "urn:oasis:names:tc:xacml:1.0:subject:subject-id",
    "role": "urn:oasis:names:tc:xacml:2.0:subject:role",
    "group": "urn:example:group",
    "dept": "urn:example:attributes:dept",
    "resource-id": "urn:oasis:names:tc:xacml:1.0:resource:resource-id",
    "action-id": "urn:oasis:names:tc:xacml:1.0:action:action-id",
}
SORTS = {"resource-id": "Resource", "action-id": "Action"}

APPENDIX_A = """<Policy PolicyId="SamplePolicy"
RuleCombiningAlgId=
"urn:oasis:names:tc:xacml:1.0:
rule-combining-algorithm:first-applicable">
<Target>
  <Subjects>
    <AnySubject/>
  </Subjects>
  <Resources>
    <Resource>
      <ResourceMatch
        MatchId=
        "urn:oasis:names:tc:xacml:1.0:
        function:string-equal">
        <AttributeValue
          DataType=
          "http://www.w3.org/2001/XMLSchema#string">
        SampleServer
    </AttributeValue>
    <ResourceAttributeDesignator
        DataType=
        "http://www.w3.org/2001/XMLSchema#string"
        AttributeId=
        "urn:oasis:names:tc:xacml:1.0:
        resource:resource-id"/>
    </ResourceMatch>
</Resource>
</Resources>
<Actions>
    <AnyAction/>
</Actions>
</Target>
<Rule
    RuleId="LoginRule" Effect="Permit">
    <Target>
        <Subjects>
            <AnySubject/>
        </Subjects>
        <Resources>
            <AnyResource/>
        </Resources>
<Actions>
  <Action>
    <ActionMatch
      MatchId=
        "urn:oasis:names:tc:xacml:1.0:
        function:string-equal">
    <AttributeValue
      DataType=
        "http://www.w3.org/2001/XMLSchema#string">
      login
    </AttributeValue>
    <ActionAttributeDesignator
      DataType=
        "http://www.w3.org/2001/XMLSchema#string"
      AttributeId="Server Action"/>
    </ActionMatch>
  </Action>
</Actions>
</Target>
</Rule>
<Rule RuleId="FinalRule" Effect="Deny" />
</Policy>
"""
"""SEC-REDS, appendix A.2, letter by letter but for a quotation mark that is missing there after the last DataType."""


# -- by hand -----------------------------------------------------------------------------------------------------


def value(text: str, type: str = STRING) -> str:
    return f"<AttributeValue DataType={quoteattr(type)}>{escape(text)}</AttributeValue>"


def designator(name: str, must: bool = False, type: str = STRING, more: str = "") -> str:
    present = ' MustBePresent="true"' if must else ""
    id = quoteattr(IDS.get(name, name))
    return (
        f"<{SORTS.get(name, 'Subject')}AttributeDesignator AttributeId={id} DataType={quoteattr(type)}{present}{more}/>"
    )


def match(name: str, text: str, function: str = FUNCTION + "string-equal", must: bool = False) -> str:
    sort = SORTS.get(name, "Subject")
    return f"<{sort}Match MatchId={quoteattr(function)}>{value(text)}{designator(name, must)}</{sort}Match>"


def section(sort: str, members: list[list[str]]) -> str:
    inner = "".join(f"<{sort}>{''.join(matches)}</{sort}>" for matches in members)
    return f"<{sort}s>{inner}</{sort}s>"


def target(*sections: str) -> str:
    return f"<Target>{''.join(sections)}</Target>" if sections else "<Target/>"


def apply(function: str, *arguments: str) -> str:
    id = function if function.startswith("urn:") else FUNCTION + function
    return f"<Apply FunctionId={quoteattr(id)}>{''.join(arguments)}</Apply>"


def only(name: str, must: bool = False) -> str:
    return apply("string-one-and-only", designator(name, must))


def rule(id: str, effect: str, target: str = "", condition: str = "") -> str:
    inner = f"<Condition>{condition}</Condition>" if condition else ""
    return f'<Rule RuleId={quoteattr(id)} Effect="{effect}">{target}{inner}</Rule>'


def policy(id: str, algorithm: str, *parts: str, owed: str = "") -> str:
    algorithm = f"urn:oasis:names:tc:xacml:1.0:rule-combining-algorithm:{algorithm}"
    return (
        f'<Policy xmlns="{NAMESPACE}" PolicyId={quoteattr(id)} RuleCombiningAlgId="{algorithm}">'
        f"{''.join(parts)}{obligation(owed)}</Policy>"
    )


def policy_set(id: str, algorithm: str, *parts: str, owed: str = "") -> str:
    algorithm = f"urn:oasis:names:tc:xacml:1.0:policy-combining-algorithm:{algorithm}"
    return (
        f'<PolicySet xmlns="{NAMESPACE}" PolicySetId={quoteattr(id)} PolicyCombiningAlgId="{algorithm}">'
        f"{''.join(parts)}{obligation(owed)}</PolicySet>"
    )


def obligation(on: str) -> str:
    return f'<Obligations><Obligation ObligationId="log" FulfillOn="{on}"/></Obligations>' if on else ""


# -- at random ---------------------------------------------------------------------------------------------------

VALUES = {
    "subject-id": ["mary", "bob", "it's"],
    "role": ["coach", "member"],
    "group": ["g"],
    "dept": ["x", "y"],
    "resource-id": ["a", "a/b", "a/{x}", "$SYS/x", "a/#"],
    "action-id": ["publish", "write", "subscribe", "read", "login"],
}
SUBJECTS = ["subject-id", "role", "group", "dept"]
must = st.sampled_from([False, False, False, True])


@st.composite
def random_match(draw: st.DrawFn, names: list[str], mysterious: bool) -> str:
    name = draw(st.sampled_from(names))
    if mysterious and draw(st.integers(0, 5)) == 0:
        return match(name, draw(st.sampled_from("pqr")), MYSTERY)
    if name == "resource-id" and draw(st.booleans()):
        return match(name, draw(st.sampled_from(["a/#", "a/+", "#", "+/b", "$SYS/#"])), TOPIC_FILTER, draw(must))
    if name != "action-id" and draw(st.integers(0, 3)) == 0:
        pattern = draw(st.sampled_from(["^a", "b$", "^[mx]", "a/?b?$"]))
        return match(name, pattern, FUNCTION + "string-regexp-match", draw(must))
    return match(name, draw(st.sampled_from(VALUES[name])), must=draw(must))


@st.composite
def random_target(draw: st.DrawFn, mysterious: bool) -> str:
    sections = []
    for sort, names in (("Subject", SUBJECTS), ("Resource", ["resource-id"]), ("Action", ["action-id"])):
        kind = draw(st.integers(0, 3))
        if kind == 1:
            sections.append(f"<{sort}s><Any{sort}/></{sort}s>")
        elif kind > 1:
            matches = st.lists(random_match(names, mysterious), min_size=1, max_size=2)
            sections.append(section(sort, draw(st.lists(matches, min_size=1, max_size=2))))
    return target(*sections)


@st.composite
def random_condition(draw: st.DrawFn, mysterious: bool, depth: int = 3) -> str:
    kinds = [0, 1, 2, 3, 4, 5, 6, 7] if depth else [0, 1, 2, 3, 4]
    kind = draw(st.sampled_from([3, 3, *kinds, 3, *(5 for _ in kinds[5:])] if mysterious else kinds))
    name = draw(st.sampled_from([*VALUES]))
    text = value(draw(st.sampled_from(VALUES[name])))
    inner = random_condition(mysterious, depth - 1)
    match kind:
        case 0:
            return apply("string-equal", only(name, draw(must)), text)
        case 1:
            return apply("string-is-in", text, designator(name, draw(must)))
        case 2:
            bag = apply("string-bag", *(value(one) for one in VALUES[name][:2]))
            return apply("string-is-in", only(name), bag)
        case 3:
            if mysterious:
                return apply(MYSTERY, value(draw(st.sampled_from("pqr"))))
            return apply(
                "string-equal", only("subject-id"), only(draw(st.sampled_from(["role", "dept", "resource-id"])))
            )
        case 4:
            if name == "action-id":
                return value(draw(st.sampled_from(["true", "false"])), "http://www.w3.org/2001/XMLSchema#boolean")
            return apply("string-regexp-match", value("^[am]"), only(name))
        case 5:
            return apply("not", draw(inner))
        case _:
            return apply("and" if kind == 6 else "or", *draw(st.lists(inner, max_size=3)))


ALGORITHMS = ["first-applicable", "deny-overrides", "permit-overrides", "ordered-deny-overrides"]


@st.composite
def random_policy(draw: st.DrawFn, mysterious: bool = False, depth: int = 2) -> str:
    """A policy, or a set of some."""
    nested = depth > 0 and draw(st.integers(0, 2)) > 0
    optional = st.just("") | random_target(mysterious)
    owed = draw(st.sampled_from(["", "", "", "", "Permit", "Deny"]))
    if nested:
        children = draw(st.lists(random_policy(mysterious, depth - 1), max_size=3))
        algorithms = [*ALGORITHMS, "only-one-applicable"] if mysterious else ALGORITHMS
        return policy_set(f"s{depth}", draw(st.sampled_from(algorithms)), draw(optional), *children, owed=owed)
    rules = [
        rule(
            f"r{number}",
            draw(st.sampled_from(["Permit", "Deny"])),
            draw(optional),
            draw(st.just("") | random_condition(mysterious)),
        )
        for number in range(draw(st.integers(0, 4)))
    ]
    return policy(f"p{depth}", draw(st.sampled_from(ALGORITHMS)), draw(optional), *rules, owed=owed)
