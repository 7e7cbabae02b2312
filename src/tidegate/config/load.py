"""From YAML text to a `Config`, or to everything that is wrong with it, each with file and line.

`parse` only looks at the text. `read` and `complete` are `load` in two steps, between which documents can be laid over
the file (`overlay`). `load` also reads the file and sees to it that the files it names can be
read, so that a missing certificate is found by `tidegate check` and not by the first client.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from tidegate.config import administration, files, keys, pipeline
from tidegate.config.address import parse_address
from tidegate.config.checks import RULES, Finding, repeated
from tidegate.config.deferred_free import free_data
from tidegate.config.document import Source, read_source, source_of
from tidegate.config.flows import violations
from tidegate.config.model import Config
from tidegate.config.parser import Parser
from tidegate.config.problems import ConfigErrors
from tidegate.config.tree import compose
from tidegate.config.validation import model_problems
from tidegate.errors import ConfigError


def load(path: Path | str) -> Config:
    """The configuration in a file. Raises `ConfigErrors`."""
    return build_config(read_source(path))


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
    return _checked(source_of(text, file, os.environ if variables is None else variables))


def _checked(source: Source) -> Config:
    parser = Parser()
    context = {"folder": Path(source.file).parent, "parser": parser}
    data = source.tree.data()
    try:
        config = Config.model_validate(data, context=context)
    except ValidationError as broken:
        told = [*model_problems(broken, source, Config), *_repeated(broken, source)]
        raise ConfigErrors([*source.problems, *told] or [_hidden(source.file)]) from None
    if source.problems:
        raise ConfigErrors(source.problems)
    config.remember(source, parser)
    free_data(data)
    return config


def _hidden(file: str) -> ConfigError:
    return ConfigError("is not valid; mend the problems named before", file=file)


def _unreadable(config: Config) -> Iterator[Finding]:
    for index, listener in enumerate(config.listeners):
        yield from files.unreadable_files(listener, ("cert", "key", "client_ca"), "listeners", index)


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
