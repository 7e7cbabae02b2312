"""Rules, policies and policy sets as one list of entries, of which the first that applies decides.

Combining algorithms become order. Where entries of both effects come from one policy, its later ones are narrowed by
what stands before them in it, so that each still decides only where its policy would:

| algorithm | order |
|---|---|
| first-applicable | as it stands |
| deny-overrides | what denies, where nothing of its own policy permits before; then what permits |
| permit-overrides | what permits, where nothing of its own policy denies before; then what denies |

Invariants
- An evaluation that fails (Indeterminate) denies wherever the set could come to a decision by it, as a PEP that denies
  unless permitted does. Only a failing rule that permits does not stand in the way of another that does, as in XACML.
- What cannot be said makes what denies wider and what permits narrower.
- A permission with an obligation is none here: nobody carries obligations out. It still counts as a permission where
  it is combined with others, and is written as a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import Final

from tidegate.importing import formula as f
from tidegate.importing.xacml.document import Element
from tidegate.importing.xacml.expressions import ExpressionReader, identifier

MAX_DEPTH: Final = 20
MAX_ENTRIES: Final = 50_000

_PARAMETERS: Final = tuple(f"{what}CombinerParameters" for what in ("", "Policy", "PolicySet", "Rule"))
_IGNORED: Final = frozenset(("Description", "PolicyDefaults", "PolicySetDefaults", "VariableDefinition", *_PARAMETERS))
_REFERENCES: Final = ("PolicyIdReference", "PolicySetIdReference")
_RULE_PARTS: Final = frozenset(("Condition", "Description", "Target"))
_ONE_BY_ONE: Final = "it denies whatever it is about; write the policy here in its place"


class Effect(Enum):
    PERMIT = auto()
    DENY = auto()
    OWED = auto()
    """Permitted with an obligation."""


class Algorithm(StrEnum):
    FIRST_APPLICABLE = "first-applicable"
    DENY_OVERRIDES = "deny-overrides"
    PERMIT_OVERRIDES = "permit-overrides"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """If it is asked this, it decides so."""

    effect: Effect
    asked: f.Formula
    name: str
    element: Element
    """Where it comes from."""


def entries(root: Element, reader: ExpressionReader) -> list[Entry]:
    if root.name not in ("Policy", "PolicySet"):
        raise reader.wrong(root, "is no policy; the file has to hold a `<Policy>` or a `<PolicySet>`")
    return _Combining(reader).any(root, 0)


class _Combining:
    def __init__(self, reader: ExpressionReader) -> None:
        self.reader = reader
        self.count = 0

    def any(self, element: Element, depth: int) -> list[Entry]:
        if depth > MAX_DEPTH:
            raise self.reader.wrong(element, f"is nested more than {MAX_DEPTH} deep; simplify it")
        match element.name:
            case "Policy":
                return self._policy(element)
            case "PolicySet":
                return self._set(element, depth)
            case name if name in _REFERENCES:
                self.reader.leave(element, f"reference to `{element.text}`", f"another file; {_ONE_BY_ONE}")
                return [self._denying(f.ALWAYS, element.text, element)]
            case _:
                raise self.reader.wrong(element, "is no part of a policy set; remove it, or mend its name")

    # -- policies and sets ---------------------------------------------------------------------------------------

    def _policy(self, element: Element) -> list[Entry]:
        name = self._id(element, "PolicyId")
        for child in element.children:
            if child.name not in _IGNORED and child.name not in ("Target", "Rule", "Obligations"):
                raise self.reader.wrong(child, "is no part of a policy; remove it, or mend its name")
        rules = [self._rule(child, name) for child in element.named("Rule")]
        permitting = [rule for rule in rules if rule[0].effect is Effect.PERMIT]
        permit = [*(decides for decides, _ in permitting), *(fails for _, fails in permitting)]
        deny = [entry for rule in rules if rule[0].effect is Effect.DENY for entry in rule]
        combined = {
            Algorithm.FIRST_APPLICABLE: [entry for rule in rules for entry in rule],
            Algorithm.DENY_OVERRIDES: deny + permit,
            Algorithm.PERMIT_OVERRIDES: permit + deny,
            None: None,
        }
        return self._within(element, name, combined[self._algorithm(element, "RuleCombiningAlgId")])

    def _set(self, element: Element, depth: int) -> list[Entry]:
        name = self._id(element, "PolicySetId")
        children = [
            self.any(child, depth + 1)
            for child in element.children
            if child.name not in _IGNORED and child.name not in ("Target", "Obligations")
        ]
        combined: list[Entry] | None
        match self._algorithm(element, "PolicyCombiningAlgId"):
            case Algorithm.FIRST_APPLICABLE:
                combined = [entry for child in children for entry in child]
            case Algorithm.DENY_OVERRIDES:
                combined = self._overriding(children, frozenset((Effect.DENY, Effect.OWED)))
            case Algorithm.PERMIT_OVERRIDES:
                combined = self._overriding(children, frozenset((Effect.PERMIT, Effect.OWED)))
            case None:
                combined = None
        return self._within(element, name, combined)

    def _within(self, element: Element, name: str, inner: list[Entry] | None) -> list[Entry]:
        """What a policy or set decides, given its target and its obligations; None if that cannot be said."""
        target = self.reader.target(element.named("Target"))
        if inner is None:
            inner = [self._denying(f.ALWAYS, name, element)]
        if self._owes(element):
            inner = [replace(entry, effect=Effect.OWED) if entry.effect is Effect.PERMIT else entry for entry in inner]
        narrowed = [replace(entry, asked=f.both(target.true, entry.asked)) for entry in inner]
        narrowed.append(self._denying(target.fails, name, element))  # nothing is both, so its place is free
        narrowed = [entry for entry in narrowed if entry.asked != f.NEVER]
        self.count += len(narrowed)
        if self.count > MAX_ENTRIES:
            raise self.reader.wrong(element, f"and what stands before it have over {MAX_ENTRIES} rules; split the file")
        return narrowed

    def _overriding(self, children: list[list[Entry]], strong: frozenset[Effect]) -> list[Entry]:
        """What overrides first, where its own policy comes to it; then the rest."""
        if len(children) == 1:
            return children[0]  # there is nothing to override
        first: list[Entry] = []
        for child in children:
            before: f.Formula = f.NEVER
            whole = True  # `before` holds all that stands before it
            for entry in child:
                if entry.effect in strong:
                    first += self._narrowed(entry, before, whole)
                elif before.weight <= f.MAX_WEIGHT:
                    before = f.either(before, entry.asked)
                else:
                    whole = False
        return first + [entry for child in children for entry in child if entry.effect not in strong]

    def _narrowed(self, entry: Entry, before: f.Formula, whole: bool) -> list[Entry]:
        """The entry where nothing of what stands before it decides."""
        narrowed = f.both(entry.asked, f.opposite(f.without(before, entry.asked)))
        if whole and narrowed.weight <= f.MAX_WEIGHT:
            return [replace(entry, asked=narrowed)]
        what = "too much stands before it in its policy to be said in one condition"
        if entry.effect is Effect.PERMIT:
            self.reader.leave(entry.element, f"`{entry.name}`", f"{what}; it permits nothing")
            return []
        self.reader.leave(entry.element, f"`{entry.name}`", f"{what}; it denies also where that permits")
        return [entry]

    # -- rules ---------------------------------------------------------------------------------------------------

    def _rule(self, element: Element, policy: str) -> tuple[Entry, Entry]:
        """What a rule decides, and that failing denies."""
        name = f"{policy}/{self._id(element, 'RuleId')}"
        for child in element.children:
            if child.name not in _RULE_PARTS:
                raise self.reader.wrong(child, "is no part of a rule; remove it, or mend its name")
        effect = element.attributes.get("Effect")
        if effect not in ("Permit", "Deny"):
            raise self.reader.wrong(element, "has no `Effect`; write `Permit` or `Deny`")
        target = self.reader.target(element.named("Target"))
        condition = self.reader.condition(element.named("Condition"))
        decides = self._denying(f.both(target.true, condition.true), name, element)
        fails = f.either(target.fails, f.both(target.true, condition.fails))
        if effect == "Permit":
            decides = replace(decides, effect=Effect.PERMIT)
        return decides, self._denying(fails, name, element)

    # -- parts ---------------------------------------------------------------------------------------------------

    def _denying(self, asked: f.Formula, name: str, element: Element) -> Entry:
        return Entry(effect=Effect.DENY, asked=asked, name=name, element=element)

    def _id(self, element: Element, key: str) -> str:
        id = identifier(element.attributes.get(key, ""))
        if not id:
            raise self.reader.wrong(element, f"has no `{key}`; give it one")
        return id

    def _algorithm(self, element: Element, key: str) -> Algorithm | None:
        id = self._id(element, key)
        name = id.rpartition(":")[2].removeprefix("ordered-")
        if id.startswith("urn:oasis:names:tc:xacml:") and name in set(Algorithm):
            return Algorithm(name)
        self.reader.leave(element, f"algorithm {id.rpartition(':')[2]}", f"has no equivalent; {_ONE_BY_ONE}")
        return None

    def _owes(self, element: Element) -> bool:
        owes = False
        for obligation in (child for obligations in element.named("Obligations") for child in obligations.children):
            why = "nobody carries obligations out here"
            if obligation.attributes.get("FulfillOn") != "Deny":
                owes = True
                why += ", so what this permits is denied; remove it if that is not meant"
            self.reader.leave(obligation, f"obligation `{obligation.attributes.get('ObligationId', '')}`", why)
        return owes
