"""The `tests` of a configuration: what its administrator expects of the rules, tried whenever they are read.

Every test is decided as `tidegate explain` decides it; one that fails tells the command that shows why.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tidegate.config import Config, ConfigErrors, RuleTest
from tidegate.config.problems import suggestion
from tidegate.errors import ConfigError
from tidegate.explain.explanation import Explanation
from tidegate.explain.question import Question
from tidegate.explain.routes import NO_LINK, NOT_SHARED
from tidegate.explain.what_if import CONNECT, WhatIf
from tidegate.gate.decision import UNSEEN
from tidegate.gate.stages.levels import PUBLISHER as PUBLISHERS_DEMAND
from tidegate.gate.stages.levels import SUBSCRIBER as SUBSCRIBERS_DEMAND
from tidegate.gate.stages.view import PUBLISHER as PUBLISHERS_VIEW
from tidegate.gate.stages.where import WHERE
from tidegate.policy import DEFAULT, Effect

_NODES_OWN: Final = (
    DEFAULT,
    "reserved",
    PUBLISHERS_DEMAND,
    SUBSCRIBERS_DEMAND,
    PUBLISHERS_VIEW,
    UNSEEN.rule,
    WHERE,
    NOT_SHARED,
    NO_LINK,
    CONNECT,
)
"""Rules that stand in no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResults:
    passed: int
    problems: tuple[ConfigError, ...]
    """One for each that failed."""
    lasting: tuple[ConfigError, ...]
    """Those of them that would fail at any time of the day."""
    warnings: tuple[tuple[int, str], ...]
    """(line, text) of what passes now but need not tomorrow."""


def run_tests(config: Config, *, file: str = "") -> TestResults:
    if not config.tests:
        return TestResults(passed=0, problems=(), lasting=(), warnings=())
    what_if = WhatIf(config)
    problems: list[ConfigError] = []
    lasting: list[ConfigError] = []
    warnings: list[tuple[int, str]] = []
    for index, case in enumerate(config.tests):
        line = config.location("tests", index).line
        question = question_of(case, config)
        try:
            explanation = what_if.explain(question)
        except ConfigError as error:
            problems.append(ConfigError(f"`tests[{index}]` cannot be run: {error}", file=file, line=line))
            lasting.append(problems[-1])
            continue
        wrong = _difference(case, explanation, config)
        timed = case.at is None and explanation.clocked
        if wrong:
            why = f"`tests[{index}]` failed: {wrong}; see why: {command(question, file)}"
            problems.append(ConfigError(why, file=file, line=line))
            if not timed:
                lasting.append(problems[-1])
        elif timed:
            warnings.append((line, f"`tests[{index}]` depends on the clock; say when with `at`"))
    passed = len(config.tests) - len(problems)
    return TestResults(passed=passed, problems=tuple(problems), lasting=tuple(lasting), warnings=tuple(warnings))


def verify_tests(config: Config, *, file: str = "") -> None:
    """Raises `ConfigErrors` with every test of the configuration that fails, for a node that is to use it.

    A test that depends on the clock and does not say when is no reason to refuse: the same file would be good in the
    morning and broken at night, just when somebody's access has to be revoked. `tidegate check` tells of it.
    """
    problems = run_tests(config, file=file).lasting
    if problems:
        raise ConfigErrors(problems)


def question_of(case: RuleTest, config: Config) -> Question:
    payload = case.payload
    if payload is None:
        content = b""
    else:
        content = (payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)).encode()
    moment = case.moment(config.built.rules.environment.zone)
    return Question.about(
        case.action,
        tuple(case.properties.items()),
        subject=case.subject,
        topic=case.topic,
        publisher=case.publisher,
        payload=content,
        qos=case.qos,
        retain=case.retain,
        at=None if moment is None else moment.timestamp(),
        overrides=case.set,
    )


def _difference(case: RuleTest, explanation: Explanation, config: Config) -> str:
    """What was expected and what came; empty if they are the same."""
    by = case.by
    if explanation.allowed is (case.expect is Effect.ALLOW) and (by is None or by in explanation.rules):
        return ""
    wanted = case.expect.value.upper()
    if by is not None:
        wanted += f" by {by}"
        if by not in (known := _rule_ids(config)):
            meant = suggestion(by, known)
            wanted += " (no rule is called so" + (f"; did you mean `{meant}`?)" if meant else ")")
    return f"expected {wanted}, got {explanation.headline}"


def _rule_ids(config: Config) -> list[str]:
    rules = config.built.rules
    return [
        *(each.id for each in (rules.policies.policies if rules.policies is not None else ())),
        *(each.id for each in rules.preferences.preferences),
        *(each.id for each in rules.views.rows),
        *(each.id for each in rules.monitors),
        *_NODES_OWN,
    ]


def command(question: Question, file: str) -> str:
    """The command line that explains it."""
    words = ["tidegate", "explain", file or "FILE", "--as", question.subject]
    words += ["--action", question.action.value, "--topic", question.topic]
    if question.publisher is not None:
        words += ["--from", question.publisher]
    if question.payload:
        words += ["--payload", question.payload.decode(errors="replace")]
    if question.qos:
        words += ["--qos", str(question.qos)]
    if question.retain:
        words.append("--retain")
    for name, value in (*question.properties, *question.terms):
        words += ["--property", f"{name}={value}"]
    if question.at is not None:
        words += ["--at", datetime.fromtimestamp(question.at, UTC).isoformat().replace("+00:00", "Z")]
    for path, value in question.overrides.items():
        words += ["--set", f"{path}={_written(value)}"]
    return shlex.join(words)


def _written(value: Any) -> str:
    """So that `--set` reads it as the same value: JSON, or a text that is none."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value
    return json.dumps(value, ensure_ascii=False)
