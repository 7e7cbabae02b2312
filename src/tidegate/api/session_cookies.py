"""The cookies of somebody who has signed in, or is about to elsewhere, and what a request with them must be.

- The cookie is for this host and for requests of its own pages alone (`SameSite=Strict`), and no script can read it.
- Who signs in at an OpenID Connect issuer has another one meanwhile, which says that it was this browser that began. It
  is sent when the issuer sends the browser back (`SameSite=Lax`), and is worth nothing besides.
- The cookie counts where people sign in and out, and on pages of the console; the API takes none.
- A request with it must name a host that is known here (`http.hosts`): a page of another name that resolves to this
  address gets nothing. One that changes something must not come from another origin.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from tidegate.api.problems import Kind, Problem

PLAIN: Final = "tidegate-session"
BINDING: Final = "tidegate-sign-in"
_SESSION: Final = re.compile(r"ts_[A-Za-z0-9_-]{43}")
_BINDING: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_SIGNING: Final = frozenset(("/login", "/logout", "/oidc/callback"))
_PAGES: Final = "/ui/"


class SessionCookies:
    def __init__(self, hosts: Collection[str], *, secure: bool) -> None:
        """`hosts`: names by which this is reached; `secure`: over TLS."""
        self._hosts = frozenset(each.lower() for each in hosts) | {"localhost"}
        self._secure = secure

    @property
    def name(self) -> str:
        return self._prefixed(PLAIN)

    def _prefixed(self, name: str) -> str:
        return f"__Host-{name}" if self._secure else name

    def of(self, request: Request) -> str | None:
        """The session in a request; None: there is none, or its cookie does not count there."""
        path: str = request.scope["path"]  # what the route was chosen by
        if path not in _SIGNING and not path.startswith(_PAGES):
            return None
        found = request.cookies.get(self.name)
        return found if found is not None and _SESSION.fullmatch(found) else None

    def binding(self, request: Request) -> str | None:
        """The sign-in elsewhere that this browser has begun; None: it has not."""
        found = request.cookies.get(self._prefixed(BINDING))
        return found if found is not None and _BINDING.fullmatch(found) else None

    def check(self, request: Request) -> None:
        """Problem unless a page of this host has sent a request."""
        host = request.headers.get("host", "")
        if not self._is_known(host):
            known = ", ".join(sorted(self._hosts))
            text = f"`{host[:200]}` is not how this node is called"
            raise Problem(Kind.FORBIDDEN, text, f"use one of {known}, or list the name under `http.hosts`")
        if request.method in _SAFE:
            return
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        schemes = ("https",) if self._secure else ("http", "https")  # a proxy on this machine may have the certificate
        foreign = origin is not None and origin.lower() not in [f"{each}://{host.lower()}" for each in schemes]
        if foreign or site in ("cross-site", "same-site"):
            raise Problem(Kind.FORBIDDEN, "a page of another origin has sent this", "do it from a page of this node")

    def _is_known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name.lower() in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def header(self, session: str, seconds: int) -> str:
        """`Set-Cookie` for a session; with 0 seconds the browser forgets it."""
        return self._header(PLAIN, session, "Strict", seconds)

    def binding_header(self, binding: str, seconds: int) -> str:
        """The same for a sign-in elsewhere."""
        return self._header(BINDING, binding, "Lax", seconds)

    def _header(self, name: str, value: str, site: str, seconds: int) -> str:
        secure = "; Secure" if self._secure else ""
        return f"{self._prefixed(name)}={value}; Path=/; HttpOnly; SameSite={site}; Max-Age={seconds}{secure}"
