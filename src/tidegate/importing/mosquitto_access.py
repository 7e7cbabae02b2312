"""Who is let in, and may do what, of a `mosquitto.conf`: `password_file`, `acl_file` and the dynamic security plugin.

With `per_listener_settings` each listener has its own. Users belong to the node here, so what a listener allows is
written as policies that hold for who connects there (`s.listener`), and the users whom it knows as those who may
connect there. Nothing is allowed that was not: what other plugins decide is not known, so without their rules nothing
passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.importing import mosquitto_acl, mosquitto_dynsec, mosquitto_passwords
from tidegate.importing.dollar_topics import BOTH, READ
from tidegate.importing.imported_policies import Imported, ImportedPolicy, NotImported, quoted
from tidegate.importing.mosquitto_conf import Files, Option, Options

DYNSEC: Final = "mosquitto_dynamic_security"
_COMBINING: Final = "first-applicable"


@dataclass(slots=True, kw_only=True)
class Domain:
    """Listeners on which the same people may do the same."""

    urls: tuple[str, ...]
    label: str
    """What the ids of its policies begin with, where there are several."""
    options: Options
    anonymous: bool
    named: tuple[str, ...] = ()
    """The listeners among them whose clients have the name that their certificate gives them."""
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    rules: Imported | None = None
    """None: everybody who is let in may do everything."""
    knows: bool = False
    """Whether it lets in no names but those of its users."""
    dynsec: Option | None = None
    """The option that names the file of the plugin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """All of it together."""

    policies: tuple[ImportedPolicy, ...] | None
    """None: `policies: open`."""
    users: dict[str, dict[str, Any]]
    notes: tuple[str, ...]
    left: tuple[NotImported, ...]


def fill(domain: Domain, files: Files, left: list[NotImported]) -> None:
    """Reads the files of a domain."""
    options = domain.options
    passwords, acl = options.last("password_file"), options.last("acl_file")
    plugins = options.every("plugin", "auth_plugin")
    if passwords is not None:
        domain.knows = True
        path = files.absolute(passwords.value)
        hashes, wrong = mosquitto_passwords.read(files.text(passwords.value), path)
        domain.users |= {name: {"password": stored} for name, stored in hashes.items()}
        left += wrong
    others = [plugin for plugin in plugins if DYNSEC not in plugin.value]
    for plugin in others:
        why = "code of somebody else; nothing passes by its word. Write `policies`, or `authentication.methods`"
        left.append(_left(plugin, why))
    domain.dynsec = options.last("plugin_opt_config_file") if len(others) < len(plugins) else None
    if domain.dynsec is not None and acl is None:
        path = domain.dynsec.value
        domain.rules = mosquitto_dynsec.read(files.text(path), files.absolute(path))
        domain.knows = True
    elif domain.dynsec is not None and acl is not None:
        why = "its rules and those of `acl_file` are not combined here, and nothing is allowed; remove one of the two"
        left.append(_left(domain.dynsec, why))
        domain.rules = Imported(combining=_COMBINING)
    elif acl is not None:
        domain.rules = mosquitto_acl.read(files.text(acl.value), files.absolute(acl.value))
    elif others:
        domain.rules = Imported(combining=_COMBINING)
    if domain.rules is not None:
        for name, entry in domain.rules.users.items():
            domain.users[name] = domain.users.get(name, {}) | dict(entry)
        left += domain.rules.left


def combined(domains: Sequence[Domain], links: Iterable[ImportedPolicy], left: list[NotImported]) -> Access:
    """The policies and users of all domains; `links` stand before them."""
    users = _users(domains, left)
    notes = list(dict.fromkeys(note for domain in domains if domain.rules for note in _kept(domain.rules.notes)))
    if not domains or (len(domains) == 1 and domains[0].rules is None):
        return Access(policies=None, users=users, notes=tuple(notes), left=tuple(left))
    policies = list(links)
    for domain in domains:
        policies += _policies(domain, alone=len(domains) == 1)
    return Access(policies=tuple(policies), users=users, notes=tuple(notes), left=tuple(left))


def _kept(notes: Iterable[str]) -> Iterator[str]:
    """Notes of an import that are still true: passwords come along, and so does `subscribe: hold`."""
    dropped = ("Mosquitto grants every", "never deliver", "Users have no passwords", "the password file that")
    return (note for note in notes if not note.startswith(dropped))


def _users(domains: Sequence[Domain], left: list[NotImported]) -> dict[str, dict[str, Any]]:
    users: dict[str, dict[str, Any]] = {}
    for domain in domains:
        for name, entry in domain.users.items():
            known = users.setdefault(name, dict(entry))
            if known.setdefault("password", entry.get("password")) != entry.get("password", known["password"]):
                option = domain.options.last("password_file") or domain.options.all[0]
                left.append(_left(option, f"another password of `{name}` counts: a user has one here", option.value))
            for key, value in entry.items():
                known.setdefault(key, value)
    return {name: {key: value for key, value in entry.items() if value is not None} for name, entry in users.items()}


def _policies(domain: Domain, *, alone: bool) -> Iterator[ImportedPolicy]:
    here = _at(domain.urls)
    if domain.rules is None:
        for number, (topic, action) in enumerate((("#", BOTH), ("$SYS/#", (READ,))), 1):
            yield ImportedPolicy(
                id=f"{domain.label}-open-{number}",
                subject="*",
                topic=topic,
                action=action,
                when=here,
                origin=f"the listener {domain.label} has no access rules",
            )
        return
    for policy in domain.rules.policies:
        conditions = [] if alone else [here]
        if policy.when is not None:
            conditions.append(policy.when)
        if policy.when is not None and mosquitto_acl.ANONYMOUS in policy.when and domain.named:
            conditions.append(f"!({_at(domain.named)})")  # a certificate is a name there, also one that is unknown here
        when = " && ".join(f"({each})" for each in conditions) if len(conditions) > 1 else next(iter(conditions), None)
        yield replace(policy, id=policy.id if alone else f"{domain.label}-{policy.id}", when=when)


def _at(urls: Sequence[str]) -> str:
    listed = ", ".join(map(quoted, urls))
    return f"has(s.listener) && s.listener in [{listed}]"


def _left(option: Option, why: str, what: str | None = None) -> NotImported:
    return NotImported(place=f"{option.file}:{option.line}", what=what or option.text, why=why)
