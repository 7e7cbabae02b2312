"""From YAML text to a `Config`, or to everything that is wrong with it, each with file and line.

`parse` only looks at the text. `read_source` and `build_config` are `load` in two steps, between which documents can be
laid over the file (`overlay`). `load` also sees to it that the files that a file names can be read, so that a missing
certificate is found by `tidegate check` and not by the first client.

A configuration is let go of piece by piece (`free_configs`): to free ten thousand policies at once takes tens of
milliseconds in which no other thread runs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from tidegate.config.address import parse_address
from tidegate.config.administration import MasterKey
from tidegate.config.document import Source, read_source, source_of
from tidegate.config.flows import violations
from tidegate.config.model import Config
from tidegate.config.parser import Parser
from tidegate.config.policies import RULES, repeated
from tidegate.config.problems import ConfigErrors, DocumentPath, Finding
from tidegate.config.section import Section
from tidegate.config.tree import Node, compose
from tidegate.config.validation import model_problems
from tidegate.errors import ConfigError
from tidegate.keys.at_rest import parse_masters

_FILE_KEYS: Final = ("cert", "key", "client_ca", "crl", "ca", "rules")
"""The keys under which sections name files."""

Model = TypeVar("Model", bound=Section)


def load(path: Path | str) -> Config:
    """The configuration in a file. Raises `ConfigErrors`."""
    return build_config(read_source(path))


def build_config(source: Source) -> Config:
    """The configuration in what was read, with everything that it names. Raises `ConfigErrors`."""
    config = _checked(source)
    problems = [config.location(*path).problem(text) for path, text in _unreadable(config)]
    try:
        assert config.built
    except ConfigErrors as errors:
        problems += errors.problems
    if not problems:
        problems += (config.location(*path).problem(text) for path, text in violations(config))
    if problems:
        raise ConfigErrors(problems)
    return config


def load_or_minimal(path: Path | str) -> Config:
    """The configuration in a file. From a broken file: only what is needed to reach the node that runs with it.

    Whoever broke the file must still be able to query and stop the node. Raises `ConfigErrors` if the file does not
    even say where its node is.
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
    return _checked(source_of(text, file, os.environ if variables is None else variables))


def _checked(source: Source) -> Config:
    parser = Parser()
    config = validated(source, Config, parser)
    config.remember(source, parser)
    return config


def validated(source: Source, model: type[Model], parser: Parser | None = None) -> Model:
    """What a model makes of a file. Raises `ConfigErrors`."""
    data = source.tree.data()
    try:
        value = model.model_validate(data, context={"folder": Path(source.file).parent, "parser": parser})
    except ValidationError as broken:
        problems = [*source.problems, *model_problems(broken, source, model), *_repeated(broken, source, data)]
        hidden = ConfigError("is not valid; mend the problems named before", file=source.file)
        raise ConfigErrors(problems or [hidden]) from None
    if source.problems:
        raise ConfigErrors(source.problems)
    _free_data(data)
    return value


def _unreadable(config: Config) -> Iterator[Finding]:
    for index, listener in enumerate(config.listeners):
        yield from unreadable_files(listener, "listeners", index)
    yield from unreadable_files(config.node, "node")
    yield from unreadable_files(config.http, "http")
    yield from unreadable_files(config.keys.ktm, "keys", "ktm")
    yield from unreadable_files(config.pipeline, "pipeline")
    yield from master_key_problems(config.master_key)


def _repeated(broken: ValidationError, source: Source, data: dict[str, Any]) -> Iterator[ConfigError]:
    """Ids that stand twice, which the model is asked about only when nothing else is wrong."""
    if any(not error["loc"] for error in broken.errors(include_url=False)):
        return
    ids = [
        (section, index, entry.get("id"))
        for section in RULES
        if isinstance(rules := data.get(section), list)
        for index, entry in enumerate(rules)
        if isinstance(entry, dict) and isinstance(entry.get("id"), str | None)
    ]
    for path, text in repeated(ids):
        yield source.tree.location(path, source.file).problem(text)


# -- files that a configuration names --------------------------------------------------------------------------------


def unreadable_files(section: Section | None, *at: str | int) -> Iterator[Finding]:
    """Files named by a section, which stands at a path, that cannot be read."""
    for key in _FILE_KEYS:
        path = getattr(section, key, None)
        if not isinstance(path, Path):
            continue
        try:
            path.open("rb").close()
        except OSError as error:
            why = f"cannot be read ({error.strerror}); check its name and permissions"
            yield (*at, key), f"names `{path}`, which {why}"


def exposed_files(config: Config) -> list[tuple[int, str]]:
    """Private keys, and the file itself if secrets stand in it, that other users of the machine can read."""
    warned: list[tuple[int, str]] = []
    keys: list[tuple[DocumentPath, Path | None]] = [
        (("listeners", index, "key"), each.key or each.cert) for index, each in enumerate(config.listeners)
    ]
    keys.append((("node", "key"), config.node.key or config.node.cert))
    if config.http is not None:
        keys.append((("http", "key"), config.http.key or config.http.cert))
    if config.keys.ktm is not None:
        keys.append((("keys", "ktm", "key"), config.keys.ktm.key))
    for path, file in keys:
        if file is not None and _readable_by_others(file):
            text = f"is in `{file}`, which every user of this machine can read; run `chmod o-rwx {file}`"
            location = config.location(*path)
            warned.append((location.line, location.warning(text)))
    source = None if config.source is None else config.source.alone
    if source is not None and _readable_by_others(Path(source.file)) and any(_secrets_in(config, source.text)):
        text = f"the file holds passwords, and every user of this machine can read it; run `chmod o-rwx {source.file}`"
        warned.append((0, text))
    return warned


def _secrets_in(config: Config, text: str) -> Iterator[bool]:
    """Whether a secret stands in the text; one that comes from a variable does not."""
    for user in config.directory.users.values():
        yield bool(user.password) and str(user.password) in text
    password = urlsplit(config.store).password
    yield password is not None and f":{password}@" in text


def _readable_by_others(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def master_key_problems(master_key: MasterKey | None) -> Iterator[Finding]:
    """Why there are no master keys where they should be."""
    if master_key is not None:
        try:
            parse_masters(master_key.text())
        except ConfigError as error:
            yield ("master_key",), f"is wrong: {error}"


# -- letting go ------------------------------------------------------------------------------------------------------


def free_configs(held: list[Config]) -> None:
    """Lets go of what `held` holds; whoever calls it has no other reference to it."""
    pieces: list[Any] = []
    for config in held:
        built = config.built
        pieces += (*config.preferences, *config.views, *config.classify, *config.tests)
        if isinstance(config.policies, tuple):
            pieces += config.policies
        for people in (config.directory, built.directory):
            pieces += (*people.users.values(), *people.clients.values())
        rules = built.rules
        pieces += (*rules.preferences.preferences, *rules.views.rows, *built.presences)
        if rules.policies is not None:
            pieces += rules.policies.pieces()
        pieces += () if config.source is None else _nodes(config.source.tree)
    del config, built, rules, people
    held.clear()
    pieces.reverse()  # what holds others goes before them
    while pieces:
        pieces.pop()


def _free_data(data: Any) -> None:
    heap = [data]
    while heap:
        match heap.pop():
            case dict() as entries:
                heap += entries.values()
                entries.clear()
            case list() as items:
                heap += items
                items.clear()


def _nodes(tree: Node) -> list[Node]:
    found = [tree]
    for node in found:  # grows while it is walked through
        match node.value:
            case dict() as entries:
                found += entries.values()
            case list() as items:
                found += items
    return found
