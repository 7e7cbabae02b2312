"""What decides, in the configuration: policies, preferences, levels, trust and views.

Every text is parsed here, so that errors name its place: subjects, topics, conditions, JSON pointers. The values stay
texts; `build` makes the rules of the gate from them. Keys that nothing enforces yet are refused (`validation.NOT_YET`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError

from tidegate import policy
from tidegate.config.directory import AttributeName
from tidegate.config.parser import LEVEL_ROOTS, Parser, parser_of, problem_text
from tidegate.config.problems import Finding, combined_problems, refusal, remedy, requires
from tidegate.config.section import LIST, ONE, CheckedSection, Identity, Name, OneOrMore, Person, Section, beside, shape
from tidegate.config.units import Duration, Moment, Switch
from tidegate.errors import ConfigError
from tidegate.policy.certificate_packets import LONGEST
from tidegate.policy.environment import CLOCK
from tidegate.policy.levels import ORDER
from tidegate.policy.pointers import MAX_POINTERS
from tidegate.predicate import NAMES, PredicateError

if TYPE_CHECKING:
    from tidegate.config.model import Config

RULES: Final = ("policies", "preferences", "views", "monitors")
"""Sections whose entries have ids."""
CERTIFICATE_FILES: Final = (".pem", ".crt")
BUILT_IN: Final = "builtin:"
"""How ids of the node's own rules begin."""
_RESERVED: Final = (BUILT_IN, "rule:")
_INSTEAD: Final = {"and": "&&", "or": "||", "=": "==", "&": "&&", "|": "||"}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MAX_ID: Final = 200


# -- texts -----------------------------------------------------------------------------------------------------------


def parses(parse: Callable[[Parser, str], object]) -> AfterValidator:
    """Refuses every text that cannot be parsed, and keeps the text."""

    def check(written: str, info: ValidationInfo) -> str:
        try:
            parse(parser_of(info) or Parser(), written)
        except ConfigError as error:
            raise refusal(f"is wrong: {problem_text(error)}") from None
        return written

    return AfterValidator(check)


def _condition(names: frozenset[str]) -> AfterValidator:
    def check(written: str, info: ValidationInfo) -> str:
        parser = parser_of(info)
        if parser is None:
            return written  # the functions are not known yet: `build` compiles it
        try:
            parser.predicate(written, names)
        except PredicateError as error:
            if error.message.removeprefix("unknown function ") not in parser.missing:
                raise _no_condition(error, parser) from None
        return written

    return AfterValidator(check)


def _no_condition(error: PredicateError, parser: Parser) -> PydanticCustomError:
    text = error.message
    if "; " not in text:
        if function := re.fullmatch(r"unknown function (\S+)", text):
            how = remedy(function[1], parser.known_functions(), "add it under `functions`, or remove it")
        else:
            token = re.fullmatch(r"unexpected '(.*)'", text)
            instead = _INSTEAD.get(token[1]) if token else None
            how = f"write `{instead}`" if instead else "mend it there"
        text = f"{text}; {how}"
    return PydanticCustomError("condition", "{text}", {"text": text, "line": error.line, "column": error.column})


def _words_for_switches(written: object) -> object:
    return str(written).lower() if isinstance(written, bool) else written


def _rule_id(written: str) -> str:
    if not written or len(written) > MAX_ID or _CONTROL.search(written):
        raise refusal(f"must have 1 to {MAX_ID} characters and no control characters; choose another id")
    if written == policy.DEFAULT or written.startswith(_RESERVED):
        raise refusal(f"is `{written}`, which the node calls rules of its own; choose another id")
    return written


_CONDITION_SCHEMA: Final = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "boolean"}], "title": "condition"})

RuleId = Annotated[str, AfterValidator(_rule_id)]
Filter = Annotated[str, parses(Parser.filter)]
Condition = Annotated[str, BeforeValidator(_words_for_switches), _condition(NAMES), _CONDITION_SCHEMA]
FactsCondition = Annotated[str, BeforeValidator(_words_for_switches), _condition(LEVEL_ROOTS), _CONDITION_SCHEMA]
Subject = OneOrMore[Annotated[str, parses(Parser.selector)]]
PointerText = Annotated[str, parses(lambda parser, text: parser.view((text,)))]
Keep = Annotated[
    Annotated[str, parses(Parser.view), WithJsonSchema({"const": "all"}), Tag(ONE)]
    | Annotated[tuple[PointerText, ...], Field(max_length=MAX_POINTERS), Tag(LIST)],
    Discriminator(shape),
]
EnvironmentName = Annotated[
    str,
    requires(lambda name: name not in CLOCK, "is the clock's; call it otherwise"),
    requires(str.isidentifier, "cannot be read as `e.{written}`; name it with letters, digits and `_`"),
]
EnvironmentAttributes = Mapping[EnvironmentName, JsonValue]
CertificateSubject = Annotated[str, parses(lambda _, text: policy.Trust(policy.By.SUBJECT, (text,)))]


# -- rules -----------------------------------------------------------------------------------------------------------


class Policies(StrEnum):
    """What may stand under `policies` instead of a list."""

    OPEN = "open"


class Subscribe(StrEnum):
    """What becomes of a subscription to what its client may not read: refused, or held until it may."""

    STRICT = "strict"
    HOLD = "hold"


class ViewDefault(StrEnum):
    """What somebody sees of a topic that has views, but none for them."""

    NOTHING = "nothing"
    ALL = "all"


class Policy(Section):
    """One access policy: who may, or may not, do what with which topics."""

    id: RuleId | None = None
    """Name of the policy in the audit and wherever it decides. Unique among policies, preferences, views and monitors.
    Default: its position, which is warned about."""
    subject: Subject
    """Who: `*`, `user:…`, `role:…`, `group:…`, `client:…`, `service:…`, `monitor:…`, `scope:…` (with all its links),
    `link:A->B`, or a list of these."""
    topic: Annotated[str, parses(Parser.template)]
    """A topic filter; `{s.user}` stands for an attribute of the subject."""
    action: OneOrMore[policy.Action]
    """`read` (receive), `write` (publish), or a list of both. Of a scope or link, `write` is to forward out and `read`
    to take in."""
    effect: policy.Effect = policy.Effect.ALLOW
    """Whether it allows or denies."""
    when: Condition | None = None
    """A condition (CEL) on `s`, `o`, `e` and, for readers, `p`. Default: always."""
    enforce: Switch = True
    """`false`: it is only watched. Messages are decided without it, and what it would deny is audited as `shadow`."""


class Preference(CheckedSection):
    """What the owner of data says about it: it restricts what policies grant."""

    id: RuleId | None = None
    """Name of the preference, as for policies."""
    user: Person
    """Whose messages it is about."""
    owner: Identity | None = None
    """The id of that user. It then stays with them: it binds what they published after they were removed or renamed,
    and not what another user of that name publishes. Default: it is about whoever has the name, or had it."""
    topic: Filter
    """Of those messages, which: a topic filter."""
    to: str | None = None
    """A scope: it is about forwarding to that scope. `"*"`: to any other scope that no preference names. Default: it is
    about the clients that receive."""
    effect: policy.Effect = policy.Effect.ALLOW
    """`allow` or `deny`. A preference that denies forbids what its condition is true for, whatever others allow, to
    everybody but the owner; if the condition fails, it forbids."""
    when: Condition | None = None
    """Who may receive them, or with `effect: deny` who may not: a condition on the receiver `s`, and on `o`, `e`, `p`.
    Default: everybody."""
    keep: Keep = "all"
    """What of the content such a receiver sees: `all`, or a list of JSON pointers."""
    expires: Moment | None = None
    """Until when it counts; without a zone it is UTC. Default: for ever."""
    enforce: Switch = True
    """`false`: it is only watched, as for policies."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.effect is policy.Effect.DENY and self.keep != "all":
            yield ("keep",), "has no effect with `effect: deny`, which shows nothing; leave it out"


class Levels(CheckedSection):
    """How well connections are protected, and what is demanded of them."""

    implied: Switch = False
    """Whether each connection demands its own level of all others, unless the client relaxes that."""
    order: tuple[str, ...] = Field(default=ORDER, min_length=1)
    """The levels, lowest first."""
    define: Mapping[str, FactsCondition] = Field(default_factory=dict)
    """Further levels: the condition on a connection that has each. It reads `s.listener`, `s.address`,
    `s.tls.version`, `s.tls.cipher`, `s.certificate` and `s.trusted`."""

    facts: Mapping[str, FactsCondition] = Field(default_factory=dict)
    """What can be demanded besides a level: the condition on a connection that has each fact. It reads the same."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        try:
            policy.Levels(self.order, dict.fromkeys(self.define, "true"), dict.fromkeys(self.facts, "true"))
        except ConfigError as error:
            named = re.match("`([^`]*)`", str(error.args[0]))
            name = "" if named is None else named[1]
            places = [key for key, names in (("facts", self.facts), ("define", self.define)) if name in names]
            yield (places[0], name) if places else ("order",), f"is wrong: {problem_text(error)}"


class Domain(Section):
    """A domain: which nodes speak for it, and what is believed of its people. Of the domain of this node only the
    nodes are said: the others of one organisation."""

    nodes: tuple[Name, ...] = ()
    """Nodes of that domain. Their links bring messages of its people."""
    through: tuple[Name, ...] = ()
    """Nodes of other domains whose links bring messages of its people too."""
    users: Mapping[Identity, Person] = Field(default_factory=dict)
    """Users there, each with the user here that it is. Default: they are `name@domain` here."""
    roles: Mapping[Identity, Identity] = Field(default_factory=dict)
    """Roles there, each with the role here that it is. Default: they are `role@domain` here."""
    groups: Mapping[Identity, Identity] = Field(default_factory=dict)
    """Groups there, each with the group here that it is. Default: they are `group@domain` here."""
    attributes: tuple[AttributeName, ...] = ()
    """Attributes of people there that conditions here see. Default: none."""


class Trust(CheckedSection):
    """Which TLS clients are trusted, and what becomes of others."""

    by: policy.By = policy.By.SUBJECT
    """What the list holds: subjects of certificates, or certificates themselves."""
    accept: tuple[str, ...] | None = None
    """Who is trusted. By subject: names such as `CN=remotegym,O=MyGymBrand`. By certificate: SHA-256 fingerprints,
    or files (`.pem`, `.crt`) with certificates. Default: no list, so nobody is `trusted` and nobody is turned away."""
    revoked: tuple[str, ...] = ()
    """Certificates that count no more, on any listener: SHA-256 fingerprints, or files (`.pem`, `.crt`). Whoever is
    connected with one is disconnected."""
    ask_neighbours: Switch = False
    """Whether trusted neighbours, to which there are links, are asked about clients that are not on the list. One whose
    certificate is known to them is trusted as `NAME@DOMAIN`: the common name there, and the domain that knows it."""
    vouch: Duration = Field(default=3600.0, gt=0, le=LONGEST)
    """How long the word of a neighbour counts here, and that of this node elsewhere. It ends earlier if it is
    withdrawn."""
    otherwise: policy.Otherwise = policy.Otherwise.CLOSE
    """What happens to TLS clients that are not trusted: their connection is closed, or counts for no more than its
    encryption."""

    domains: Mapping[Name, Domain] = Field(default_factory=dict)
    """Other domains, by name, and which other nodes are of this one. Without an entry nobody elsewhere speaks for a
    domain, and nothing is believed of it."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.accept is None and not self.revoked and not self.domains:
            yield ("accept",), "is missing; add it (Who is trusted)"
        if self.ask_neighbours and self.accept is None:
            yield ("ask_neighbours",), "has no effect without `accept`, as nobody is turned away; add that list"
        owners: dict[str, str] = {}
        for name, domain in self.domains.items():
            for index, node in enumerate(domain.nodes):
                owner = owners.setdefault(node, name)
                if owner != name:
                    text = f"is `{node}`, which is a node of `{owner}` already; a node has one domain, so remove one"
                    yield ("domains", name, "nodes", index), text

    @field_validator("accept", "revoked")
    @classmethod
    def _readable(cls, accept: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        by = policy.By.CERTIFICATE if info.field_name == "revoked" else info.data.get("by")
        if by is None or accept is None:
            return accept
        findings: list[Finding] = []
        for index, text in enumerate(accept):
            try:
                if not names_file(by, text):
                    policy.Trust(by, (text,))
            except ConfigError as error:
                findings.append(((index,), f"is wrong: {problem_text(error)}"))
        if findings:
            raise combined_problems(findings)
        return tuple(str(beside(Path(text), info)) if names_file(by, text) else text for text in accept)


def written(policies: policy.Policies | None) -> list[policy.Policy]:
    """The policies of the file and of documents, in their order: without the node's own."""
    rules = () if policies is None else policies.policies
    return [each for each in rules if not each.id.startswith(BUILT_IN)]


def names_file(by: policy.By, entry: str) -> bool:
    """Whether an entry of the trust list is a file rather than what it lists."""
    return by is policy.By.CERTIFICATE and entry.endswith(CERTIFICATE_FILES)


class View(Section):
    """What of the content of some topics somebody sees."""

    id: RuleId | None = None
    """Name of the view, as for policies."""
    topic: Filter
    """A topic filter. Of a topic that has views, everybody sees what the views for them keep, together."""
    subject: Subject = Field(alias="for")
    """For whom, as in policies."""
    keep: Keep
    """`all`, or a list of JSON pointers such as `/illness`."""
    enforce: Switch = True
    """`false`: it is only watched, as for policies."""


class Class(Section):
    """Topics of one category."""

    topic: Filter
    """A topic filter. The first that matches counts."""
    category: Annotated[str, requires(bool, "is empty; write for example `sensitive`")]
    """What conditions read as `o.category`, such as `sensitive`."""


class PublisherRules(Section):
    """What publishers may say themselves about who reads their messages."""

    allow: tuple[Filter, ...] = Field(min_length=1)
    """Topic filters: a rule that a publisher sends must lie within one of them. Rules that were sent before and lie
    outside stay stored, and count again when they are covered again."""


def entries(config: Config, section: str) -> tuple[Any, ...]:
    """The rules of a section."""
    rules = getattr(config, section)
    return rules if isinstance(rules, tuple) else ()


def repeated_ids(config: Config) -> Iterator[Finding]:
    """Rules of any section whose ids do not say which one is meant."""
    return repeated((name, index, entry.id) for name in RULES for index, entry in enumerate(entries(config, name)))


def repeated(ids: Iterable[tuple[str, int, str | None]]) -> Iterator[Finding]:
    """Ids that do not say which rule is meant, of (section, position, id)."""
    first: dict[str, str] = {}
    for section, index, written in ids:
        here = f"{section}[{index}]"
        name = here if written is None else written
        if name in first:
            path = (section, index) if written is None else (section, index, "id")
            yield path, f"is `{name}`, and so is that of `{first[name]}`; give each rule an id of its own"
        else:
            first[name] = here
