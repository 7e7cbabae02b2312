"""Somebody who has signed in, at the HTTP interface."""

from __future__ import annotations

from collections.abc import Generator
from http.cookies import SimpleCookie

import httpx


class ShownSession(httpx.Auth):
    """Shows the session that is in a cookie as a token: the interface takes no cookie, only the console does."""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        for name, value in SimpleCookie(request.headers.get("cookie", "")).items():
            if name.endswith("tidegate-session"):
                request.headers["Authorization"] = f"Bearer {value.value}"
        yield request
