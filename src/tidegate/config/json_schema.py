"""What the configuration can say, written down twice: as JSON schema for editors and as a page for people.

Both are made from the model and nothing else, so they cannot disagree with what the node accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from tidegate.config.model import Config
from tidegate.config.section import descriptions
from tidegate.config.units import duration_text, size_text

Section = dict[str, Any]

_KINDS: Final = ("duration", "size", "URL", "time", "condition")
_INTRODUCTION: Final = """\
# Configuration

One YAML file, checked as a whole: `tidegate check FILE` names every problem with file and line.
This page is made from the schema by `tidegate schema --markdown`; `tidegate schema` prints the
[JSON schema](tidegate.schema.json) for editors.

- **Durations** are written `500ms`, `3s`, `5m`, `2h`, `7d`, or as a number of seconds.
- **Sizes** are written `64KiB`, `1MiB`, `64KB`, or as a number of bytes.
- **`${NAME}`** in a value is replaced by the environment variable `NAME`, which must be set; write `$${` for
  a literal `${`.
- **Paths** are relative to the folder of the file.
- Keys that the schema does not know are errors.
"""


class _Described(GenerateJsonSchema):
    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        json_schema = super().model_schema(schema)
        section: type[BaseModel] = schema["cls"]
        for key, text in descriptions(section).items():
            json_schema["properties"][key]["description"] = text
        return json_schema


def schema() -> Section:
    """The JSON schema of the file."""
    json_schema = Config.model_json_schema(schema_generator=_Described)
    for definition in (json_schema, *json_schema["$defs"].values()):
        for about in definition.get("properties", {}).values():
            _tidy(about)
            if "$ref" in about and about["description"] == _resolved(json_schema, about).get("description"):
                del about["description"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **json_schema, "title": "tidegate.yaml"}


def _tidy(about: Section) -> None:
    """Write defaults as people write them, and drop titles that only repeat the key."""
    kinds = {about.get("title"), *(each.get("title") for each in about.get("anyOf", ()))}
    default = about.get("default")
    if default is not None and "duration" in kinds:
        about["default"] = duration_text(default)
    elif default is not None and "size" in kinds:
        about["default"] = size_text(default)
    if about.get("title") not in _KINDS:
        about.pop("title", None)


def markdown() -> str:
    """The reference page: one table per section, in the order of the model."""
    root = schema()
    lines = [_INTRODUCTION]
    for path, section in _sections(root, root, ""):
        lines.append(f"## {f'`{path}`' if path else 'Top level'}\n")
        if path:
            lines.append(f"{_one_line(section.get('description', ''))}\n")
        if not section.get("properties"):
            continue
        lines.append("| key | value | default | meaning |")
        lines.append("|---|---|---|---|")
        required = section.get("required", ())
        for key, about in section["properties"].items():
            default = "**required**" if key in required else _default(about)
            meaning = _one_line(about.get("description") or _resolved(root, about)["description"])
            lines.append(f"| `{key}` | {_kind(root, about)} | {default} | {meaning} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _sections(root: Section, section: Section, path: str) -> Iterator[tuple[str, Section]]:
    yield path, section
    for key, about in section.get("properties", {}).items():
        seen: set[str] = set()
        for below, reference in _below(about, f"{path}.{key}" if path else key):
            subsection = _resolved(root, {"$ref": reference})
            # what may stand alone or in a list is the same thing
            if subsection.get("type") == "object" and reference not in seen:
                seen.add(reference)
                yield from _sections(root, subsection, below)


def _below(about: Section, path: str) -> Iterator[tuple[str, str]]:
    """The sections that a value may be or hold, and how one gets there."""
    for option in _options(about):
        if "$ref" in option:
            yield path, option["$ref"]
        if "items" in option:
            yield from _below(option["items"], f"{path}[]")
        if isinstance(option.get("additionalProperties"), dict):
            yield from _below(option["additionalProperties"], f"{path}.NAME")


def _options(about: Section) -> Iterator[Section]:
    """What a value may be, but for nothing."""
    parts = about.get("anyOf") or about.get("oneOf")
    if parts is None or about.get("title") in _KINDS:
        if about.get("type") != "null":
            yield about
        return
    for each in parts:
        yield from _options(each)


def _resolved(root: Section, about: Section) -> Section:
    return root["$defs"][about["$ref"].rpartition("/")[2]] if "$ref" in about else about


def _kind(root: Section, about: Section) -> str:
    about = _resolved(root, about) | {key: value for key, value in about.items() if key == "title"}
    if about.get("title") in _KINDS:
        return str(about["title"])
    if "enum" in about or "const" in about:
        return ", ".join(f"`{choice}`" for choice in about.get("enum", [about.get("const")]))
    if "anyOf" in about or "oneOf" in about:
        return " or ".join(dict.fromkeys(_kind(root, each) for each in _options(about)))
    match about.get("type"):
        case "array":
            inner = _kind(root, about["items"])
            return f"list of ({inner})" if " or " in inner else f"list of {inner}"
        case "object" if isinstance(about.get("additionalProperties"), dict):
            return "mapping by name"
        case "object":
            return "mapping"
        case "boolean":
            return "`true`, `false`"
        case "integer" | "number":
            return "number" + _range(about)
        case "string":
            return "path" if about.get("format") == "path" else "text"
        case _:
            return "anything"


def _range(about: Section) -> str:
    low, high = about.get("minimum"), about.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    return f", at least {low}" if low is not None else ""


def _default(about: Section) -> str:
    default = about.get("default")
    match default:
        case None | "" | [] | {}:
            return ""
        case bool():
            return f"`{str(default).lower()}`"
        case list():
            return f"`[{', '.join(map(str, default))}]`"
        case float() if default.is_integer():
            return f"`{default:.0f}`"
        case _:
            return f"`{default}`"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
