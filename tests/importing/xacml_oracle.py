"""A second reading of XACML 2.0, straight from its text: four decisions, evaluated and not compiled.

It reads the XML with another parser and shares nothing with the importer. A request is a map from the last part of an
attribute's id to a bag of texts. `mystery` functions have the value that the test gives them: they stand for what has
no equivalent.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

Request = dict[str, list[str]]
SYNONYMS = {"write": "publish", "read": "subscribe"}


class Decision(Enum):
    PERMIT = "Permit"
    DENY = "Deny"
    NOT_APPLICABLE = "NotApplicable"
    INDETERMINATE = "Indeterminate"


class Result(NamedTuple):
    decision: Decision
    owed: bool = False
    """An obligation comes with it that a PEP has to carry out."""


PERMIT, DENY, NOT_APPLICABLE, INDETERMINATE = map(Result, Decision)


class Indeterminate(Exception):
    """An expression cannot be evaluated."""


def permitted(text: str, request: Request, mysteries: dict[str, bool | None]) -> bool:
    """What a PEP does that denies unless permitted, and carries no obligations out."""
    result = Oracle(request, mysteries).any(ET.fromstring(text))
    return result.decision is Decision.PERMIT and not result.owed


def named(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def last(id: str) -> str:
    return re.split("[:/#]", id)[-1]


class Oracle:
    def __init__(self, request: Request, mysteries: dict[str, bool | None]) -> None:
        self.request = request
        self.mysteries = mysteries

    # -- policies ------------------------------------------------------------------------------------------------

    def any(self, element: ET.Element) -> Result:
        if named(element) == "PolicyIdReference":
            raise AssertionError("references are not evaluated here")
        matched = self.target(element)
        if matched is None:
            return INDETERMINATE
        if not matched:
            return NOT_APPLICABLE
        if named(element) == "Policy":
            rules = [child for child in element if named(child) == "Rule"]
            found = self.rules(last(element.attrib["RuleCombiningAlgId"]).removeprefix("ordered-"), rules)
        else:
            children = [child for child in element if named(child) in ("Policy", "PolicySet")]
            found = self.policies(last(element.attrib["PolicyCombiningAlgId"]).removeprefix("ordered-"), children)
        owed = any(one.attrib["FulfillOn"] == found.decision.value for one in element.iterfind("./{*}Obligations/*"))
        return Result(found.decision, found.owed or owed)

    def rule(self, rule: ET.Element) -> Result:
        matched = self.target(rule)
        if matched is None:
            return INDETERMINATE
        if not matched:
            return NOT_APPLICABLE
        condition = rule.find("{*}Condition")
        try:
            if condition is not None and not self.boolean(
                condition if "FunctionId" in condition.attrib else condition[0]
            ):
                return NOT_APPLICABLE
        except Indeterminate:
            return INDETERMINATE
        return Result(Decision(rule.attrib["Effect"]))

    def rules(self, algorithm: str, rules: list[ET.Element]) -> Result:
        results = [(rule.attrib["Effect"], self.rule(rule)) for rule in rules]
        match algorithm:
            case "first-applicable":
                return next((one for _, one in results if one != NOT_APPLICABLE), NOT_APPLICABLE)
            case "deny-overrides":  # C.1
                strong, weak = "Deny", "Permit"
            case "permit-overrides":  # C.3
                strong, weak = "Permit", "Deny"
            case _:
                raise AssertionError(algorithm)
        if Result(Decision(strong)) in [one for _, one in results]:
            return Result(Decision(strong))
        if (strong, INDETERMINATE) in results:
            return INDETERMINATE
        if Result(Decision(weak)) in [one for _, one in results]:
            return Result(Decision(weak))
        return INDETERMINATE if (weak, INDETERMINATE) in results else NOT_APPLICABLE

    def policies(self, algorithm: str, children: list[ET.Element]) -> Result:
        if algorithm == "only-one-applicable":  # C.6
            matched = [(child, self.target(child)) for child in children]
            applicable = [child for child, one in matched if one]
            if None in [one for _, one in matched] or len(applicable) > 1:
                return INDETERMINATE
            return self.any(applicable[0]) if applicable else NOT_APPLICABLE
        results = [self.any(child) for child in children]
        decisions = [one.decision for one in results]
        match algorithm:
            case "first-applicable":  # C.5
                return next((one for one in results if one.decision is not Decision.NOT_APPLICABLE), NOT_APPLICABLE)
            case "deny-overrides":  # C.2
                if Decision.DENY in decisions or Decision.INDETERMINATE in decisions:
                    return DENY
                permits = [one for one in results if one.decision is Decision.PERMIT]
                return Result(Decision.PERMIT, any(one.owed for one in permits)) if permits else NOT_APPLICABLE
            case "permit-overrides":  # C.4, in order
                for one in results:
                    if one.decision is Decision.PERMIT:
                        return one
                if Decision.DENY in decisions:
                    return DENY
                return INDETERMINATE if Decision.INDETERMINATE in decisions else NOT_APPLICABLE
            case _:
                raise AssertionError(algorithm)

    # -- targets -------------------------------------------------------------------------------------------------

    def target(self, element: ET.Element) -> bool | None:
        """Match, no match, or None: indeterminate (7.5)."""
        target = element.find("{*}Target")
        sections = [] if target is None else [self.section(section) for section in target]
        if None in sections:
            return None
        return all(sections)

    def section(self, section: ET.Element) -> bool | None:
        found = [named(member).startswith("Any") or self.member(member) for member in section]
        if True in found:
            return True
        return None if None in found else False

    def member(self, member: ET.Element) -> bool | None:
        found = [self.match(match) for match in member]
        if False in found:
            return False
        return None if None in found else True

    def match(self, match: ET.Element) -> bool | None:
        literal, designator = match
        try:
            bag = self.bag(designator)
            return any(self.function(match.attrib["MatchId"], text(literal), value) for value in bag)
        except Indeterminate:
            return None

    def function(self, id: str, first: str, second: str) -> bool:
        match last(id):
            case "string-equal" | "anyURI-equal":
                return SYNONYMS.get(first, first) == SYNONYMS.get(second, second)
            case "string-regexp-match" | "anyURI-regexp-match":
                return re.search(first, second) is not None
            case "topic-filter-match":
                return self.filtered(first, second)
            case "mystery":
                return self.mystery(first)
            case name:
                raise AssertionError(name)

    @staticmethod
    def filtered(wanted: str, topic: str) -> bool:
        if topic.startswith("$") and wanted[0] in "+#":
            return False
        pattern = "/".join("[^/]*" if level == "+" else re.escape(level) for level in wanted.split("/"))
        pattern = ".*" if wanted == "#" else re.sub(r"/\\#$", "(/.*)?", pattern)
        return re.fullmatch(pattern, topic, re.DOTALL) is not None

    def mystery(self, name: str) -> bool:
        value = self.mysteries[name]
        if value is None:
            raise Indeterminate
        return value

    # -- expressions ---------------------------------------------------------------------------------------------

    def boolean(self, element: ET.Element) -> bool:
        if named(element) == "AttributeValue":
            return text(element) == "true"
        match last(element.attrib["FunctionId"]):
            case "and":
                return all(map(self.boolean, element))
            case "or":
                return any(map(self.boolean, element))
            case "not":
                return not self.boolean(element[0])
            case "string-equal":
                first, second = self.values(element)
                return SYNONYMS.get(first, first) == SYNONYMS.get(second, second)
            case "string-regexp-match":
                first, second = self.values(element)
                return re.search(first, second) is not None
            case "string-is-in":
                value = self.value(element[0])
                bag = [SYNONYMS.get(one, one) for one in self.bag(element[1])]
                return SYNONYMS.get(value, value) in bag
            case "mystery":
                return self.mystery(text(element[0]))
            case name:
                raise AssertionError(name)

    def values(self, elements: Iterable[ET.Element]) -> list[str]:
        return [self.value(element) for element in elements]

    def value(self, element: ET.Element) -> str:
        if named(element) == "AttributeValue":
            return text(element)
        bag = self.bag(element[0])
        if len(bag) != 1:
            raise Indeterminate
        return bag[0]

    def bag(self, element: ET.Element) -> list[str]:
        if named(element) == "Apply":
            return [text(value) for value in element]
        bag = self.request.get(last(element.attrib["AttributeId"]), [])
        if not bag and element.attrib.get("MustBePresent") == "true":
            raise Indeterminate
        return bag


def text(element: ET.Element) -> str:
    return (element.text or "").strip()
