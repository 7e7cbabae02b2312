"""Everything the gate decides by, as one immutable version. A change of policy is another one of these.

The configuration builds it; the gate never asks where it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tidegate.monitor import Monitors
from tidegate.policy import Classification, Environment, Levels, Policies, Preferences, Views
from tidegate.policy.brokering import OPEN, Brokering
from tidegate.policy.capability import Proof
from tidegate.policy.domains import NO_DOMAINS, Domains
from tidegate.policy.scopes import ALONE, ScopeGraph
from tidegate.predicate import Function

_NONE: Mapping[str, Environment] = MappingProxyType({})
_NO_FUNCTIONS: Mapping[str, Function] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """What the administrator and the owners say, and what words mean here."""

    version: str = "1-000000000000"
    """formats.md: a number that increases, and the first 12 hexadecimal digits of the SHA-256 of the content."""
    domain: str = ""
    """Whose people are named without a domain."""
    domains: Domains = field(default_factory=lambda: NO_DOMAINS)
    """What is believed of other domains, by their name."""
    formerly: frozenset[str] = frozenset()
    """What the domain was called before: messages that were stored then are still of its people."""
    policies: Policies | None = None
    """None is `policies: open`: access policies restrict nothing. Without any policy nothing is allowed."""
    capabilities: Proof | None = None
    """What is at least demanded of whoever has a capability; None: nobody has one here."""
    ceiling: tuple[str, ...] = ()
    """Topic filters within which publishers may say who reads their own messages; none: they may not."""
    preferences: Preferences = field(default_factory=lambda: Preferences(()))
    brokering: Brokering = OPEN
    """Over which links what came over which may leave, by their types."""
    space: ScopeGraph = ALONE
    """The scopes of the node, and the links between them."""
    levels: Levels = field(default_factory=Levels)
    announces_floor: bool = False
    """Whether MQTT 5 subscribers receive the floor of each message as a user property."""
    views: Views = field(default_factory=lambda: Views(()))
    classification: Classification = field(default_factory=Classification)
    environment: Environment = field(default_factory=Environment)
    environments: Mapping[str, Environment] = field(default_factory=lambda: _NONE)
    """Of the listeners that have their own, by name."""
    holds: bool = False
    """`subscribe: hold`: what nobody may read yet is granted and waits."""
    functions: Mapping[str, Function] = field(default_factory=lambda: _NO_FUNCTIONS)
    """What administrators added to the language of conditions."""
    protect: tuple[str, ...] = ()
    """Topic filters whose messages the node seals."""
    end_to_end: tuple[str, ...] = ()
    """Topic filters whose messages come sealed: the node never sees what is in them."""
    ingest: tuple[str, ...] = ()
    """Topic filters whose messages are written down before they are acknowledged."""
    monitors: Monitors = field(default_factory=Monitors)
    """The automata on links, in file order."""
    unenforced: frozenset[str] = frozenset()
    """Scopes in which everything passes, and is only decided (`enforce: false`)."""
    lenient: RuleSet | None = None
    """The same without the rules that are only watched (`enforce: false`); None: there are none."""
    enforcing: bool = True
    """Whether anything is obeyed. Of a scope that does not enforce it is False: see `in_force`."""
    renames: bool = field(init=False)
    """Whether a message may be delivered under another topic than the one it was published under."""

    def __post_init__(self) -> None:
        renamed = any(share.here != share.there for link in self.space.links for share in link.shares)
        renamed = renamed or any(link.into is not None for link in self.space.remote)  # under any name there
        object.__setattr__(self, "renames", renamed or any(each.renames for each in self.monitors))

    def originals(self, scope: str, filter: str) -> frozenset[str]:
        """Filters of the topics under which something may have been published that matches a filter in a scope."""
        if not self.renames or filter.startswith("$"):
            return frozenset((filter,))
        if any(each.renames for each in self.monitors):
            return frozenset("#")  # a monitor may call anything by any name
        return self.space.originals(scope, filter)

    @property
    def keyed(self) -> bool:
        """Whether there are topic keys."""
        return bool(self.protect or self.end_to_end)

    def in_force(self, scope: str) -> RuleSet:
        """What a scope obeys: these rules, those of them that are not only watched, or none at all.

        Where that is not these themselves, a shadow of the scope decides by these (`scope.shadow`).
        """
        obeyed = self if self.lenient is None else replace(self.lenient, version=self.version, formerly=self.formerly)
        if scope not in self.unenforced:
            return obeyed
        return replace(
            self,
            policies=None,
            preferences=Preferences(()),
            views=Views(()),
            monitors=Monitors(),
            holds=False,
            announces_floor=False,
            protect=(),
            end_to_end=(),
            lenient=None,
            enforcing=False,
        )

    def shadows(self, scope: str) -> bool:
        """Whether something is decided in a scope that is not obeyed."""
        return scope in self.unenforced or self.lenient is not None

    def prepare(self) -> None:
        """Compiles all conditions now, in a thread, so that the loop does not have to."""
        policies = self.policies.policies if self.policies is not None else ()
        for when in (*(rule.when for rule in policies), *(rule.when for rule in self.preferences.preferences)):
            if when is not None:
                when.prepare()
        self.preferences.reads  # noqa: B018  looked for here

    def surroundings(self, listener: str) -> Environment:
        """The environment of whoever is connected there."""
        return self.environments.get(listener, self.environment)
