"""Parses the conditions, subjects, topic filters and views of one configuration, each text once.

Thousands of policies share a few conditions, subjects and topics. Each is parsed when the file is checked, and
the same value is used when the rules are built. A text that is wrong raises `ConfigError` every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from pydantic import ValidationInfo

from tidegate import policy
from tidegate.errors import ConfigError
from tidegate.predicate import BUDGET, NAMES, Function, Predicate, Ranking, compile, load_function
from tidegate.predicate.functions import FUNCTIONS
from tidegate.predicate.syntax import Macros

_TAKEN = frozenset((*FUNCTIONS, *(macro.value for macro in Macros), "has", "age"))

LEVEL_ROOTS = frozenset("s")
"""What the condition of a level may speak of."""


class Parser:
    """Parses the texts of one configuration, and remembers what each means."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.missing: set[str] = set()
        """Functions that could not be loaded: conditions that call them are not to blame."""
        self.ranking: Ranking | None = policy.ranking(policy.ORDER)
        """How conditions compare levels; None: that is not known."""
        self._predicates: dict[tuple[str, frozenset[str], int], Predicate] = {}
        self._selector = cache(policy.Selector.parse)
        self._template = cache(policy.Template.parse)
        self._view = cache(policy.View.parse)

    def learn(self, reference: str) -> None:
        """Takes up the function that `package.module:name` refers to."""
        try:
            function = _loaded(reference)
            if function.name in _TAKEN:
                raise ConfigError(f"`{function.name}` is a function of the language already: call it otherwise")
            if function.name in self.functions:
                raise ConfigError(f"there is a function `{function.name}` already: call one of the two otherwise")
        except ConfigError:
            self.missing.add(reference.rpartition(":")[2])
            raise
        self.functions[function.name] = function

    def known_functions(self) -> tuple[str, ...]:
        """The names that conditions can call."""
        return (*self.functions, *sorted(_TAKEN))

    def predicate(self, text: str, names: frozenset[str] = NAMES, budget: int = BUDGET) -> Predicate:
        """The condition of a text."""
        predicate = self._predicates.get((text, names, budget))
        if predicate is None:
            predicate = compile(text, functions=self.functions, names=names, budget=budget, ranking=self.ranking)
            self._predicates[text, names, budget] = predicate
        return predicate

    def selector(self, text: str | Sequence[str]) -> policy.Selector:
        """Whom a subject, or a list of subjects, selects."""
        return self._selector(text if isinstance(text, str) else tuple(text))

    def template(self, text: str) -> policy.Template:
        """A topic filter that may hold placeholders."""
        return self._template(text)

    def filter(self, text: str) -> str:
        """A topic filter without placeholders, as it is matched."""
        fixed = self.template(text).fixed
        return policy.plain_filter(text) if fixed is None else fixed

    def view(self, keep: str | Sequence[str]) -> policy.View:
        """What `keep` leaves."""
        return self._view(keep if isinstance(keep, str) else tuple(keep))


def _loaded(reference: str) -> Function:
    try:
        return load_function(reference)
    except ConfigError as error:
        why = str(error.args[0]).removeprefix(f"function {reference!r}: ")
        if error.__cause__ is None:
            raise ConfigError(f"it is no function for conditions: {why}") from error
        raise ConfigError(f"it cannot be imported ({why}): check its name, and that Python finds it") from error


def parser_of(info: ValidationInfo) -> Parser | None:
    """The parser of the file being checked; None for a configuration that is made in Python."""
    parser = (info.context or {}).get("parser")
    return parser if isinstance(parser, Parser) else None


def problem_text(error: ConfigError) -> str:
    """An error of the policies' own parsers as "what is wrong; how to mend it".

    The remedy begins at the first colon that stands neither in backquotes, where users' own text is, nor in
    parentheses.
    """
    text = str(error.args[0])
    quoted, depth = False, 0
    for at, character in enumerate(text):
        if character == "`":
            quoted = not quoted
        elif character in "()" and not quoted:
            depth += 1 if character == "(" else -1
        elif depth == 0 and not quoted and text.startswith(": ", at):
            return f"{text[:at]}; {text[at + 2 :]}"
    return text if "; " in text else f"{text}; write it otherwise"
