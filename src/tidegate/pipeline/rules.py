"""The rules of the pipeline: what they say, and how they are read from a file and the documents laid over it.

They say how payloads become records, how records are scored, and where they go.

- What stands in the file comes first; documents follow in the order given and are told as `pipeline/<id>`.
- Ids are unique over everything, because the API knows a rule by its id alone.
- A rule that no record can reach is a problem: it looks as if it did something.
- `${NAME}` is refused and not replaced: the version of the rules must say what they are.

Pure: nothing is opened here, and Spark is not needed. What a score's check and condition mean is known to
`pipeline.checks`, which is asked when everything else about the score is right.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Entries
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from tidegate import topics
from tidegate.config.document import DocumentValue, document_tree, source_of
from tidegate.config.problems import PLAIN_NAME, ConfigErrors, suggestion
from tidegate.config.tree import MAX_DEPTH
from tidegate.errors import ConfigError, PipelineError
from tidegate.pipeline import checks, conditions, units
from tidegate.pipeline.columns import DIMENSIONS
from tidegate.policy.pointers import Pointer


class Kind(StrEnum):
    """What a value is in JSON. Nothing is taken for something else: `"21.5"` is a text."""

    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"


class Form(StrEnum):
    """How a time is written: as ISO 8601, or as a number since 1970 of seconds, milli- or microseconds."""

    ISO = "iso"
    S = "s"
    MS = "ms"
    US = "us"


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    at: Pointer
    form: Form = Form.ISO


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What makes a record of each element."""

    name: str
    at: Pointer
    kind: Kind = Kind.NUMBER
    unit: str | None = None  # as it is sent
    to: str | None = None  # as it is recorded, if that is another unit of the same quantity
    required: bool = True  # an element without it is faulty; otherwise it only has no such record


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """How the payloads of some messages become records."""

    id: str
    types: tuple[str, ...] = ()  # types of registered sources; none: of any, registered or not
    topic: str | None = None  # a topic filter; None: any topic, or none
    schema: str
    becomes: str | None = None
    """The type of the records (`as`); None: that of the source, or else the id."""
    records: Pointer = ()  # leads to the element, or to an array of them
    source: Pointer | None = None
    time: Time | None = None
    values: tuple[Value, ...]
    keep: tuple[Pointer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A check that counts in a dimension."""

    id: str
    dimension: str
    weight: float = 1.0
    filter: str | None = None  # a condition on records; None: all
    check: str
    args: Entries[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Under which topic records are published."""

    id: str
    types: tuple[str, ...] = ()  # types of records; none: any
    filter: str | None = None  # a condition on records; None: all
    topic: str  # with `{type}`, `{source}`, `{name}`, `{mode}`, `{schema}` in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All rules that are in force together. In each list the order counts: the first that fits."""

    version_text: str  # 12 hexadecimal digits; the same for the same rules, however they are written
    sources: tuple[Mapping, ...] = ()
    scores: tuple[Score, ...] = ()
    topics: tuple[Target, ...] = ()


VERSION: Final = 1
MAX_BYTES: Final = 1 << 20
MAX_SOURCES: Final = 200
MAX_VALUES: Final = 64
MAX_SCORES: Final = 500
MAX_TOPICS: Final = 500
MAX_CONDITION: Final = 4096
MAX_INDEXES: Final = 3
"""Steps of a pointer that may be an index or a name: each doubles what has to be looked at."""

PLACEHOLDERS: Final = ("type", "source", "name", "mode", "schema")  # what a template of a topic may name
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")

_TOP: Final = ("version", "sources", "scores", "topics")
_SECTIONS: Final = {
    "source": ("sources", MAX_SOURCES),
    "score": ("scores", MAX_SCORES),
    "topic": ("topics", MAX_TOPICS),
}
_KEYS: Final = {
    "source": ("id", "type", "topic", "schema", "as", "records", "source", "time", "values", "keep"),
    "score": ("id", "dimension", "weight", "filter", "check", "args"),
    "topic": ("id", "type", "filter", "topic"),
}
_NEEDED: Final = {"source": ("values",), "score": ("dimension", "check"), "topic": ("topic",)}


class WrongRules(PipelineError):
    """All that is wrong with the rules; `str()` is one `file:line: what is wrong; how to mend it` per line."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        # A document has no lines: there the order of reading stays.
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.file, problem.line)))
        super().__init__("\n".join(map(str, self.problems)))


def parse(text: str, file: str, documents: Sequence[tuple[str, Entries[str, Any]]] = ()) -> Rules:
    """The rules of a file and documents of (id, body); WrongRules (a PipelineError) tells all that is wrong."""
    reading = _Reading()
    reading.file(text, file)
    for id, body in documents:
        reading.document(id, body)
    return reading.rules()


def is_index(token: str) -> bool:
    """Whether a step of a pointer can mean a position in an array (RFC 6901, section 4)."""
    return _INDEX.fullmatch(token) is not None


class _Reading:
    def __init__(self) -> None:
        self.problems: list[ConfigError] = []
        self.sources: list[Mapping] = []
        self.scores: list[Score] = []
        self.topics: list[Target] = []
        self.taken: dict[str, str] = {}
        """Where each id stands."""
        self.everything: dict[str, str] = {}
        """By section: the id of the first that fits everything."""

    def rules(self) -> Rules:
        for section, most in _SECTIONS.values():
            if len(getattr(self, section)) > most:
                text = f"the file and the documents have more than {most} `{section}` together; remove some"
                self.problems.append(ConfigError(text))
        if self.problems:
            raise WrongRules(self.problems)
        content = {section: [asdict(each) for each in getattr(self, section)] for section, _ in _SECTIONS.values()}
        written = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return Rules(
            version_text=hashlib.sha256(written.encode()).hexdigest()[:12],
            sources=tuple(self.sources),
            scores=tuple(self.scores),
            topics=tuple(self.topics),
        )

    def file(self, text: str, file: str) -> None:
        if len(text) > MAX_BYTES:
            self.problems.append(ConfigError(f"larger than {MAX_BYTES >> 20} MiB; make it smaller", file=file))
            return
        try:
            source = source_of(text, file, None)
        except ConfigErrors as broken:
            self.problems += broken.problems
            return
        self.problems += source.problems
        top = DocumentValue.top(source.tree, file, self.problems)
        found = top.entries(_TOP, needed=("version",)) or {}
        if (version := found.get("version")) and not version.node.broken and version.node.value != VERSION:
            version.wrong(f"is not known; write `{VERSION}`")
        for kind, (section, most) in _SECTIONS.items():
            if section in found:
                for place in found[section].items(most):
                    self._rule(kind, place, None)

    def document(self, id: str, body: Entries[str, Any]) -> None:
        name = f"pipeline/{id}"
        node = document_tree(body, name)
        if node is None:
            text = f"the document is nested deeper than {MAX_DEPTH} levels; flatten it"
            self.problems.append(ConfigError(text, file=name))
            return
        top = DocumentValue.top(node, name, self.problems)
        found = top.entries(tuple(_SECTIONS)) or {}
        if len(found) == 1:
            [(kind, place)] = found.items()
            self._rule(kind, place, id)
        elif not any(problem.file == name for problem in self.problems):
            top.wrong("must have one key; write `source`, `score` or `topic`")

    def _rule(self, kind: str, place: DocumentValue, document: str | None) -> None:
        before, needed = len(self.problems), _NEEDED[kind]
        found = place.entries(_KEYS[kind], needed=needed if document else ("id", *needed))
        if found is None:
            return
        id = self._id(found.get("id"), place, document)
        # What is wrong is told; a rule with something wrong in it is never used, so the id may be anything.
        match kind:
            case "source":
                mapping = _mapping(id or "?", found)
                self._reach("source", id, place, catches=not {"type", "topic"} & found.keys())
                self.sources.append(mapping)
            case "score":
                score = _score(id or "?", found)
                if len(self.problems) == before:
                    for text in checks.problems(score):
                        place.wrong(f"(`{score.id}`): {text}")
                self.scores.append(score)
            case _:
                target = _target(id or "?", found)
                self._reach("topic", id, place, catches=not {"type", "filter"} & found.keys())
                if len(self.problems) == before and target.filter is not None:
                    for text in conditions.problems(target.filter):
                        found["filter"].wrong(f"is no condition: {text}")
                self.topics.append(target)

    def _id(self, written: DocumentValue | None, place: DocumentValue, document: str | None) -> str | None:
        id = document
        if written is not None:
            id = written.name()
            if document is not None and id is not None and id != document:
                written.wrong(f"is not `{document}`; leave it out, or write that")
        elif document is not None and not PLAIN_NAME.fullmatch(document):
            place.wrong("must have a name as its id; write at most 64 letters, digits, `.`, `_` and `-`")
        if id is None:
            return None
        here = str(place.location.problem("")).rstrip()
        if id in self.taken:
            (written or place).wrong(f"is `{id}`, and so is that of {self.taken[id]}; give each rule an id of its own")
        self.taken.setdefault(id, here)
        return id

    def _reach(self, section: str, id: str | None, place: DocumentValue, *, catches: bool) -> None:
        if first := self.everything.get(section):
            place.wrong(f"is never reached: `{first}` before it fits everything; let `{first}` ask for a type or topic")
        elif catches and id is not None:
            self.everything[section] = id


def _mapping(id: str, found: Entries[str, DocumentValue]) -> Mapping:
    time = _time(found["time"]) if "time" in found else None
    values = _values(found["values"]) if "values" in found else ()
    return Mapping(
        id=id,
        types=found["type"].texts(MAX_VALUES) if "type" in found else (),
        topic=_filter(found["topic"]) if "topic" in found else None,
        schema=(found["schema"].text() if "schema" in found else None) or id,
        becomes=found["as"].text() if "as" in found else None,
        records=(_pointer(found["records"]) if "records" in found else None) or (),
        source=_pointer(found["source"]) if "source" in found else None,
        time=time,
        values=values,
        keep=_keep(found["keep"]) if "keep" in found else (),
    )


def _time(place: DocumentValue) -> Time | None:
    found = place.entries(("at", "form"), needed=("at",))
    if found is None:
        return None
    at = _pointer(found["at"]) if "at" in found else None
    form = found["form"].choice(Form) if "form" in found else Form.ISO
    return None if at is None or form is None else Time(at=at, form=form)


def _values(place: DocumentValue) -> tuple[Value, ...]:
    made: list[Value] = []
    places = place.items(MAX_VALUES)
    if not places and place.node.value == []:
        place.wrong("is empty, so nothing would be recorded; name a value")
    for each in places:
        value = _value(each)
        if value is None:
            continue
        if any(value.name == other.name for other in made):
            each.wrong(f"has the name `{value.name}` again; give each value a name of its own")
        made.append(value)
    return tuple(made)


def _value(place: DocumentValue) -> Value | None:
    found = place.entries(("name", "at", "kind", "unit", "to", "required"), needed=("name", "at"))
    if found is None:
        return None
    name = found["name"].text() if "name" in found else None
    at = _pointer(found["at"]) if "at" in found else None
    kind = found["kind"].choice(Kind) if "kind" in found else Kind.NUMBER
    unit = found["unit"].text() if "unit" in found else None
    to = found["to"].text() if "to" in found else None
    required = found["required"].switch() if "required" in found else True
    if to is not None:
        if "unit" not in found:
            found["to"].wrong("says what to convert to, but not from what; add `unit`")
        elif unit is not None and (told := units.problem(unit, to)):
            found["to"].wrong(told)
    if kind in (Kind.TEXT, Kind.BOOLEAN):
        for key in ("unit", "to"):
            if key in found:
                found[key].wrong(f"has no effect on a {kind}; remove it, or write `kind: number`")
    if name is None or at is None or kind is None or required is None:
        return None
    return Value(name=name, at=at, kind=kind, unit=unit, to=to, required=required)


def _keep(place: DocumentValue) -> tuple[Pointer, ...]:
    made: dict[str, Pointer] = {}
    for each in place.items(MAX_VALUES):
        pointer = _pointer(each)
        if pointer is None:
            continue
        if not pointer:
            each.wrong("is everything; name what is to be kept, such as `/battery`")
        elif kept_name(pointer) in made:
            each.wrong(f"would be kept as `{kept_name(pointer)}`, and so would one before it; remove one of the two")
        made[kept_name(pointer)] = pointer
    return tuple(made.values())


def kept_name(pointer: Pointer) -> str:
    """Under which name something is kept in `extra`."""
    return "/".join(pointer)


def _pointer(place: DocumentValue) -> Pointer | None:
    found = place.pointer()
    if found is not None and sum(map(is_index, found)) > MAX_INDEXES:
        place.wrong(f"has more than {MAX_INDEXES} steps that are numbers; point to something less deep")
        return None
    return found


def _filter(place: DocumentValue) -> str | None:
    found = place.long_text(topics.MAX)
    if found is None:
        return None
    if not topics.valid_filter(found) or topics.share(found)[0] is not None:
        place.wrong("is no topic filter; write for example `raw/+/temperature` or `raw/#`")
        return None
    return found


def _score(id: str, found: Entries[str, DocumentValue]) -> Score:
    weight = found["weight"].number() if "weight" in found else 1.0
    if weight is not None and weight <= 0:
        found["weight"].wrong("must be more than 0; raise it, or remove the score")
    return Score(
        id=id,
        dimension=(found["dimension"].word(DIMENSIONS) if "dimension" in found else None) or "",
        weight=weight or 1.0,
        filter=found["filter"].long_text(MAX_CONDITION) if "filter" in found else None,
        check=(found["check"].text() if "check" in found else None) or "",
        args=(found["args"].plain() if "args" in found else None) or {},
    )


def _target(id: str, found: Entries[str, DocumentValue]) -> Target:
    return Target(
        id=id,
        types=found["type"].texts(MAX_VALUES) if "type" in found else (),
        filter=found["filter"].long_text(MAX_CONDITION) if "filter" in found else None,
        topic=(_template(found["topic"]) if "topic" in found else None) or "",
    )


def _template(place: DocumentValue) -> str | None:
    found = place.text()
    if found is None:
        return None
    before = len(place.problems)
    for name in _PLACEHOLDER.findall(found):
        if name not in PLACEHOLDERS:
            meant = suggestion(name, PLACEHOLDERS)
            remedy = f"did you mean `{{{meant}}}`?" if meant else f"known: {_braced(PLACEHOLDERS)}"
            place.wrong(f"has the unknown placeholder `{{{name}}}`; {remedy}")
    plain = _PLACEHOLDER.sub("x", found)
    if "{" in plain or "}" in plain:
        place.wrong(f"has a brace that belongs to no placeholder; known: {_braced(PLACEHOLDERS)}")
    elif not topics.valid_topic(plain) or plain.startswith("$"):
        place.wrong("is no topic to publish to; write it without `+`, `#` and a leading `$`")
    return found if len(place.problems) == before else None


def _braced(names: Iterable[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)
