"""From YAML text to a `Config`, or to everything that is wrong with it, each with file and line.

`parse` only looks at the text. `read` and `complete` are `load` in two steps, between which documents can be laid over
the file (`overlay`). `load` also reads the file and sees to it that the files it names can be
read, so that a missing certificate is found by `tidegate check` and not by the first client.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from tidegate.config import administration, files, keys, pipeline
from tidegate.config.address import parse_address
from tidegate.config.checks import RULES, Finding, repeated
from tidegate.config.deferred_free import free_data
from tidegate.config.flows import violations
from tidegate.config.model import Config
from tidegate.config.overlay import Source
from tidegate.config.parser import Parser
from tidegate.config.problems import ConfigErrors, path_text, suggestion
from tidegate.config.scalar_position import position_in_file
from tidegate.config.section import TAGS
from tidegate.config.tree import MAX_BYTES, Location, Node, compose
from tidegate.errors import ConfigError

Place = tuple[int | str, ...]

NOT_YET: Final[Mapping[tuple[str, ...], frozenset[str]]] = {
    ("scopes", "*"): frozenset({"backend"}),
    ("links", "*"): frozenset({"via", "failover", "forward"}),
}
"""Keys that are announced but not enforced by this version, by the place they stand at."""

_SIMPLE: Final[Mapping[str, str]] = {
    "string_type": "must be text; put it in quotes",
    "path_type": "must be a path; put it in quotes",
    "int_parsing": "must be a whole number; write it in plain digits",
    "int_type": "must be a whole number; write it in plain digits",
    "int_from_float": "must be a whole number; leave out the fraction",
    "float_parsing": "must be a number; write for example `20` or `0.5`",
    "float_type": "must be a number; write for example `20` or `0.5`",
    "finite_number": "must be a finite number; write for example `20`",
    "tuple_type": "must be a list; write it as `[a, b]`, or each item on a line after `- `",
    "too_short": "must not be empty; add at least one entry",
    "too_long": "has too many entries; remove some",
    "model_type": "must be a mapping; write it as `{key: value}`, or each key on a line of its own",
    "dict_type": "must be a mapping; write it as `{name: …}`, or each name on a line of its own",
    "mapping_type": "must be a mapping; write it as `{name: …}`, or each name on a line of its own",
    "string_unicode": "is not valid Unicode; write it again",
}


def load(path: Path | str) -> Config:
    """The configuration in a file. Raises `ConfigErrors`."""
    return build_config(read_source(path))


def read_source(path: Path | str) -> Source:
    """A file, before anything in it is checked. Raises `ConfigErrors` if it cannot even be read."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as broken:
        text = f"cannot be read ({broken.strerror}); check its name and permissions"
        raise _single(str(path), 0, text) from None
    if len(content) > MAX_BYTES:
        raise _single(str(path), 0, f"larger than {MAX_BYTES >> 20} MiB; make it smaller")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        line = content.count(b"\n", 0, broken.start) + 1
        raise _single(str(path), line, "not UTF-8 text; save the file as UTF-8") from None
    return _composed(text, path, os.environ)


def build_config(source: Source) -> Config:
    """The configuration in what was read, with everything that it names. Raises `ConfigErrors`."""
    config = _checked(source)
    unreadable = (
        *_unreadable(config),
        *administration.unreadable_files(config),
        *keys.unreadable_files(config),
        *pipeline.unreadable_files(config),
    )
    found = [config.location(*at).problem(text) for at, text in unreadable]
    try:
        assert config.built
    except ConfigErrors as broken:
        found += broken.problems
    if not found:
        found += (config.location(*at).problem(text) for at, text in violations(config))
    if found:
        raise ConfigErrors(found)
    return config


def load_or_minimal(path: Path | str) -> Config:
    """The configuration in a file; of one that is broken, what is needed to reach the node that runs with it.

    Whoever has broken the file must still be able to ask the node, and to stop it. Raises `ConfigErrors` if the file
    does not even say where its node is.
    """
    try:
        return load(path)
    except ConfigErrors as broken:
        try:
            tree, _ = compose(Path(path).read_text(encoding="utf-8-sig"), str(path), os.environ)
            written = tree.data()
            port = parse_address(written["listeners"][0]["url"]).port
            listeners = [{"url": f"mqtt://127.0.0.1:{port}", "anonymous": True}]
            reduced = {"version": 1, "node": written["node"], "listeners": listeners, "policies": "open"}
            return Config.model_validate(reduced, context={"folder": Path(path).parent, "parser": Parser()})
        except (OSError, ValueError, TypeError, LookupError, ConfigErrors, PydanticCustomError):
            raise broken from None


def parse(text: str, file: Path | str, *, variables: Mapping[str, str] | None = None) -> Config:
    """The configuration in a text; `file` names it in messages, and relative paths start beside it."""
    return _checked(_composed(text, file, os.environ if variables is None else variables))


def _composed(text: str, file: Path | str, variables: Mapping[str, str]) -> Source:
    tree, found = compose(text, str(file), variables)
    return Source(file=str(file), text=text, tree=tree, found=tuple(found))


def _checked(source: Source) -> Config:
    parser = Parser()
    context = {"folder": Path(source.file).parent, "parser": parser}
    data = source.tree.data()
    try:
        config = Config.model_validate(data, context=context)
    except ValidationError as broken:
        told = [*_problems(broken, source), *_repeated(broken, source)]
        raise ConfigErrors([*source.found, *told] or [_hidden(source.file)]) from None
    if source.found:
        raise ConfigErrors(source.found)
    config.remember(source, parser)
    free_data(data)
    return config


def _single(file: str, line: int, text: str) -> ConfigErrors:
    return ConfigErrors([ConfigError(text, file=file, line=line)])


def _hidden(file: str) -> ConfigError:
    return ConfigError("is not valid; mend the problems named before", file=file)


def _unreadable(config: Config) -> Iterator[Finding]:
    for index, listener in enumerate(config.listeners):
        yield from files.unreadable_files(listener, ("cert", "key", "client_ca"), "listeners", index)


def _problems(broken: ValidationError, source: Source) -> Iterator[ConfigError]:
    tree, file = source.tree, source.file
    for error in broken.errors(include_url=False):
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
                yield ConfigError(_text(error, path, tree, location), file=location.file, line=location.line)


def _repeated(broken: ValidationError, source: Source) -> Iterator[ConfigError]:
    """Ids that stand twice, which the model is asked about only when nothing else is wrong."""
    if any(not error["loc"] for error in broken.errors(include_url=False)):
        return
    tree = source.tree
    found: list[tuple[str, int, str | None]] = []
    for section in RULES:
        *_, node = tree.along((section,))
        if node is not tree and isinstance(node.value, list):
            for index, entry in enumerate(node.value):
                written = entry.value.get("id") if isinstance(entry.value, dict) else None
                if written is None:
                    found.append((section, index, None))
                elif isinstance(written.value, str):
                    found.append((section, index, written.value))
    for at, text in repeated(found):
        yield tree.location(at, source.file).problem(text)


def _follows(error: ErrorDetails, path: Place, tree: Node) -> bool:
    """Whether an error is only the consequence of one that is reported anyway."""
    nodes = list(tree.along(path))
    touched = nodes[:-1] if error["type"] == "extra_forbidden" else nodes
    if any(node.broken for node in touched) or error["type"] == "default_factory_not_called":
        return True
    # Pydantic counts only the valid entries of a list.
    return error["type"] == "too_short" and bool(nodes[-1].value)


def _text(error: ErrorDetails, path: Place, tree: Node, location: Location) -> str:
    kind, context = error["type"], error.get("ctx", {})
    name = location.name
    match kind:
        case "tidegate":
            return f"{name} {context['text']}"
        case "not_yet":
            return f"`{path[-1]}` {error['msg']} is {_NOT_SUPPORTED}"
        case "extra_forbidden":
            return _unknown_key(path, location)
        case "missing":
            return _missing(path, location)
        case "enum" | "literal_error":
            return f"{name} must be {_choice(path, tree, str(context['expected']))}"
        case "greater_than_equal":
            return f"{name} must be at least {_number(context['ge'])}; raise it"
        case "greater_than":
            return f"{name} must be more than {_number(context['gt'])}; raise it"
        case "less_than_equal":
            return f"{name} must be at most {_number(context['le'])}; lower it"
        case _ if kind in _SIMPLE:
            return f"{name} {_SIMPLE[kind]}"
        case _:
            return f"{name} is not valid ({error['msg']}); see the reference of the configuration"


_NOT_SUPPORTED: Final = "not supported by this version yet; remove it: nothing may look enforced that is not"


def _number(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _choice(path: Place, tree: Node, expected: str) -> str:
    quoted = expected.replace("'", "`")
    *_, here = tree.along(path)
    words = [word for word in quoted.replace("`", " ").replace(",", " ").split() if word != "or"]
    if meant := suggestion(here.written, words):
        return f"{quoted}; did you mean `{meant}`?"
    return f"{quoted}; write one of these" if len(words) > 1 else f"{quoted}; write that"


def _unknown_key(path: Place, location: Location) -> str:
    key = str(path[-1])
    for above, names in NOT_YET.items():
        same_place = len(above) == len(path) - 1 and all(map(_fits, above, path))
        if key in names and same_place:
            return f"`{key}` is {_NOT_SUPPORTED}"
    section = _section(path[:-1])
    known = tuple(_fields(section))
    meant = suggestion(key, known)
    if meant:
        remedy = f"did you mean `{meant}`?"
    elif known:
        remedy = f"known here: {', '.join(known)}"
    else:
        remedy = "nothing can be set here; remove it"
    where = f" in {path_text(location.path[:-1])}" if len(location.path) > 1 else ""
    return f"unknown key `{key}`{where}; {remedy}"


def _fits(pattern: str, step: int | str) -> bool:
    return pattern in ("*", step)


def _missing(path: Place, location: Location) -> str:
    field = _fields(_section(path[:-1])).get(str(path[-1]))
    described = (field.description or "") if field is not None else ""
    about = " ".join(described.split()).partition(". ")[0].rstrip(".")
    return f"{location.name} is missing; add it" + (f" ({about})" if about else "")


def _fields(section: type[BaseModel] | None) -> dict[str, FieldInfo]:
    """The keys of a section as they are written."""
    fields = section.model_fields if section is not None else {}
    return {field.alias or name: field for name, field in fields.items()}


def _section(path: Place) -> type[BaseModel] | None:
    """The model that describes what stands at a path."""
    here: Any = Config
    for step in path:
        for kind in _kinds(here):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                field = _fields(kind).get(str(step))
                found = field.annotation if field is not None else None
            else:
                # a list has an item for a number, a mapping a value for a name
                wanted = tuple if isinstance(step, int) else Mapping
                arguments = [argument for argument in get_args(kind) if argument is not Ellipsis]
                found = arguments[-1] if arguments and get_origin(kind) is wanted else None
            if found is not None:
                here = found
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
