"""Owners' preferences in the gate: of this domain's people, and of others' by the sets that have come from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.worlds import ABOUT_CLOCK, ABOUT_MESSAGE, ABOUT_PUBLISHER, ABOUT_SUBJECT, FAILING, FILTERS, TOPICS, conditions
from policy.written import preference_of
from tidegate.gate import Allow, Deny, Known, RuleSet, Step
from tidegate.gate.attributes import Attributes
from tidegate.gate.key_groups import Protection
from tidegate.gate.stages.order import StageSet
from tidegate.gate.stages.read_preferences import (
    UNKNOWN_OWNER,
    ForwardingPreferenceStage,
    OwnerPreferences,
    PreferenceStage,
)
from tidegate.gate.verdict import ALLOW, Residual
from tidegate.policy import Preferences, Subject
from tidegate.policy.domains import Domain
from tidegate.policy.preference_sets import ForeignPreferences, Key, OwnerSet, PreferenceSet, read, set_of
from tidegate.session import Context, Link, Message, Origin

HOME, HERE = "mygymbrand", "remotegym"


class Clock:
    wall = steady = 1_774_733_400.0


class KnownSets:
    """The sets that have come here."""

    def __init__(self, *sets: PreferenceSet, named: Callable[[str], str] = str) -> None:
        self.sets = ForeignPreferences()
        self.revision = 0
        self.named = named
        for each in sets:
            self.sets.offer(each, "a", frozenset({HERE}))

    def of(self, owner: Key, number: int) -> OwnerSet | None:
        found = self.sets.find(owner, number)
        return None if found is None else OwnerSet(found, found.understood(named=self.named))


def subject(user: str | None, domain: str, **fields: Any) -> Subject:
    fields.setdefault("kind", "client")
    return Subject(client=f"{user}-1", user=user, domain=domain, scope="gym", node="n", **fields)


mary = subject("mary", HOME, identity="m1", roles=("runner",), level="tls")


def preferences(*texts: str | None, **fields: Any) -> Preferences:
    return Preferences(
        [preference_of(id=f"u{n}", user="mary", topic="#", when=text, **fields) for n, text in enumerate(texts)],
        domain=HOME,
    )


def travelled(preferences: Preferences, number: int = 5, **fields: Any) -> PreferenceSet:
    return read(set_of(preferences, "mary", "m1", number=number, **fields).encode())


def stage(
    *sets: PreferenceSet, kind: type[PreferenceStage] = PreferenceStage, named: Callable[[str], str] = str
) -> PreferenceStage:
    rules = RuleSet(domain=HERE, formerly=frozenset({"oldgym"}))
    return kind(OwnerPreferences(rules, KnownSets(*sets, named=named)), Attributes(rules, Clock()))


def known(
    publisher: Subject, reader: Subject, *, topic: str = "a/b", foreign: tuple[str, int] | None = ("m1", 5)
) -> Known:
    context = Context(subject=publisher, foreign=foreign)
    return Known(topic=topic, context=context, link="c", now=Clock.wall, target=Link(reader, False, "c"))


def answered(stage: PreferenceStage, known: Known) -> Allow | Deny:
    answer = stage.evaluate(known)
    if isinstance(answer, Residual):
        context = known.context.encode()
        answer = answer.decide(Message(known.topic, b"{}", 0, False, Clock.wall, Origin("", 0), 0, context, "c"))
    return answer


alice, stranger = subject("alice", HOME), subject("alice", HERE)


def test_names_are_those_of_the_home() -> None:
    there = stage(travelled(preferences("s.user == 'alice' && p.user == 'mary' && p.domain == 'mygymbrand'")))
    assert answered(there, known(mary, alice)) == Allow(rule="u0")
    denied = answered(there, known(mary, stranger))
    assert isinstance(denied, Deny)
    assert (denied.step, denied.rule) == (Step.READ, "u0")


def test_a_condition_that_waits_for_the_message_sees_the_same_names() -> None:
    there = stage(travelled(preferences("(p.size == 2 ? p : {}).user == 'mary' && s.user == 'alice'")))
    assert isinstance(there.evaluate(known(mary, alice)), Residual)
    assert answered(there, known(mary, alice)) == Allow(rule="u0")
    assert isinstance(answered(there, known(mary, stranger)), Deny)


@pytest.mark.parametrize(
    ("foreign", "denied"),
    [(("m1", 5), False), (("m1", 4), False), (("m1", 0), False), (("m1", 6), True), (None, True), (("m2", 5), True)],
)
def test_who_is_unknown_is_denied(foreign: tuple[str, int] | None, denied: bool) -> None:
    there = stage(travelled(preferences("true")))
    answer = there.evaluate(known(mary, alice, foreign=foreign))
    assert answer == (UNKNOWN_OWNER if denied else Allow(rule="u0"))


def test_an_owner_without_preferences_restricts_nothing() -> None:
    there = stage(travelled(preferences("false")))
    zoe = subject("zoe", HOME, identity="z1")
    assert there.evaluate(known(zoe, alice, foreign=("z1", 0))) == ALLOW
    assert there.evaluate(known(zoe, alice, foreign=("z1", 1))) == UNKNOWN_OWNER


def test_a_message_without_an_owner_has_none() -> None:
    there = stage()
    assert there.evaluate(known(subject(None, HOME), alice, foreign=None)) == ALLOW


@pytest.mark.parametrize("domain", [HERE, "oldgym"])
def test_people_of_this_domain_cost_nothing(domain: str) -> None:
    there = stage(travelled(preferences("false")))
    own = subject("mary", domain, identity="m1")
    assert there.evaluate(known(own, alice, foreign=None)) is ALLOW
    assert there.cache_key(Link(own, True, "c")) is None
    assert there.cache_key(Link(mary, True, "c")) is not None


def test_people_of_an_identity_provider_have_no_other_home_unless_it_comes_from_one() -> None:
    rules = RuleSet(domain=HERE, domains={"corp": Domain(provider=True), HOME: Domain()})
    there = PreferenceStage(OwnerPreferences(rules, KnownSets()), Attributes(rules, Clock()))
    ana = subject("ana", "corp")
    assert there.evaluate(known(ana, alice, foreign=None)) is ALLOW
    assert there.evaluate(known(ana, alice, foreign=("ana", 1))) is UNKNOWN_OWNER
    assert there.evaluate(known(mary, alice, foreign=None)) is UNKNOWN_OWNER


def test_without_other_nodes_there_is_no_stage_and_nobody_is_unknown() -> None:
    rules = RuleSet(domain=HERE)
    bare = StageSet.of(rules, Attributes(rules, Clock()), None)
    assert not any(isinstance(each, PreferenceStage) for each in (*bare.egress, *bare.receiving))
    full = StageSet.of(rules, Attributes(rules, Clock()), None, KnownSets())
    assert sum(isinstance(each, PreferenceStage) for each in full.egress) == 1
    assert sum(isinstance(each, ForwardingPreferenceStage) for each in full.receiving) == 1
    only = PreferenceStage(OwnerPreferences(rules), Attributes(rules, Clock()))
    assert only.evaluate(known(mary, alice)) is ALLOW


def test_the_original_topic_counts() -> None:
    own = Preferences([preference_of(id="u", user="mary", topic="gym/#", when="false")], domain=HOME)
    there = stage(travelled(own))
    assert there.evaluate(known(mary, alice, topic="a")) == ALLOW
    renamed = known(mary, alice, topic="a")
    renamed.context = replace(renamed.context, topic="gym/a")
    assert isinstance(there.evaluate(renamed), Deny)


def test_forwarding_is_to_the_scope_as_its_home_named_it() -> None:
    made = Preferences(
        [
            preference_of(id="any", user="mary", topic="#", to="*", when="false"),
            preference_of(id="lab", user="mary", topic="#", to="lab"),
            preference_of(id="bare", user="mary", topic="#", to="hall"),
        ],
        domain=HOME,
    )
    sent = travelled(made, places={"lab": "lab@77"})
    link = subject(None, HERE, kind="link")
    for node, rule in (("77", "lab"), ("78", "any")):
        there = stage(
            sent, kind=ForwardingPreferenceStage, named=lambda place, node=node: place.removesuffix(f"@{node}")
        )
        answer = there.evaluate(known(mary, replace(link, scope="lab")))
        assert answer.rule == rule  # type: ignore[union-attr]
        assert isinstance(there.evaluate(known(mary, replace(link, scope="hall"))), Allow)
        assert isinstance(there.evaluate(known(mary, replace(link, scope="other"))), Deny)


def test_keys_depend_on_the_preferences_that_are_known() -> None:
    rules = RuleSet(domain=HERE, protect=("#",))

    def group(*sets: PreferenceSet) -> str:
        finder = StageSet.of(rules, Attributes(rules, Clock()), None, KnownSets(*sets)).key_groups
        protection = finder.protection(known(mary, alice))
        assert isinstance(protection, Protection)
        return protection.group.id

    ids = {group(), group(travelled(preferences("true"))), group(travelled(preferences("false")))}
    assert len(ids) == 3


# -- the same as at home -----------------------------------------------------------------------------------------------

WHENS = conditions(ABOUT_SUBJECT, ABOUT_MESSAGE, ABOUT_PUBLISHER, ABOUT_CLOCK, FAILING)
PREFERENCE = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(FILTERS),
        "to": st.sampled_from([None, None, "gym", "*", "lab"]),
        "when": st.none() | WHENS,
        "keep": st.sampled_from(["all", ["/level"], ["/name"]]),
    }
)
PEOPLE = st.builds(
    subject,
    st.sampled_from([None, "mary", "alice", "bob"]),
    st.sampled_from([HOME, HERE, "third"]),
    roles=st.sampled_from([(), ("coach",), ("runner", "coach")]),
    groups=st.sampled_from([(), ("team",)]),
    level=st.sampled_from(["plain", "tls", "mtls"]),
    identity=st.sampled_from(["", "m1"]),
    attributes=st.sampled_from([{}, {"clearance": 2}]),
)


@given(
    st.lists(PREFERENCE, max_size=4),
    PEOPLE,
    st.sampled_from(TOPICS),
    st.sampled_from([PreferenceStage, ForwardingPreferenceStage]),
    st.booleans(),
)
def test_elsewhere_it_is_decided_as_at_home(
    texts: list[dict[str, Any]], reader: Subject, topic: str, kind: type[PreferenceStage], away: bool
) -> None:
    own = [preference_of(id=f"u{n}", user="mary", **text) for n, text in enumerate(texts)]
    own = [replace(each, owner="m1") if n % 2 else each for n, each in enumerate(own)]
    at_home = RuleSet(domain=HOME, preferences=Preferences(own, domain=HOME))
    there = stage(travelled(at_home.preferences), kind=kind)
    home = kind(OwnerPreferences(at_home), Attributes(at_home, Clock()))
    answers = []
    for each, foreign in ((home, None), (there, ("m1", 5))):
        asked = known(mary, reader, topic=topic, foreign=foreign)
        asked.away = away
        answers.append(answered(each, asked))
    assert answers[0] == answers[1]
