"""The configuration that is tried: a whole file, or some keys that take the place of those of another one.

What is wrong with it is told with its own name and line. Only keys that decide about messages can be given alone: a
key that a replay does not look at is refused, so that nobody takes silence for consent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tidegate.config import Config, ConfigErrors, Source, build_config, load, read_source
from tidegate.config.problems import remedy
from tidegate.config.tree import Node
from tidegate.errors import ConfigError

WHOLE: Final = frozenset(("node", "listeners"))  # a file that has one of these is a whole configuration
KEYS: Final = (
    "policies",
    "combining",
    "preferences",
    "views",
    "view_default",
    "levels",
    "brokering",
    "classify",
    "environment",
    "functions",
)
"""What can be replaced by itself."""
_NOT_TRIED: Final = frozenset(("version", "tests"))
"""What says nothing about messages: the tests of a file are for `tidegate check`."""
_WHY: Final[Mapping[str, str]] = {
    "directory": "who people are is taken as it was recorded",
    "monitors": "monitors are not replayed",
    "rules": "rules of publishers are not recorded",
    "capabilities": "capabilities are not recorded",
}


def candidate(base: Path, file: Path) -> Config:
    """What `file` says, over what `base` says if it does not say everything. Raises `ConfigErrors`."""
    given = read_source(file)
    keys = _entries(given)
    if WHOLE & keys.keys():
        return load(file)
    errors = [*given.problems]
    for key in keys:
        if key not in KEYS and key not in _NOT_TRIED:
            errors.append(ConfigError(_refused(key), file=str(file), line=given.tree.key_lines.get(key, 0)))
    if not errors and not keys.keys() - _NOT_TRIED:
        errors.append(ConfigError(f"says nothing; write some of {', '.join(KEYS)}", file=str(file)))
    if errors:
        raise ConfigErrors(errors)
    return overlay(read_source(base), given, without=_NOT_TRIED)


def _refused(key: str) -> str:
    if (why := _WHY.get(key)) is not None:
        return f"`{key}` cannot be replaced alone, and a replay would not look at it: {why}; leave it out"
    mend = remedy(key, KEYS, "leave it out, or write a whole configuration")
    return f"`{key}` is not among what can be replaced ({', '.join(KEYS)}); {mend}"


def overlay(base: Source, given: Source, *, without: Collection[str] = ("version",)) -> Config:
    """What `given` says in the place of what `base` says, key by key.

    The base is valid by itself, so that whatever is wrong is wrong with what was replaced.
    """
    file = given.file
    tree = replace(base.tree, value=dict(_entries(base)), key_lines=dict(base.tree.key_lines))
    assert isinstance(tree.value, dict)
    for key, node in _entries(given).items():
        if key not in without:
            tree.value[key] = node
            tree.key_lines[key] = given.tree.key_lines.get(key, node.line)
    try:
        # relative paths start beside the base; conditions are found in the text that they were written in
        return build_config(Source(file=base.file, text=given.text, tree=tree))
    except ConfigErrors as wrong:
        errors = [ConfigError(str(each.args[0]), file=str(file), line=each.line) for each in wrong.problems]
        raise ConfigErrors(errors) from None


def _entries(source: Source) -> dict[str, Node]:
    assert isinstance(source.tree.value, dict)
    return dict(source.tree.value)
