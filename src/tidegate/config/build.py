"""From a checked configuration to what the node decides by: rules of the gate, directory, trust list.

The same configuration always builds equal rules with an equal digest. Texts that were parsed while the file was
checked are not parsed again. The only files read here are the certificates that `trust` names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from zoneinfo import ZoneInfo

from tidegate import policy
from tidegate.config import identity_providers, protected_topics, shadow
from tidegate.config.brokering import generated_monitors, link_types
from tidegate.config.capabilities import accepts, read_named_file, thumbprints
from tidegate.config.directory import parsed_key
from tidegate.config.flows import presences
from tidegate.config.links import (
    LISTED,
    Broker,
    BrokerVersion,
    DirectedLink,
    directed_links,
    remote_scopes,
    scope_names,
)
from tidegate.config.parser import Parser, problem_text
from tidegate.config.policies import BUILT_IN, Policies, Subscribe, ViewDefault, names_file, written
from tidegate.config.problems import ConfigErrors, DocumentPath
from tidegate.config.section import as_tuple
from tidegate.config.units import in_utc
from tidegate.errors import ConfigError
from tidegate.flow.assertions import Assertion
from tidegate.flow.presence import Presence
from tidegate.gate.rule_set import RuleSet
from tidegate.keys import PublicKey
from tidegate.monitor import Monitors
from tidegate.policy.brokering import UNTYPED, Assignment, Brokering
from tidegate.policy.capability import Accepts
from tidegate.policy.domains import Domain
from tidegate.policy.preferences import BUDGET as PREFERENCE_BUDGET
from tidegate.policy.scopes import Broker as ForeignBroker
from tidegate.policy.scopes import NodeLink, Role, ScopeGraph, ScopeLink, Way

if TYPE_CHECKING:
    from tidegate.config import directory, policies
    from tidegate.config.links import Link
    from tidegate.config.model import Config

STATISTICS: Final = policy.Policy(
    id=f"{BUILT_IN}sys",
    subject=policy.Selector.parse("service:sys"),
    topic=policy.Template.parse("$SYS/#"),
    action=frozenset((policy.Action.WRITE,)),
)
"""Without it a node with policies could not publish its statistics; who reads them is the administrator's."""

_DECIDES: Final = frozenset(
    {"policies", "combining", "preferences", "levels", "views", "view_default", "classify", "environment"}
    | {"functions", "subscribe", "directory", "rules", "brokering", "monitors", "scopes", "links", "flows"}
)
_LONG: Final = ("policies", "preferences", "views", "classify", "monitors")
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_MAX_PEM: Final = 1 << 20

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a configuration means."""

    rules: RuleSet
    directory: policy.Directory
    trust: policy.Trust | None
    """None: no list, so nobody is closed, degraded or `trusted`."""
    revoked: tuple[str, ...]
    """Certificates that `trust` lists as revoked: fingerprints, or PEM."""
    capabilities: Accepts | None
    """None: none are taken. Without the keys that have to be fetched."""
    policy_version: str
    """The first 12 hexadecimal digits of the SHA-256 of everything that decides."""
    flows: tuple[Assertion, ...] = ()
    """What must not flow, then what must be able to."""
    presences: tuple[Presence, ...] = ()
    """The clients of the directory, where they may connect."""
    readers: Mapping[str, PublicKey] = field(default_factory=dict)
    """For whom topic keys can be wrapped, by their name: `user:mary`, `client:tr1`."""


def build(config: Config, parser: Parser | None = None) -> Built:
    """What a configuration means. Raises `ConfigErrors` with everything that cannot be built."""
    return _Builder(config, parser).built()


class _Builder:
    def __init__(self, config: Config, parser: Parser | None) -> None:
        self.config = config
        self.problems: list[ConfigError] = []
        self.domain = config.node.domain
        trusted = {} if config.trust is None else config.trust.domains
        believed = {name: Domain(**dict(section)) for name, section in trusted.items()}
        self.domains = MappingProxyType(believed | identity_providers.domains(config))
        self.parser = parser or Parser()
        if parser is None:
            for index, reference in enumerate(config.functions):
                self.place(("functions", index), partial(self.parser.learn, reference))
            if config.levels is not None:
                self.parser.ranking = policy.ranking(config.levels.order)

    def place(self, path: DocumentPath, make: Callable[[], Made]) -> Made | None:
        """The result of `make`, or None and a problem at the path of the entry."""
        try:
            return make()
        except ConfigError as error:
            self.problems.append(self.config.location(*path).problem(f"is wrong: {problem_text(error)}"))
            return None

    def each(self, section: str, entries: Iterable[Any], make: Callable[[str, Any], Made]) -> list[Made]:
        """What is made of the entries of a section, each with its id, or with one from its position."""
        results: list[Made] = []
        for index, entry in enumerate(entries):
            # of a monitor that was checked only its Python can still be wrong
            key = () if getattr(entry, "python", None) is None else ("python",)
            result = self.place((section, index, *key), partial(make, entry.id or f"{section}[{index}]", entry))
            results += () if result is None else (result,)
        return results

    def built(self) -> Built:
        config, domain, domains = self.config, self.domain, self.domains
        policies = self.make_policies()
        preferences = self.each("preferences", config.preferences, self.make_preference)
        views = self.each("views", config.views, self.make_view)
        classes = [
            policy.Class(topic=self.parser.filter(each.topic), category=each.category) for each in config.classify
        ]
        far = remote_scopes(config)
        monitors = self.each("monitors", config.monitors, lambda id, entry: entry.attachment(id, self.parser, far))
        brokering = self.place(("brokering",), self.make_brokering)
        levels = self.place(("levels",), self.make_levels)
        directory = self.place(("directory",), self.make_directory)
        listed = config.trust
        accepted = [] if listed is None else list(self.make_listed("accept", listed.by))
        revoked = list(self.make_listed("revoked", policy.By.CERTIFICATE))
        trust = self.place(("trust",), lambda: self.make_trust(accepted))
        section = config.capabilities
        capabilities = None if section is None else self.place(("capabilities",), partial(accepts, section))
        environment = policy.Environment(config.environment, zone=ZoneInfo(config.node.timezone))
        if self.problems or brokering is None or levels is None or directory is None:
            raise ConfigErrors(self.problems)
        conflicts = protected_topics.conflicts(config, written(policies), preferences, views, monitors)
        if problems := [config.location(*path).problem(text) for path, text in conflicts]:
            raise ConfigErrors(problems)
        digest = _digest(config, accepted, capabilities)
        unseen = policy.ALL if config.view_default is ViewDefault.ALL else policy.NOTHING
        listeners = [listener for listener in config.listeners if listener.environment]
        joined = _space(config, self.parser)
        rules = RuleSet(
            version=f"1-{digest}",
            domain=domain,
            domains=domains,
            policies=policies,
            preferences=policy.Preferences(
                [*preferences, *_of_devices(config, preferences)], domain=domain, domains=domains
            ),
            brokering=brokering,
            space=joined,
            levels=levels,
            announces_floor=config.levels is not None,
            views=policy.Views(views, otherwise=unseen, domain=domain, domains=domains),
            classification=policy.Classification(classes),
            environment=environment,
            environments=MappingProxyType(
                {str(listener.url): environment.extended(listener.environment) for listener in listeners}
            ),
            capabilities=None if capabilities is None else capabilities.proof,
            ceiling=() if config.rules is None else tuple(map(self.parser.filter, config.rules.allow)),
            holds=config.subscribe is Subscribe.HOLD,
            protect=tuple(map(self.parser.filter, config.keys.protect)),
            end_to_end=tuple(map(self.parser.filter, config.keys.end_to_end)),
            ingest=() if config.pipeline is None else tuple(map(self.parser.filter, config.pipeline.ingest)),
            functions=MappingProxyType(self.parser.functions),
            monitors=Monitors((*monitors, *generated_monitors(config, self.parser))),
            unenforced=frozenset(shadow.unenforced(config)),
        )
        if watched := shadow.watched(config):
            rules = replace(rules, lenient=_without(rules, watched))
        return Built(
            rules=rules,
            directory=directory,
            trust=trust,
            revoked=tuple(revoked),
            capabilities=capabilities,
            policy_version=digest,
            flows=tuple(assertion for _, assertion in config.flows.written()),
            presences=tuple(presences(config, directory, brokering, joined)),
            readers=MappingProxyType(dict(_readers(config))),
        )

    def make_policies(self) -> policy.Policies | None:
        written = self.config.policies
        if isinstance(written, Policies):
            return None
        policies = self.each("policies", written or (), self.make_policy)
        rules = (STATISTICS, *policies)
        return policy.Policies(rules, self.config.combining, domain=self.domain, domains=self.domains)

    def make_policy(self, id: str, entry: policies.Policy) -> policy.Policy:
        return policy.Policy(
            id=id,
            subject=self.parser.selector(entry.subject),
            topic=self.parser.template(entry.topic),
            action=frozenset(as_tuple(entry.action)),
            effect=entry.effect,
            when=None if entry.when is None else self.parser.predicate(entry.when),
        )

    def make_preference(self, id: str, entry: policies.Preference) -> policy.Preference:
        return policy.Preference(
            id=id,
            user=entry.user,
            owner=entry.owner,
            topic=self.parser.filter(entry.topic),
            to=entry.to,
            when=None if entry.when is None else self.parser.predicate(entry.when, budget=PREFERENCE_BUDGET),
            keep=self.parser.view(entry.keep),
            text=entry.when,
            denies=entry.effect is policy.Effect.DENY,
            expires=None if entry.expires is None else in_utc(entry.expires),
        )

    def make_view(self, id: str, entry: policies.View) -> policy.Row:
        return policy.Row(
            id=id,
            topic=self.parser.filter(entry.topic),
            subject=self.parser.selector(entry.subject),
            view=self.parser.view(entry.keep),
        )

    def make_brokering(self) -> Brokering:
        section = self.config.brokering
        assignments = [
            Assignment(subject=self.parser.selector(entry.subject), types=entry.types(section.default.types()))
            for entry in section.assign
            if entry.subject is not None
        ]
        return Brokering(
            section.pairs,
            assignments,
            section.otherwise,
            labelled=section.labelled,
            domain=self.domain,
            domains=self.domains,
        )

    def make_levels(self) -> policy.Levels:
        section = self.config.levels
        if section is None:
            return policy.Levels()
        functions = self.parser.functions
        return policy.Levels(section.order, section.define, section.facts, implied=section.implied, functions=functions)

    def make_directory(self) -> policy.Directory:
        section = self.config.directory
        return policy.Directory(
            users={name: _entry(user) for name, user in section.users.items()},
            clients={
                name: _entry(client, user=client.user, scopes=client.scopes or ())
                for name, client in section.clients.items()
            },
            roles={name: role.attributes for name, role in section.roles.items()},
            groups={name: group.attributes for name, group in section.groups.items()},
            domain=self.domain,
        )

    def make_listed(self, key: str, by: policy.By) -> Iterator[str]:
        """What `trust` lists under a key, with certificates where it names files."""
        for index, entry in enumerate(getattr(self.config.trust, key, None) or ()):
            if names_file(by, entry):
                yield from self.place(("trust", key, index), partial(_certificates, entry)) or ()
            else:
                yield entry

    def make_trust(self, accepted: list[str]) -> policy.Trust | None:
        section = self.config.trust
        if section is None or section.accept is None:
            return None
        vouch = section.vouch if section.ask_neighbours else None
        return policy.Trust(section.by, accepted, section.otherwise, vouch=vouch)


def _without(rules: RuleSet, ids: Collection[str]) -> RuleSet:
    """The same rules without some."""

    def left(entries: Iterable[Any]) -> list[Any]:
        return [each for each in entries if each.id not in ids]

    policies, views = rules.policies, rules.views
    whose: dict[str, Any] = {"domain": rules.domain, "domains": rules.domains}
    if policies is not None:
        policies = policy.Policies(left(policies.policies), policies.combining, **whose)
    return replace(
        rules,
        policies=policies,
        preferences=policy.Preferences(left(rules.preferences.preferences), **whose),
        views=policy.Views(left(views.rows), otherwise=views.otherwise, **whose),
        monitors=Monitors(each for each in rules.monitors if each.id not in ids),
    )


def _entry(
    section: directory.User | directory.Client, user: str | None = None, scopes: tuple[str, ...] = ()
) -> policy.Entry:
    attributes = MappingProxyType(dict(section.attributes))
    return policy.Entry(user=user, roles=section.roles, groups=section.groups, attributes=attributes, scopes=scopes)


def _of_devices(config: Config, preferences: Iterable[policy.Preference]) -> Iterator[policy.Preference]:
    """What people say of their own data, said of what their devices publish."""
    devices: dict[str, list[str]] = {}
    for name, user in config.directory.users.items():
        if user.owner is not None:
            devices.setdefault(user.owner, []).append(name)
    for each in preferences:
        for name in devices.get(each.user, ()):
            yield replace(each, user=name, owner=None, person=(each.user, each.owner))


def _readers(config: Config) -> Iterator[tuple[str, PublicKey]]:
    for sort, entries in (("user", config.directory.users), ("client", config.directory.clients)):
        for name, entry in entries.items():
            if entry.public_key is not None:
                yield f"{sort}:{name}", parsed_key(entry.public_key)


def _certificates(file: str) -> list[str]:
    """The certificates in a file, each of which must be readable."""
    content = read_named_file(Path(file), _MAX_PEM)
    certificates = _PEM.findall(content.decode("ascii", errors="replace")) if len(content) <= _MAX_PEM else []
    if not certificates:
        raise ConfigError(f"it names `{file}`, which holds no certificate: write one in PEM into it")
    try:
        policy.Trust(policy.By.CERTIFICATE, certificates)
    except ConfigError:
        raise ConfigError(f"it names `{file}`, whose certificate cannot be read: write it again in PEM") from None
    return certificates


def _digest(config: Config, accepted: list[str], capabilities: Accepts | None) -> str:
    """Of everything that decides, and of nothing else: a new password or public key is no new policy.

    Entry by entry: other threads run in between, and there may be tens of thousands.
    """
    digest = hashlib.sha256()

    def add(*content: Any) -> None:
        digest.update(json.dumps(content, sort_keys=True, separators=(",", ":")).encode() + b"\n")

    for name in _LONG:
        entries = getattr(config, name)
        for entry in entries if isinstance(entries, tuple) else ():
            add(name, shadow.digested(entry.model_dump(mode="json", by_alias=True)))
    for name, user in sorted(config.directory.users.items()):
        add("users", name, user.model_dump(mode="json", exclude={"password", "public_key"}))
    for name, client in sorted(config.directory.clients.items()):
        add("clients", name, client.model_dump(mode="json", exclude={"public_key"}))
    included = set(_DECIDES) - {name for name in _LONG if isinstance(getattr(config, name), tuple)}
    content: dict[str, Any] = config.model_dump(
        mode="json", by_alias=True, include=included, exclude={"directory": {"users", "clients"}}
    )
    content["scopes"] = {name: shadow.digested(scope) for name, scope in content["scopes"].items()}
    if not config.enforce:
        content["enforce"] = False
    content |= {
        "domain": config.node.domain,
        "timezone": config.node.timezone,
        "environments": {str(each.url): each.environment for each in config.listeners if each.environment},
    }
    if config.keys.any:
        content["keys"] = {"protect": config.keys.protect, "end_to_end": config.keys.end_to_end}
    if config.trust is not None:
        content["trust"] = {**config.trust.model_dump(mode="json", exclude={"revoked"}), "accept": accepted}
    if config.capabilities is not None and capabilities is not None:
        section = config.capabilities.model_dump(mode="json", exclude={"issuers": {"__all__": {"keys"}}})
        content["capabilities"] = {**section, "keys": list(thumbprints(capabilities))}
    if elsewhere := identity_providers.domains(config):
        content["identity_providers"] = {name: domain.plain for name, domain in elsewhere.items()}
    add(content)
    return digest.hexdigest()[:12]


def _space(config: Config, parser: Parser) -> ScopeGraph:
    types = link_types(config)

    def made(joint: DirectedLink) -> ScopeLink:
        return ScopeLink(
            source=joint.source,
            target=joint.target,
            type=types[joint.name] or UNTYPED,
            way=joint.way,
            shares=joint.crossings(parser),
            back=joint.crossings(parser, back=True),
        )

    links = tuple(made(joint) for joint in directed_links(config) if not joint.remote)
    directed = {joint.name: made(joint) for joint in directed_links(config) if joint.remote}
    parents: dict[str, tuple[str, ...]] = {}
    for link in links:
        if link.way is Way.UP:
            parents[link.source] = (*parents.get(link.source, ()), link.target)
    roles = config.brokering.expanded.items()
    return ScopeGraph(
        scopes=scope_names(config),
        parents=MappingProxyType(parents),
        links=links,
        roles=MappingProxyType({name: Role(publishing=pub, receiving=sub) for name, (pub, sub) in roles}),
        bus=config.brokering.bus or "",
        remote=tuple(_node_link(config, entry, directed) for entry in config.links if entry.remote),
    )


def _node_link(config: Config, entry: Link, directed: Mapping[str, ScopeLink]) -> NodeLink:
    near, far = entry.source, entry.target
    if near not in config.scopes:
        near, far = far, near
    return NodeLink(
        near=near,
        far=far,
        out=directed.get(f"{near}->{far}"),
        into=directed.get(f"{far}->{near}"),
        via=tuple(map(str, entry.via)),
        peer=None if entry.peer == LISTED else entry.peer,
        trusted=entry.trusted,
        plain_backup=entry.plain_backup,
        sign=entry.sign,
        overflow=entry.overflow,
        export=entry.export,
        forward=entry.forward,
        failover=None if entry.failover is None else entry.failover.built,
        broker=None if entry.broker is None else _broker(config, entry.broker, f"{near}->{far}"),
    )


def _broker(config: Config, entry: Broker, link: str) -> ForeignBroker:
    ca = entry.ca or config.node.ca
    return ForeignBroker(
        mqtt5=entry.version is BrokerVersion.MQTT_5,
        client=entry.client or f"{config.node.name}:{link}",
        user=entry.user,
        password=None if entry.password is None else entry.password.encode(),
        ca=None if ca is None else str(ca),
    )
