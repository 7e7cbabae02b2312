"""The cookie of somebody who has signed in, and what a request with it must be.

- The cookie is for this host and for requests of its own pages alone (`SameSite=Strict`), and no script can read it.
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
SECURE: Final = "__Host-tidegate-session"
_SESSION: Final = re.compile(r"ts_[A-Za-z0-9_-]{43}")
_SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))


class SessionCookies:
    def __init__(self, hosts: Collection[str], *, secure: bool) -> None:
        """`hosts`: names by which this is reached; `secure`: over TLS."""
        self._hosts = frozenset(each.lower() for each in hosts) | {"localhost"}
        self._secure = secure

    @property
    def name(self) -> str:
        return SECURE if self._secure else PLAIN

    def of(self, request: Request) -> str | None:
        """The session in a request; None: there is none."""
        found = request.cookies.get(self.name)
        return found if found is not None and _SESSION.fullmatch(found) else None

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
        secure = "; Secure" if self._secure else ""
        return f"{self.name}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}"
