"""What people write on the command line and in files, as the bodies of documents.

An empty text takes something away: `--role ''` all roles, `--set shift=` an attribute, `--when ''` the condition.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tidegate.cli import terminal
from tidegate.cli.options import attribute
from tidegate.errors import ConfigError, TidegateError

_MOST: Final = 16 << 10  # characters of a file with a public key


def texts(given: Sequence[str]) -> list[str]:
    return [each.strip() for one in given for each in one.split(",") if each.strip()]


def one_or_many(given: Sequence[str]) -> str | list[str]:
    """As people write it in the file: a single one stands alone."""
    return given[0] if len(given) == 1 else list(given)


def attributes(given: Sequence[str], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`NAME=VALUE` each, over those there were; a value is JSON, or else text, and an empty one removes the name."""
    found = dict(before or {})
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            terminal.usage(f"`{text}` is no attribute: write NAME=VALUE, or NAME= to remove it")
        if value:
            found[name] = attribute(text)[1]
        else:
            found.pop(name, None)
    return found


def public_key(given: str | None) -> str | None:
    """A public key: the text itself, or `@FILE` that holds it. It is looked at here, so that no private one is sent."""
    from tidegate.errors import KeysError
    from tidegate.keys import PublicKey

    if not given:
        return given
    text = given
    if given.startswith("@"):
        file = Path(given.removeprefix("@"))
        try:
            with file.open(encoding="ascii") as stream:
                text = stream.read(_MOST)
        except OSError as broken:
            raise TidegateError(f"cannot read {file}: {broken.strerror}") from None
        except UnicodeDecodeError:
            raise TidegateError(f"{file} holds no public key: make a pair with `tidegate key pair`") from None
    try:
        return str(PublicKey.parse(text))
    except KeysError as wrong:
        raise TidegateError(f"the public key cannot be used: {wrong}") from None


def password() -> str:
    from tidegate.cli.passwd import read_password

    try:
        found = read_password(from_stdin=True).decode()
    except UnicodeDecodeError:
        raise TidegateError("the password is no UTF-8") from None
    if not found:
        raise TidegateError("the password is empty: write it to standard input")
    return found


def entries(file: str, section: str) -> list[dict[str, Any]]:
    """The entries of a file, or of standard input (`-`): one, a list, or a list under the name of its section."""
    text, name = _read(file)
    found = _mapping(text, name, section)
    if isinstance(found, dict) and section in found:
        if more := sorted(found.keys() - {section}):
            raise ConfigError(f"holds more than `{section}`: remove {', '.join(f'`{key}`' for key in more)}", file=name)
        found = found[section]
    many = found if isinstance(found, list) else [found]
    if not many or not all(isinstance(each, dict) for each in many):
        raise ConfigError(f"holds no entries as in the section `{section}` of a configuration", file=name)
    return many


def rules(file: str, sections: Mapping[str, str]) -> list[dict[str, Any]]:
    """The entries of a rules file, or of standard input (`-`), each as `{"id": …, sort: …}`.

    `sections` says for each list what sort its entries are.
    """
    from tidegate.config import ConfigErrors
    from tidegate.config.tree import compose

    text, name = _read(file)
    tree, problems = compose(text, name, {})
    if problems:
        raise ConfigErrors(problems)
    found = tree.data()
    if not isinstance(found, dict) or found.keys() - {"version", *sections}:
        names = ", ".join(f"`{key}`" for key in sections)
        raise ConfigError(f"is no rules file; write {names}, with lists below them", file=name)
    made: list[dict[str, Any]] = []
    for section, sort in sections.items():
        many = found.get(section) or []
        for entry in many if isinstance(many, list) else [many]:
            if not isinstance(entry, dict) or not isinstance(id := entry.get("id"), str) or not id:
                raise ConfigError(f"an entry of `{section}` has no `id`; say which rule it is", file=name)
            made.append({"id": id, sort: {key: value for key, value in entry.items() if key != "id"}})
    if not made:
        raise ConfigError("holds no rules; write at least one", file=name)
    return made


def _read(file: str) -> tuple[str, str]:
    """What a file holds, and what it is called."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as broken:
        raise TidegateError(f"cannot read {file}: {broken.strerror}") from None
    except UnicodeDecodeError:
        raise TidegateError(f"{file} is no UTF-8 text") from None
    return text, "standard input" if file == "-" else file


def _mapping(text: str, name: str, section: str) -> Any:
    """Read as configuration files are; a list is put under its section, where those have it."""
    import yaml

    from tidegate.config import ConfigErrors
    from tidegate.config.tree import compose

    listed = False
    try:
        match next(
            event
            for event in yaml.parse(text)
            if not isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent)
        ):
            case yaml.SequenceStartEvent():
                listed = True
            case yaml.MappingStartEvent():
                pass
            case _:
                return None
    except yaml.YAMLError:
        pass  # told below, with its place
    try:
        if listed:  # one step to the right, so that it can stand below the section
            lines = (f" {line}" for line in text.splitlines(keepends=True) if line.rstrip() != "---")
            text = f"{section}:\n{''.join(lines)}"
        tree, problems = compose(text, name, os.environ)
        if problems:
            raise ConfigErrors(problems)
    except ConfigErrors as wrong:
        if not listed:
            raise
        moved = [ConfigError(str(each.args[0]), file=each.file, line=max(each.line - 1, 1)) for each in wrong.problems]
        raise ConfigErrors(moved) from None
    return tree.data()
