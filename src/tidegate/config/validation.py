"""What a pydantic model refuses in a document, as problems with their places and how to mend them.

A condition can be wrong in the middle of its text, and then the line and column in the file are told. YAML folds lines,
doubles quotes and replaces escapes, but it keeps the order of what is not white space. So the text and the file are
walked side by side. Where they part (an environment variable was put in), the place is told as it is in the text
itself, on the line where the scalar begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tidegate.config.document import Source
from tidegate.config.problems import DocumentPath, suggestion, unknown_key
from tidegate.config.section import TAGS, descriptions
from tidegate.config.tree import Location, Node
from tidegate.errors import ConfigError

NOT_YET: Final[Mapping[tuple[str, ...], frozenset[str]]] = {}
"""Keys that are announced but not enforced by this version, by the place they stand at."""

_SIMPLE: Final[Mapping[str, str]] = {
    "string_type": "must be text; put it in quotes",
    "path_type": "must be a path; put it in quotes",
    "int_parsing": "must be a whole number; write it in plain digits",
    "int_type": "must be a whole number; write it in plain digits",
    "int_from_float": "must be a whole number; leave out the fraction",
    "float_parsing": "must be a number; write for example `20` or `0.5`",
    "float_type": "must be a number; write for example `20` or `0.5`",
    "greater_than_equal": "must be at least {ge}; raise it",
    "greater_than": "must be more than {gt}; raise it",
    "less_than_equal": "must be at most {le}; lower it",
    "finite_number": "must be a finite number; write for example `20`",
    "tuple_type": "must be a list; write it as `[a, b]`, or each item on a line after `- `",
    "too_short": "must not be empty; add at least one entry",
    "too_long": "has too many entries; remove some",
    "model_type": "must be a mapping; write it as `{{key: value}}`, or each key on a line of its own",
    "dict_type": "must be a mapping; write it as `{{name: …}}`, or each name on a line of its own",
    "mapping_type": "must be a mapping; write it as `{{name: …}}`, or each name on a line of its own",
    "string_unicode": "is not valid Unicode; write it again",
}
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*\s+)*")
"""An anchor and a tag, which stand before what they belong to."""
_HEADER: Final = re.compile(r"[|>][^\n]*\n?")
_ESCAPED: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_BLANK: Final = "nNtrvfbae0LP_ \t\n\r"
"""Escapes for what is white space, or never stands in a condition."""


def model_problems(refused: ValidationError, source: Source, model: type[BaseModel]) -> Iterator[ConfigError]:
    """Every problem of a document that the model refuses."""
    tree, file = source.tree, source.file
    for error in refused.errors(include_url=False):
        path = tuple(step for step in error["loc"] if step not in TAGS)
        location = tree.location(path, file)
        match error["type"]:
            case "together":
                for below, text in error["ctx"]["problems"]:
                    yield tree.location((*path, *below), file).problem(text)
            case "condition":
                *_, node = tree.along(path)
                line, column = position_in_file(source.text, node, error["ctx"]["line"], error["ctx"]["column"])
                text = f"is no condition, at column {column}: {error['ctx']['text']}"
                yield replace(location, line=line).problem(text)
            case _ if not _follows(error, path, tree):
                yield ConfigError(_text(error, path, tree, location, model), file=location.file, line=location.line)


def _follows(error: ErrorDetails, path: DocumentPath, tree: Node) -> bool:
    """Whether an error is only the consequence of one that is reported anyway."""
    nodes = list(tree.along(path))
    touched = nodes[:-1] if error["type"] == "extra_forbidden" else nodes
    if any(node.broken for node in touched) or error["type"] == "default_factory_not_called":
        return True
    # Pydantic counts only the valid entries of a list.
    return error["type"] == "too_short" and bool(nodes[-1].value)


def _text(error: ErrorDetails, path: DocumentPath, tree: Node, location: Location, model: type[BaseModel]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    name = location.name
    match kind:
        case "tidegate":
            return f"{name} {context['text']}"
        case "not_yet":
            return f"`{path[-1]}` {error['msg']} is {_NOT_SUPPORTED}"
        case "extra_forbidden":
            return _unknown_key(path, location, model)
        case "missing":
            return _missing(path, location, model)
        case "enum" | "literal_error":
            return f"{name} must be {_choice(path, tree, str(context['expected']))}"
        case _ if kind in _SIMPLE:
            return f"{name} {_SIMPLE[kind].format_map({key: _number(value) for key, value in context.items()})}"
        case _:
            return f"{name} is not valid ({error['msg']}); see the reference of the configuration"


_NOT_SUPPORTED: Final = "not supported by this version yet; remove it: nothing may look enforced that is not"


def _number(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _choice(path: DocumentPath, tree: Node, expected: str) -> str:
    quoted = expected.replace("'", "`")
    *_, here = tree.along(path)
    words = [word for word in quoted.replace("`", " ").replace(",", " ").split() if word != "or"]
    if meant := suggestion(here.written, words):
        return f"{quoted}; did you mean `{meant}`?"
    return f"{quoted}; write one of these" if len(words) > 1 else f"{quoted}; write that"


def _unknown_key(path: DocumentPath, location: Location, model: type[BaseModel]) -> str:
    key = str(path[-1])
    for above, names in NOT_YET.items():
        same_place = len(above) == len(path) - 1 and all(map(lambda step, at: step in ("*", at), above, path))
        if key in names and same_place:
            return f"`{key}` is {_NOT_SUPPORTED}"
    return unknown_key(key, location.path[:-1], tuple(_fields(_section(path[:-1], model))))


def _missing(path: DocumentPath, location: Location, model: type[BaseModel]) -> str:
    section = _section(path[:-1], model)
    described = "" if section is None else descriptions(section).get(str(path[-1]), "")
    about = " ".join(described.split()).partition(". ")[0].rstrip(".")
    return f"{location.name} is missing; add it" + (f" ({about})" if about else "")


def _fields(section: type[BaseModel] | None) -> dict[str, FieldInfo]:
    """The keys of a section as they are written."""
    fields = section.model_fields if section is not None else {}
    return {field.alias or name: field for name, field in fields.items()}


def _section(path: DocumentPath, model: type[BaseModel]) -> type[BaseModel] | None:
    """The model that describes what stands at a path."""
    here: Any = model
    for step in path:
        for kind in _kinds(here):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                field = _fields(kind).get(str(step))
                below = field.annotation if field is not None else None
            else:
                # a list has an item for a number, a mapping a value for a name
                wanted = tuple if isinstance(step, int) else Mapping
                arguments = [argument for argument in get_args(kind) if argument is not Ellipsis]
                below = arguments[-1] if arguments and get_origin(kind) is wanted else None
            if below is not None:
                here = below
                break
        else:
            return None
    return next((kind for kind in _kinds(here) if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _kinds(annotation: Any) -> Iterator[Any]:
    """What a value may be: the parts of a union, without what is noted about them."""
    match get_origin(annotation):
        case origin if origin is Annotated:
            yield from _kinds(get_args(annotation)[0])
        case origin if origin in (Union, UnionType):
            for each in get_args(annotation):
                yield from _kinds(each)
        case _:
            yield annotation


def position_in_file(source: str, node: Node, line: int, column: int) -> tuple[int, int]:
    """The line and column of the file for those of a scalar's text; all are counted from one."""
    if node.span is None or not isinstance(node.value, str):
        return node.line, column
    lines = node.value.split("\n")
    if line > len(lines):
        return node.line, column
    offset = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
    at = _offset(source, node, offset)
    if at is None:
        return node.line, column
    return source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at)


def _offset(source: str, node: Node, wanted: int) -> int | None:
    """The offset in the file of the character at an offset of the text, or of the end of the text."""
    assert node.span is not None
    assert isinstance(node.value, str)
    at, end = node.span
    text = node.value
    if properties := _PROPERTIES.match(source, at):
        at = properties.end()
    match node.style:
        case "|" | ">":
            header = _HEADER.match(source, at)
            at = header.end() if header else at
        case "'" | '"':
            at += 1
            end -= 1
    last = at
    for offset, character in enumerate(text):
        if character.isspace():
            if offset >= wanted:
                break
            continue
        at = _next(source, at, end, node.style)
        read, length = _read(source, at, node.style) if at < end else ("\n", 0)
        if read not in (character, ""):
            return None
        if offset >= wanted:
            return at
        at += length
        last = at
    return last


def _next(source: str, at: int, end: int, style: str | None) -> int:
    """The next thing that is not white space in the text."""
    while at < end:
        if source[at].isspace():
            at += 1
        elif style == '"' and source[at] == "\\" and source[at + 1 : at + 2] in _BLANK:
            at += 2
        else:
            break
    return at


def _read(source: str, at: int, style: str | None) -> tuple[str, int]:
    """The character that stands there, empty if that takes working out, and how long it is written."""
    if style == "'" and source.startswith("''", at):
        return "'", 2
    if style == '"' and (escape := _ESCAPED.match(source, at)):
        return (escape[1] if escape[1] in '"\\/' else ""), len(escape[0])
    return source[at], 1
