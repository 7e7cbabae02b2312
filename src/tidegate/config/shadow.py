"""`enforce: false`: what is decided and audited, and not obeyed: everything, one scope, or one rule.

It is said wherever somebody looks, so that nobody has it by accident.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tidegate import policy
from tidegate.config.problems import Finding

if TYPE_CHECKING:
    from tidegate.config.model import Config

SECTIONS: Final = ("policies", "preferences", "views", "monitors")
"""Sections whose rules may be watched one by one."""


def unenforced(config: Config) -> list[str]:
    """The scopes in which nothing is enforced."""
    return [name for name, scope in config.scopes.items() if not (config.enforce and scope.enforce)]


def watched(config: Config) -> list[str]:
    """The ids of the rules that are only watched."""
    return [id for _, id, _ in _watched(config)]


def problems(config: Config) -> Iterator[Finding]:
    """What cannot be watched."""
    if config.brokering.expanded and unenforced(config):
        yield (
            ("brokering", "preset"),
            (
                "`rbac` makes scopes of its own, between which nothing passes without it; it cannot be watched: remove "
                "`enforce: false`, or use another preset"
            ),
        )

    for name in unenforced(config):
        if config.scopes[name].bridges:
            yield (
                ("scopes", name, "bridges"),
                "cannot be used while the scope does not enforce; remove `enforce: false`",
            )


def warnings(config: Config) -> Iterator[Finding]:
    """Whatever is not enforced is said, loudly."""
    if not config.enforce:
        yield ("enforce",), "is `false`: NOTHING IS ENFORCED. All passes; what would be denied is audited"
    else:
        for name in unenforced(config):
            text = f"is `false`: THE SCOPE {name} IS NOT ENFORCED. All passes; what would be denied is audited"
            yield ("scopes", name, "enforce"), text
    for path, id, rule in _watched(config):
        text = f"is `false`: {id} IS NOT ENFORCED, and only watched"
        if path[0] == "policies" and rule.effect is policy.Effect.ALLOW:
            text += "; it allows nothing, and nothing that it allows is counted"
        yield (*path, "enforce"), text


def _watched(config: Config) -> Iterator[tuple[tuple[str, int], str, Any]]:
    for section in SECTIONS:
        entries = getattr(config, section)
        for index, entry in enumerate(entries if isinstance(entries, tuple) else ()):
            if not entry.enforce:
                yield (section, index), entry.id or f"{section}[{index}]", entry


def digested(dumped: dict[str, Any]) -> dict[str, Any]:
    """A rule or a scope as it counts for the version of the rules: what is enforced is as it always was."""
    return {name: value for name, value in dumped.items() if name != "enforce" or value is False}
