"""What several values can only be wrong about together, and what is allowed but probably not meant.

Each finding is (path, text), where the text completes the sentence "`path` ...". Pure: no file is opened
here. A setting that would have no effect is an error rather than a warning, because it looks enforced and
is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tidegate.config.enums import ClientCert
from tidegate.config.problems import Finding, unknown

if TYPE_CHECKING:
    from tidegate.config.address import Address
    from tidegate.config.administration import Http
    from tidegate.config.model import Config, Listener

RULES: Final = ("policies", "preferences", "views", "monitors")


def problems(config: Config) -> Iterator[Finding]:
    """Everything that makes a configuration unusable although each value is fine."""
    for index, listener in enumerate(config.listeners):
        here = ("listeners", index)
        for key, text in _listener(listener):
            yield (*here, key), text
        if not listener.scope:
            yield (*here, "scope"), "is missing and there are several scopes; say which one clients enter here"
        elif listener.scope not in config.scopes:
            yield (*here, "scope"), unknown("scope", listener.scope, tuple(config.scopes), "scopes")
        for other_index, other in enumerate(config.listeners[:index]):
            if listener.url.clashes(other.url):
                yield (*here, "url"), f"takes the same address as listener {other_index}; choose another port"
    for kind in ("users", "clients"):
        taken: dict[str, str] = {}
        for name, entry in getattr(config.directory, kind).items():
            if entry.id is not None and taken.setdefault(entry.id, name) != name:
                text = f"is `{entry.id}`, as that of `{taken[entry.id]}` is; no two have the same"
                yield ("directory", kind, name, "id"), text
    users = tuple(config.directory.users)
    for name, client in config.directory.clients.items():
        if client.user is not None and client.user not in config.directory.users:
            at = ("directory", "clients", name, "user")
            yield at, unknown("user", client.user, users, "directory.users")
    ids = ((section, index, entry.id) for section in RULES for index, entry in enumerate(entries(config, section)))
    yield from repeated(ids)


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


def entries(config: Config, section: str) -> tuple[Any, ...]:
    """The rules of a section."""
    rules = getattr(config, section)
    return rules if isinstance(rules, tuple) else ()


def _listener(listener: Listener) -> Iterator[tuple[str, str]]:
    asks = listener.client_cert is not ClientCert.NONE
    yield from certificate_problems(listener, listener.url)
    if listener.url.tls:
        if asks and listener.client_ca is None:
            yield "client_ca", f"is missing, which `client_cert: {listener.client_cert}` needs; name a file"
        if listener.client_ca is not None and not asks:
            yield "client_ca", "has no effect while no certificate is asked for; add `client_cert: required`"
        if listener.crl is not None and not asks:
            yield "crl", "has no effect while no certificate is asked for; add `client_cert: required`"
    if listener.origins is not None and not listener.url.websocket:
        yield "origins", f"has no effect on {listener.url.scheme}://; remove it"
    if listener.publish_burst is not None and listener.publish_rate is None:
        yield "publish_burst", "has no effect without `publish_rate`; add that, or remove it"


def certificate_problems(section: Listener | Http, url: Address) -> Iterator[tuple[str, str]]:
    """A missing certificate of a TLS address, and settings that only TLS uses at another address."""
    if url.tls and section.cert is None:
        yield "cert", f"is missing, which {url.scheme}:// needs; make one with `tidegate cert issue`"
    for key in ("cert", "key", "client_ca", "crl", "client_cert", "tls_min"):
        if not url.tls and key in section.model_fields_set:
            yield key, f"has no effect on {url.scheme}://; write {url.scheme}s://, or remove it"


def warnings(config: Config) -> Iterator[Finding]:
    """Everything that works but is probably not meant."""
    users = config.directory.users
    with_certificates = any(listener.client_cert is not ClientCert.NONE for listener in config.listeners)
    for name, user in users.items():
        at = ("directory", "users", name)
        if user.password is not None and user.password.startswith("plain:"):
            yield (*at, "password"), "is written in plain; replace it with what `tidegate passwd` prints"
        elif user.password is None and not with_certificates and not has_other_authentication(config):
            yield at, "has no password, and no listener asks for certificates; this user cannot connect"
    if config.policies is None:
        text = "is missing: the default is to deny, so nothing will pass; write `policies: open` to allow all"
        yield ("policies",), text
    if config.node.data is None and "durability" in config.model_fields_set:
        yield ("durability",), "has no effect on what survives a restart without `node.data`; set that"
    nobody = not (users or has_other_authentication(config) or config.http is not None)
    for index, listener in enumerate(config.listeners):
        for text in _exposure(config, listener, nobody=nobody):
            yield ("listeners", index), text
        if listener.max_packet > config.limits.queue.bytes:
            text = "is larger than `limits.queue.bytes`, so the largest packets can never be queued; lower it"
            yield ("listeners", index, "max_packet"), text


def has_other_authentication(config: Config) -> bool:
    """Whether somebody else than the directory may vouch for users."""
    return bool(config.authentication.methods) or config.capabilities is not None


def _exposure(config: Config, listener: Listener, *, nobody: bool) -> Iterator[str]:
    asks = listener.client_cert is not ClientCert.NONE
    if listener.anonymous and not listener.url.loopback:
        yield "lets everybody on the network in; set `anonymous: false`, or listen on 127.0.0.1"
    if nobody and not listener.anonymous and not asks:
        yield "lets nobody in: there are no users; add some under `directory.users`, or set `anonymous: true`"
    if config.directory.users and not listener.url.tls and not listener.url.loopback:
        yield f"carries passwords unencrypted over the network; use {listener.url.scheme}s://"
