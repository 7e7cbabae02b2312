"""The result of an import, and its YAML as a part of `tidegate.yaml`; names, topics and texts quoted for policies.

Invariants
- Whatever a source contains comes out as what it says there: a quote ends no text of a condition, and a brace begins no
  placeholder.
- The text holds `version`, `combining`, `policies` and `directory`; with a `node` and `listeners` before it, it is
  a configuration that `tidegate check` accepts.
- Whatever a name or a topic of the source contains, it is one quoted value here: it changes neither the structure of
  the file nor, by `${…}`, its meaning.

It does not judge what was read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tidegate.policy.selector import QUALIFIED

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORDS: Final = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}?")
# What YAML does not take as it is in a quoted text, or takes for the end of a line in a comment.
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MAX_NAME: Final = 65535


def quoted(text: str) -> str:
    """A text as a condition writes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    printable = _CONTROL.sub(lambda character: f"\\x{ord(character[0]):02x}", escaped)
    return f"'{printable}'"


def plain_topic(filter: str) -> str:
    """A topic filter without placeholders, as the `topic` of a policy writes it."""
    return filter.replace("{", "{{").replace("}", "}}")


def unspeakable(sort: str, name: str) -> str | None:
    """Why no policy can speak of `SORT:NAME`, and the directory cannot hold it; None if both can."""
    if not name or name != name.strip():
        return "a name is not empty here, and has no spaces around it; rename"
    if name == "*":
        return "`*` means everybody here; rename"
    if _CONTROL.search(name) or len(name.encode(errors="surrogatepass")) > _MAX_NAME:
        return "a name has no control characters here, and at most 65535 bytes; rename"
    if sort in QUALIFIED and "@" in name:
        return f"`@` stands between a {sort} and a domain here; rename"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotImported:
    """Something of the source that has no equivalent."""

    place: str
    """Where: `file:line`."""
    what: str
    """What it says there, in a few words."""
    why: str
    """Why it was left out, or what was written instead, and what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedPolicy:
    """One policy, in the texts of the configuration."""

    id: str
    subject: str | tuple[str, ...]
    topic: str
    action: tuple[str, ...]
    """Of `read` and `write`, at least one."""
    effect: str = "allow"
    when: str | None = None
    origin: str = ""
    """Where it comes from, such as `line 3: topic read a/#`; written as a comment above it."""

    def entry(self) -> dict[str, Any]:
        """The policy as the configuration has it; what is the default is left out."""
        entry: dict[str, Any] = {
            "id": self.id,
            "subject": self.subject if isinstance(self.subject, str) else list(self.subject),
            "topic": self.topic,
            "action": self.action[0] if len(self.action) == 1 else list(self.action),
        }
        if self.effect != "allow":
            entry["effect"] = self.effect
        if self.when is not None:
            entry["when"] = self.when
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Commented:
    """An entry of a list, and where it comes from; written as a comment above it."""

    origin: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """All that was read from one file, or from a whole configuration."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the configuration, such as `node` and `listeners`, in the order in which they are written."""
    open: bool = False
    """Whether everybody who is let in may do everything: `policies: open`."""

    policies: tuple[ImportedPolicy, ...] = ()
    """In the order in which they shall stand in the file."""
    combining: str = "deny-overrides"
    users: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Entries of `directory.users`, such as `{"mary": {"roles": ["coach"]}}`."""
    notes: tuple[str, ...] = ()
    """What whoever takes the policies over has to know; written as comments on top."""
    left: tuple[NotImported, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether nothing at all could be taken over."""
        return not (self.policies or self.users or self.settings)

    def data(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {
            "version": 1,
            **{key: _plain(value) for key, value in self.settings.items()},
            "combining": self.combining,
            "policies": "open" if self.open else [taken.entry() for taken in self.policies],
            "directory": {"users": {name: dict(entry) for name, entry in self.users.items()}} if self.users else {},
            "notes": list(self.notes),
            "left": [asdict(left) for left in self.left],
        }


class ImportReport:
    """Names the policies of one file by where they come from, and lists what has no equivalent."""

    def __init__(self, source: str, word: str = "") -> None:
        self.source = source
        self.left: list[NotImported] = []
        self._word = word
        self._given: Counter[int | str] = Counter()

    def next_id(self, mark: int | str) -> str:
        """`acl-3` for line 3, and `acl-3-2` for a second policy of that line; or for what stands in no line."""
        self._given[mark] += 1
        count = self._given[mark]
        return f"{self._word}-{mark}" if count == 1 else f"{self._word}-{mark}-{count}"

    def leave(self, line: int, what: str, why: str) -> None:
        """Lists what stands in a line and was left out."""
        self.left.append(NotImported(place=f"{self.source}:{line}", what=what, why=why))


def by_line(left: Iterable[NotImported]) -> tuple[NotImported, ...]:
    """What was left out, in the order of the file."""
    return tuple(sorted(left, key=lambda each: int(each.place.rpartition(":")[2])))


def to_yaml(imported: Imported, source: str) -> str:
    """The YAML text: a part of `tidegate.yaml`, with the origin of each policy above it."""
    return "\n".join(_lines(imported, source)) + "\n"


def _lines(imported: Imported, source: str) -> Iterator[str]:
    yield comment(f"Imported from {source}.")
    for note in imported.notes:
        yield comment(note)
    if imported.left:
        yield comment(f"Without an equivalent here ({len(imported.left)}):")
        for left in imported.left:
            yield comment(f"  {left.place}: {left.what}: {left.why}")
    yield "version: 1"
    for key, value in imported.settings.items():
        yield from _setting(key, value)
    if imported.open:
        yield "policies: open"
    else:
        yield f"combining: {imported.combining}"
        yield "policies:" if imported.policies else "policies: []"
    for taken in imported.policies:
        if taken.origin:
            yield f"  {comment(taken.origin)}"
        yield f"  - {flow(taken.entry())}"
    if imported.users:
        yield "directory:"
        yield "  users:"
        for name, entry in imported.users.items():
            yield f"    {yaml_text(name)}: {flow(entry)}"


def _setting(key: str, value: object) -> Iterator[str]:
    match value:
        case list():
            yield f"{key}:"
            for item in value:
                if isinstance(item, Commented):
                    yield f"  {comment(item.origin)}"
                yield f"  - {flow(_plain(item))}"
        case _:
            yield f"{key}: {flow(value)}"


def _plain(value: object) -> Any:
    match value:
        case Commented():
            return value.value
        case list():
            return [_plain(item) for item in value]
        case _:
            return value


def aligned(left: Iterable[NotImported]) -> list[str]:
    """What was left out, a line each, with the texts below each other."""
    rows = [(each.place, _visible(each.what), _visible(each.why)) for each in left]
    widths = [min(40, max((len(row[column]) for row in rows), default=0)) for column in (0, 1)]
    return [f"{place:<{widths[0]}}  {what:<{widths[1]}}  {why}" for place, what, why in rows]


def comment(text: str) -> str:
    return f"# {_visible(text)}"


def _visible(text: str) -> str:
    return _UNPRINTABLE.sub(_escape, text)


def _escape(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"


def flow(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{yaml_text(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(flow, value)) + "]"
        case str():
            return yaml_text(_REFERENCE.sub(lambda reference: "$" + reference[0], value))
        case _:
            return json.dumps(value)


def yaml_text(text: str) -> str:
    """One text as YAML writes it, whatever it contains."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    # A JSON text is a YAML text, once the characters are written out that YAML does not print.
    return _UNPRINTABLE.sub(_escape, json.dumps(text, ensure_ascii=False))
