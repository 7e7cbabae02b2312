"""Targets and conditions of XACML, translated to formulas.

| attribute | here |
|---|---|
| subject `subject-id` (or `user`), `client-id` (or `client`) | `s.user`, `s.client` |
| subject `role`, `group` | `s.roles`, `s.groups` |
| any other subject attribute X | `s.X` of the directory: one text, or absent |
| resource `resource-id` (or `topic`) | the topic |
| any action attribute | `publish`, `write`: write. `subscribe`, `read`: read. Anything else never happens here |
| any other environment attribute X | `e.X` |

An attribute is identified by the last part of its id. White space around text is ignored. A request of Tidegate has
every value as a string and as an anyURI, and its resource is the topic of one message. As in XACML, an evaluation is
true, is false or fails: `Evaluation` has one formula for when it is true and one for when it fails.

What has no translation is UNSAID in the formula, and is listed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidegate import topics
from tidegate.errors import ConfigError
from tidegate.importing import formula as f
from tidegate.importing.imported_policies import ImportReport, quoted, unspeakable
from tidegate.importing.xacml.document import Element
from tidegate.importing.xacml.patterns import as_re2
from tidegate.policy import BUILT_IN
from tidegate.policy.environment import CLOCK
from tidegate.predicate import PredicateError, compile

TOPIC_FILTER: Final = "urn:tidegate:xacml:function:topic-filter-match"
"""The function that says whether a topic, its second argument, matches an MQTT topic filter, its first."""

ACTIONS: Final = {"publish": "write", "write": "write", "subscribe": "read", "read": "read"}
MAX_SHOWN: Final = 100
MAX_WEIGHT: Final = 4 * f.MAX_WEIGHT

_DESIGNATORS: Final = {
    "SubjectAttributeDesignator": "s",
    "ResourceAttributeDesignator": "o",
    "ActionAttributeDesignator": "action",
    "EnvironmentAttributeDesignator": "e",
}
_SECTIONS: Final = {
    "Subjects": ("Subject", "SubjectMatch"),
    "Resources": ("Resource", "ResourceMatch"),
    "Actions": ("Action", "ActionMatch"),
    "Environments": ("Environment", "EnvironmentMatch"),
}
_ACCESS_SUBJECT: Final = "urn:oasis:names:tc:xacml:1.0:subject-category:access-subject"
_FUNCTION: Final = re.compile(r"urn:oasis:names:tc:xacml:[12]\.0:function:(.+)")
_TYPE: Final = re.compile(r"http://www\.w3\.org/2001/XMLSchema#(string|anyURI|boolean)")
_LAST: Final = re.compile(r"[^:/#]*$")
_EQUAL: Final = {"string-equal": "string", "anyURI-equal": "anyURI"}
_PATTERN: Final = {"string-regexp-match": "string", "regexp-string-match": "string", "anyURI-regexp-match": "anyURI"}
_IS_IN: Final = {"string-is-in": "string", "anyURI-is-in": "anyURI"}
_ONE: Final = {"string-one-and-only": "string", "anyURI-one-and-only": "anyURI"}
_BAG: Final = {"string-bag": "string", "anyURI-bag": "anyURI"}


class Evaluation(NamedTuple):
    """When something is true, and when asking it fails."""

    true: f.Formula
    fails: f.Formula = f.NEVER


UNSAID: Final = Evaluation(f.UNSAID, f.UNSAID)


@dataclass(frozen=True, slots=True)
class Single:
    """A bag of at most one value."""

    path: str

    @property
    def there(self) -> f.Formula:
        return f.ALWAYS if self.path == "o.topic" else f.Test(text=f"has({self.path})", weight=10)


@dataclass(frozen=True, slots=True)
class Many:
    """A bag that is a list here."""

    path: str


@dataclass(frozen=True, slots=True)
class Acting:
    """The bag that holds the action."""


@dataclass(frozen=True, slots=True)
class Literals:
    values: tuple[str, ...]


Bag = Single | Many | Acting | Literals

_ATTRIBUTES: Final[dict[str, Bag]] = {
    **dict.fromkeys(("o.resource_id", "o.topic"), Single("o.topic")),
    **dict.fromkeys(("s.subject_id", "s.user"), Single("s.user")),
    **dict.fromkeys(("s.client_id", "s.client"), Single("s.client")),
    **dict.fromkeys(("s.role", "s.roles"), Many("s.roles")),
    **dict.fromkeys(("s.group", "s.groups"), Many("s.groups")),
}
_SORTS: Final = {"s.user": "user", "s.client": "client", "s.roles": "role", "s.groups": "group"}
"""Attributes that hold the names of something."""


@dataclass(frozen=True, slots=True)
class Value:
    """A text, or the one value of a bag; `typed` is its type."""

    of: str | Bag
    typed: str
    fails: f.Formula = f.NEVER


def identifier(text: str) -> str:
    """An id without the white space that breaking a line leaves in a URN."""
    return text.replace(" ", "") if text.startswith(("urn:", "http:", "https:")) else text


class ExpressionReader:
    """Reads targets and conditions of one file, and keeps what is left out."""

    def __init__(self, source: str) -> None:
        self.report = ImportReport(source)
        self.named: dict[str, str] = {}
        """Attributes that the directory or the environment has to have, and their ids."""

    def leave(self, element: Element, what: str, why: str) -> None:
        self.report.leave(element.line, what[:MAX_SHOWN], why)

    def _unsaid(self, element: Element, what: str, why: str) -> Evaluation:
        self.leave(element, what, f"{why}; nothing is allowed by it, and what depends on it is denied")
        return UNSAID

    def wrong(self, element: Element, what: str) -> ConfigError:
        return ConfigError(f"`<{element.name[:MAX_SHOWN]}>` {what}", file=self.report.source, line=element.line)

    # -- targets -------------------------------------------------------------------------------------------------

    def target(self, elements: list[Element]) -> Evaluation:
        """A target that matches, or matches everything if there is none."""
        element = self._single(elements)
        sections = [] if element is None else [self._section(section) for section in element.children]
        return Evaluation(f.both(*(each.true for each in sections)), f.either(*(each.fails for each in sections)))

    def _section(self, section: Element) -> Evaluation:
        if section.name not in _SECTIONS:
            raise self.wrong(section, f"is no part of a target; write one of {', '.join(_SECTIONS)}")
        member, match = _SECTIONS[section.name]
        members: list[Evaluation] = []
        for child in section.children:
            if child.name == f"Any{member}":
                members.append(Evaluation(f.ALWAYS))
            elif child.name == member:
                members.append(self._member(child, match))
            else:
                raise self.wrong(child, f"is no part of `<{section.name}>`; write `<{member}>`")
        true = f.either(*(each.true for each in members))
        return Evaluation(true, f.both(f.opposite(true), f.either(*(each.fails for each in members))))

    def _member(self, member: Element, match: str) -> Evaluation:
        matches: list[Evaluation] = []
        for child in member.children:
            if child.name != match:
                raise self.wrong(child, f"is no part of `<{member.name}>`; write `<{match}>`")
            matches.append(self._match(child))
        fails = f.either(*(each.fails for each in matches))
        if fails != f.NEVER:  # XACML 2.0, 7.5: one that is false decides, before any that fails
            fails = f.both(fails, *(f.either(each.true, each.fails) for each in matches))
        return Evaluation(f.both(*(each.true for each in matches)), fails)

    def _match(self, element: Element) -> Evaluation:
        """A function of a literal and of each value in a bag: true if it is for some."""
        match element.children:
            case [Element(name="AttributeValue") as literal, designator]:
                pass
            case _:
                raise self.wrong(element, "does not compare an `<AttributeValue>` with an attribute; write both")
        function, name = self._function(element, "MatchId")
        designated = self._bag(designator)
        if designated is None:
            # functions of the standard do not fail for want of a value; of others nothing is known
            fails_never = name and designator.name in _DESIGNATORS and not _must_be_present(designator)
            return Evaluation(f.UNSAID) if fails_never else UNSAID
        bag, typed, fails = designated
        value, given = literal.text, self._type(literal)
        test: f.Formula | None = None
        if name in _EQUAL and typed == given == _EQUAL[name]:
            test = self._holds(element, bag, value)
        elif name in _PATTERN and given == "string" and typed == _PATTERN[name]:
            test = self._fits(bag, value)
        elif function == TOPIC_FILTER and given == "string" and typed in ("string", "anyURI"):
            test = f.topic_fits(value) if bag == Single("o.topic") else None
        if test is None:
            what = f"{name or function} with `{_shown(value)}`"
            unsaid = self._unsaid(element, what, "has no equivalent, or its types do not agree")
            wrong = not name or name in _EQUAL or name in _PATTERN
            return unsaid if wrong else Evaluation(f.UNSAID, fails)
        return Evaluation(test, fails)

    # -- conditions ----------------------------------------------------------------------------------------------

    def condition(self, elements: list[Element]) -> Evaluation:
        element = self._single(elements)
        if element is None:
            return Evaluation(f.ALWAYS)
        if "FunctionId" in element.attributes:  # XACML 1.0: the condition is the outermost function
            return self._apply(element)
        if len(element.children) != 1:
            raise self.wrong(element, "has not exactly one expression; write one `<Apply>`")
        return self._expression(element.children[0])

    def _single(self, elements: list[Element]) -> Element | None:
        if len(elements) > 1:
            raise self.wrong(elements[1], "stands twice; keep one")
        return elements[0] if elements else None

    def _expression(self, element: Element) -> Evaluation:
        match element.name:
            case "Apply":
                return self._apply(element)
            case "AttributeValue" if self._type(element) == "boolean" and element.text in ("true", "1", "false", "0"):
                return Evaluation(f.Const(element.text in ("true", "1")))
            case _:
                return self._unsaid(element, f"<{element.name}>", "is no expression that is known here")

    def _apply(self, element: Element) -> Evaluation:
        _, name = self._function(element, "FunctionId")
        arguments = element.children
        match name, arguments:
            case "and", _:
                return self._and(element)
            case "or", _:
                return self._or(element)
            case "not", [one]:
                asked = self._expression(one)
                return Evaluation(f.both(f.opposite(asked.true), f.opposite(asked.fails)), asked.fails)
            case _, [left, right] if name in _EQUAL:
                return self._equal(element, left, right, _EQUAL[name])
            case _, [left, right] if name in _IS_IN:
                return self._is_in(element, left, right, _IS_IN[name])
            case _, [left, right] if name in _PATTERN:
                return self._searched(element, left, right, _PATTERN[name])
            case _:
                shown = name or element.attributes.get("FunctionId", "")
                return self._unsaid(element, f"function {shown}", "has no equivalent")

    def _and(self, element: Element) -> Evaluation:
        """From left to right, as far as the first that is false or fails."""
        asked = Evaluation(f.ALWAYS)
        for child in element.children:
            part = self._expression(child)
            asked = Evaluation(f.both(asked.true, part.true), f.either(asked.fails, f.both(asked.true, part.fails)))
            if _too_large(asked):
                return self._unsaid(element, "and", "too large")
        return asked

    def _or(self, element: Element) -> Evaluation:
        """From left to right, as far as the first that is true or fails."""
        asked = Evaluation(f.NEVER)
        for child in element.children:
            part = self._expression(child)
            asked = Evaluation(
                f.either(asked.true, f.both(f.opposite(asked.fails), part.true)),
                f.either(asked.fails, f.both(f.opposite(asked.true), part.fails)),
            )
            if _too_large(asked):
                return self._unsaid(element, "or", "too large")
        return asked

    def _equal(self, element: Element, left: Element, right: Element, typed: str) -> Evaluation:
        first, second = self._value(left), self._value(right)
        if first is None or second is None:
            return UNSAID
        test: f.Formula | None = None
        match first.of, second.of:
            case _ if first.typed != typed or second.typed != typed:
                pass
            case str(), str():
                test = f.Const(first.of == second.of)
            case (str() as literal, (Single() | Many() | Acting()) as bag) | (
                (Single() | Many() | Acting()) as bag,
                str() as literal,
            ):
                test = self._holds(element, bag, literal)
            case (Single() | Many()) as one, (Single() | Many()) as other:
                test = f.Test(text=f"{_one(one)} == {_one(other)}")
        why = "its types do not agree, or it compares the action"
        return self._tested(element, test, f.either(first.fails, second.fails), "a comparison", why)

    def _is_in(self, element: Element, left: Element, right: Element, typed: str) -> Evaluation:
        value, designated = self._value(left), self._bag(right)
        if value is None or designated is None:
            return UNSAID
        bag, held, fails = designated
        test: f.Formula | None = None
        match value.of, bag:
            case _ if value.typed != typed or held != typed:
                pass
            case str() as literal, _:
                test = self._holds(element, bag, literal)
            case (Single() | Many() | Acting()) as single, Literals(values):
                test = f.either(*(self._holds(element, single, literal) for literal in values))
            case (Single() | Many()) as single, Many(path):
                test = f.Test(text=f"{_one(single)} in {path}")
            case (Single() | Many()) as single, Single(path):
                test = f.both(bag.there, f.Test(text=f"{_one(single)} == {path}"))
        why = "its types do not agree, or it compares the action"
        return self._tested(element, test, f.either(value.fails, fails), "a membership", why)

    def _searched(self, element: Element, left: Element, right: Element, typed: str) -> Evaluation:
        pattern, value = self._value(left), self._value(right)
        if pattern is None or value is None:
            return UNSAID
        test: f.Formula | None = None
        if isinstance(pattern.of, str) and pattern.typed == "string" and value.typed == typed:
            written = as_re2(pattern.of)
            if written is not None and isinstance(value.of, Single | Many):
                test = f.text_fits(_one(value.of), written)
        why = "it, or what it is asked of, has no equivalent"
        return self._tested(element, test, value.fails, "a regular expression", why)

    def _tested(self, element: Element, test: f.Formula | None, fails: f.Formula, what: str, why: str) -> Evaluation:
        if test is None:
            return self._unsaid(element, what, why)
        return Evaluation(f.both(f.opposite(fails), test), fails)

    # -- values --------------------------------------------------------------------------------------------------

    def _value(self, element: Element) -> Value | None:
        if element.name == "AttributeValue":
            return Value(element.text, self._type(element))
        if element.name == "Apply" and len(element.children) == 1:
            _, name = self._function(element, "FunctionId")
            if name in _ONE:
                return self._only(element, _ONE[name])
        self._unsaid(element, f"<{element.name}>", "is no value that is known here")
        return None

    def _only(self, element: Element, typed: str) -> Value | None:
        designated = self._bag(element.children[0])
        if designated is None:
            return None
        bag, held, _ = designated
        if held != typed:
            self._unsaid(element, "one-and-only", "its types do not agree")
            return None
        match bag:
            case Single():
                return Value(bag, typed, f.opposite(bag.there))
            case Many(path):
                return Value(bag, typed, f.Test(text=f"size({path}) != 1", weight=15))
            case Acting():
                return Value(bag, typed)
            case Literals((value,)):
                return Value(value, typed)
            case Literals():
                return Value("", typed, f.ALWAYS)

    def _bag(self, element: Element) -> tuple[Bag, str, f.Formula] | None:
        """A bag, the type of what is in it, and when asking for it fails; None if it cannot be said."""
        if element.name in _DESIGNATORS:
            return self._designated(element)
        if element.name == "Apply":
            _, name = self._function(element, "FunctionId")
            values = element.named("AttributeValue")
            if name in _BAG and len(values) == len(element.children):
                if all(self._type(value) == _BAG[name] for value in values):
                    return Literals(tuple(value.text for value in values)), _BAG[name], f.NEVER
        self._unsaid(element, f"<{element.name}>", "is no attribute that is known here")
        return None

    def _designated(self, element: Element) -> tuple[Bag, str, f.Formula] | None:
        name = identifier(element.attributes.get("AttributeId", ""))
        bag = self._attribute(_DESIGNATORS[element.name], name)
        typed = self._type(element)
        category = identifier(element.attributes.get("SubjectCategory", _ACCESS_SUBJECT))
        foreign = "Issuer" in element.attributes or category != _ACCESS_SUBJECT
        if bag is None or foreign or typed not in ("string", "anyURI"):
            self._unsaid(element, f"attribute `{_shown(name)}`", "no text that a request has here")
            return None
        if not _must_be_present(element):
            return bag, typed, f.NEVER
        match bag:
            case Single():
                return bag, typed, f.opposite(bag.there)
            case Many(path):
                return bag, typed, f.Test(text=f"size({path}) == 0", weight=15)
            case _:
                return bag, typed, f.NEVER

    def _attribute(self, root: str, id: str) -> Bag | None:
        last_part = _LAST.search(id)
        name = re.sub(r"\W", "_", last_part[0]) if last_part else ""
        path = f"{root}.{name}"
        if root == "action":
            return Acting()
        if path in _ATTRIBUTES:
            return _ATTRIBUTES[path]
        taken = BUILT_IN if root == "s" else CLOCK
        if root == "o" or name in taken or self.named.setdefault(path, id) != id:
            return None
        try:
            compile(f"has({path}) && {path} == ''")
        except PredicateError:
            return None
        return Single(path)

    def _holds(self, element: Element, bag: Bag, value: str) -> f.Formula:
        """The value is in the bag."""
        match bag:
            case Literals(values):
                return f.Const(value in values)
            case Acting():
                action = ACTIONS.get(value)
                if action is None:
                    why = "nobody does that to a topic; who may connect is decided by `directory` and `listeners`"
                    self.leave(element, f"action `{_shown(value)}`", f"MQTT has `publish` and `subscribe`: {why}")
                    return f.NEVER
                return f.Doing(frozenset((action,)))
            case Single("o.topic"):
                if not topics.valid_topic(value) or value.startswith("$share/"):
                    why = f"no topic is called so; to match a filter write MatchId `{TOPIC_FILTER}`"
                    self.leave(element, f"resource `{_shown(value)}`", why)
                    return f.NEVER
                return f.topic_fits(value) or f.NEVER
            case Single(path) | Many(path) if path in _SORTS:
                sort = _SORTS[path]
                if (problem := unspeakable(sort, value)) is not None:
                    self.leave(element, f"{sort} `{_shown(value)}`", problem)
                return f.named(sort, value)
            case Single(path):
                return f.Test(text=f"has({path}) && {path} == {quoted(value)}")
            case Many(path):
                return f.Test(text=f"{quoted(value)} in {path}")

    @staticmethod
    def _fits(bag: Bag, pattern: str) -> f.Formula | None:
        """Some value in the bag has a match of the pattern."""
        written = as_re2(pattern)
        if written is None:
            return None
        match bag:
            case Single(path):
                return f.text_fits(path, written, within=None if path == "o.topic" else path)
            case Many(path):
                single = f.text_fits("one", written)
                return None if single is None else f.Test(text=f"{path}.exists(one, {single.text})", weight=300)
            case _:
                return None

    # -- attributes of elements ----------------------------------------------------------------------------------

    def _function(self, element: Element, key: str) -> tuple[str, str]:
        """The id of a function, and its short name if it is one of XACML's own."""
        id = identifier(element.attributes.get(key, ""))
        if not id:
            raise self.wrong(element, f"has no `{key}`; name the function")
        standard = _FUNCTION.fullmatch(id)
        return id, standard[1] if standard else ""

    @staticmethod
    def _type(element: Element) -> str:
        """`string`, `anyURI` or `boolean`; empty for every other type."""
        id = identifier(element.attributes.get("DataType", "http://www.w3.org/2001/XMLSchema#string"))
        standard = _TYPE.fullmatch(id)
        return standard[1] if standard else ""


def _too_large(asked: Evaluation) -> bool:
    """Where much can fail, formulas grow with each part."""
    return asked.true.weight + asked.fails.weight > MAX_WEIGHT


def _must_be_present(designator: Element) -> bool:
    return designator.attributes.get("MustBePresent", "false") in ("true", "1")


def _one(bag: Single | Many) -> str:
    return bag.path if isinstance(bag, Single) else f"{bag.path}[0]"


def _shown(text: str) -> str:
    return " ".join(text.split())[:MAX_SHOWN]
