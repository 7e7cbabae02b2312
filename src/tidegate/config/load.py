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

from tidegate.config.address import parse_address
from tidegate.config.checks import RULES, repeated
from tidegate.config.deferred_free import free_data
from tidegate.config.document import Source, read_source, source_of
from tidegate.config.files import master_key_problems, unreadable_files
from tidegate.config.flows import violations
from tidegate.config.model import Config
from tidegate.config.parser import Parser
from tidegate.config.problems import ConfigErrors, Finding
from tidegate.config.tree import compose
from tidegate.config.validation import model_problems
from tidegate.errors import ConfigError


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
    context = {"folder": Path(source.file).parent, "parser": parser}
    data = source.tree.data()
    try:
        config = Config.model_validate(data, context=context)
    except ValidationError as broken:
        problems = [*source.problems, *model_problems(broken, source, Config), *_repeated(broken, source)]
        hidden = ConfigError("is not valid; mend the problems named before", file=source.file)
        raise ConfigErrors(problems or [hidden]) from None
    if source.problems:
        raise ConfigErrors(source.problems)
    config.remember(source, parser)
    free_data(data)
    return config


def _unreadable(config: Config) -> Iterator[Finding]:
    for index, listener in enumerate(config.listeners):
        yield from unreadable_files(listener, "listeners", index)
    yield from unreadable_files(config.http, "http")
    yield from unreadable_files(config.keys.ktm, "keys", "ktm")
    yield from unreadable_files(config.pipeline, "pipeline")
    yield from master_key_problems(config.master_key)


def _repeated(broken: ValidationError, source: Source) -> Iterator[ConfigError]:
    """Ids that stand twice, which the model is asked about only when nothing else is wrong."""
    if any(not error["loc"] for error in broken.errors(include_url=False)):
        return
    tree = source.tree
    ids: list[tuple[str, int, str | None]] = []
    for section in RULES:
        *_, node = tree.along((section,))
        if node is not tree and isinstance(node.value, list):
            for index, entry in enumerate(node.value):
                written = entry.value.get("id") if isinstance(entry.value, dict) else None
                if written is None:
                    ids.append((section, index, None))
                elif isinstance(written.value, str):
                    ids.append((section, index, written.value))
    for path, text in repeated(ids):
        yield tree.location(path, source.file).problem(text)
