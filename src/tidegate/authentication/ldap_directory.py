"""An LDAP directory, as a node asks it: whether a password is right, and which groups somebody is in.

- Everything goes over TLS, with a certificate that is for the name of the directory: `ldaps://`, or StartTLS before
  anything else is said.
- An account of the node finds the entry of whoever signs in; the directory itself verifies the password, by a bind with
  it. An empty one is never sent: a directory takes that for a bind as nobody, which succeeds.
- What people type stands in filters escaped. Their name is what their entry says, however they have typed it.
- A directory that cannot be asked lets nobody in. Referrals are not followed.

All of it blocks; call it in a thread.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tidegate.authentication.openid_token import MOST_NAMES, Wrong
from tidegate.authentication.outgoing_request import Unreachable
from tidegate.config.identity_providers import Ldap
from tidegate.lazy import LazyModule
from tidegate.policy.person import Person

if TYPE_CHECKING:
    import ldap3
    from ldap3.core import exceptions
    from ldap3.utils import conv
else:
    ldap3 = LazyModule("ldap3")
    exceptions = LazyModule("ldap3.core.exceptions")
    conv = LazyModule("ldap3.utils.conv")

PATIENCE: Final = 5  # seconds for each answer
_SUCCESS: Final = 0
_LARGER: Final = 4  # sizeLimitExceeded
_NOBODY: Final = "wrong user name or password"


class LdapDirectory:
    """One directory."""

    def __init__(self, settings: Ldap) -> None:
        self.settings = settings

    def verify(self, name: str, password: str) -> Person:
        """Whoever has that name and password; Wrong if nobody has, Unreachable if it cannot be asked."""
        if not password or "\0" in password or not name:
            raise Wrong(_NOBODY)
        with self._searching() as connection:
            entry = self._entry(connection, name)
            # for somebody who is not there a bind is tried, too: how long it takes tells nothing
            dn = self.settings.people.base if entry is None else entry["dn"]
            right = self._binds(dn, password)
            if entry is None or not right:
                raise Wrong(_NOBODY)
            return self._person(connection, entry)

    def person(self, name: str) -> Person:
        """Somebody as the directory has them now; Wrong if it has them no more."""
        with self._searching() as connection:
            entry = self._entry(connection, name)
            if entry is None:
                raise Wrong("the directory does not have them any more")
            found = self._person(connection, entry)
            if found.name != name:
                raise Wrong("the directory calls them otherwise now")
            return found

    # -- asking --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _searching(self) -> Iterator[ldap3.Connection]:
        bind = self.settings.bind
        with self._connected(bind.dn, bind.password) as connection:
            if not connection.bind():
                raise self._unreachable(f"it does not take the account in `bind`: {_said(connection)}")
            yield connection

    def _binds(self, dn: str, password: str) -> bool:
        with self._connected(dn, password) as connection:
            return bool(connection.bind())

    @contextlib.contextmanager
    def _connected(self, dn: str, password: str) -> Iterator[ldap3.Connection]:
        """A connection that is protected and has not bound yet."""
        settings = self.settings
        try:
            tls = _tls()(settings.ca)
            server = ldap3.Server(
                settings.url.host,
                port=settings.url.port,
                use_ssl=settings.url.tls,
                tls=tls,
                get_info=ldap3.NONE,
                connect_timeout=PATIENCE,
            )
            connection = ldap3.Connection(
                server,
                user=dn,
                password=password,
                receive_timeout=PATIENCE,
                auto_referrals=False,
                read_only=True,
                raise_exceptions=False,
            )
            try:
                connection.open()
                if not settings.url.tls and not connection.start_tls():
                    raise self._unreachable("it does not begin TLS")
                yield connection
            finally:
                _close(connection)
        except (exceptions.LDAPExceptionError, OSError) as error:  # the second: also of TLS, and of names
            raise self._unreachable(str(error) or type(error).__name__) from None

    def _entry(self, connection: ldap3.Connection, name: str) -> Mapping[str, Any] | None:
        people = self.settings.people
        wanted = [people.name, *people.attributes.values()]
        written = people.filter.replace("{name}", conv.escape_filter_chars(name))
        entries = self._found(connection, people.base, written, wanted, 2)
        if len(entries) != 1:  # several would be a filter that does not say who somebody is
            return None
        names = entries[0]["attributes"].get(people.name)
        return entries[0] if names else None

    def _person(self, connection: ldap3.Connection, entry: Mapping[str, Any]) -> Person:
        settings, attributes = self.settings, entry["attributes"]
        name = min(_texts(attributes[settings.people.name]))  # the same whatever their order is
        if not name.isprintable() or len(name) > 255:
            raise Wrong("their name in the directory cannot be used here")
        groups: tuple[str, ...] = ()
        if (memberships := settings.memberships) is not None:
            written = memberships.filter
            for word, value in (("{dn}", entry["dn"]), ("{name}", name)):
                written = written.replace(word, conv.escape_filter_chars(value))
            rows = self._found(connection, memberships.base, written, [memberships.name], MOST_NAMES)
            groups = tuple(dict.fromkeys(each for row in rows for each in _texts(row["attributes"][memberships.name])))
        given = {
            key: values if len(values) > 1 else values[0]
            for key, attribute in settings.people.attributes.items()
            if (values := _texts(attributes.get(attribute)))
        }
        return Person(
            provider=settings.name,
            place=str(settings.url),
            name=name,
            roles=tuple(group for group in groups if group in settings.roles),
            groups=groups,
            attributes=MappingProxyType(given),
        )

    def _found(
        self, connection: ldap3.Connection, base: str, written: str, attributes: list[str], most: int
    ) -> list[Mapping[str, Any]]:
        connection.search(base, written, attributes=attributes, size_limit=most, time_limit=PATIENCE)
        code = connection.result["result"]
        if code == _LARGER:
            raise self._unreachable(f"it finds more than {most} entries below `{base}`")
        if code != _SUCCESS:
            raise self._unreachable(f"searching below `{base}`: {_said(connection)}")
        return [each for each in connection.response if each["type"] == "searchResEntry"]

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(f"{self.settings.url}: {why}")


@cache
def _tls() -> Any:
    """TLS as the standard library verifies it. That of ldap3 leaves the name to a function that newer Pythons lack."""

    class Verified(ldap3.Tls):  # type: ignore[misc,unused-ignore]
        def __init__(self, ca: Path | None) -> None:
            super().__init__(validate=ssl.CERT_REQUIRED)
            self._context = ssl.create_default_context(cafile=ca)
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2

        def wrap_socket(self, connection: ldap3.Connection, do_handshake: bool = False) -> None:
            host = connection.server.host
            connection.socket = self._context.wrap_socket(connection.socket, server_hostname=host)

    return Verified


def _close(connection: ldap3.Connection) -> None:
    """Also one that was not opened, or whose TLS was not: the library leaves the socket of such a one open."""
    with contextlib.suppress(exceptions.LDAPExceptionError, OSError):
        connection.unbind()
    if connection.socket is not None:
        connection.socket.close()


def _said(connection: ldap3.Connection) -> str:
    return str(connection.result.get("description", "it does not say why"))


def _texts(value: Any) -> list[str]:
    """What an attribute holds: without its schema all values are lists of bytes or texts."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in values]
