"""HTTP for the few requests a client has: one connection each, in a thread, with a time limit.

Answers that are problems (RFC 9457) become KeysError, with the remedy; that of a key service that says no, Denied.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from tidegate.client.exceptions import Denied
from tidegate.errors import KeysError

_MAX: Final = 1 << 20  # bytes of an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpService:
    """Where HTTP is spoken, and with which token."""

    url: str
    token: str
    context: ssl.SSLContext | None = None
    timeout: float = 10.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{self.url!r} is no place for HTTP: write https://host:port")
        if not self.token:
            raise ValueError(f"{self.url} wants a token: that of a user, as its registration gave it")

    async def request(self, method: str, path: str, body: dict[str, Any]) -> bytes:
        """The body of a good answer."""
        return await asyncio.to_thread(self._request, method, path, orjson.dumps(body))

    def _request(self, method: str, path: str, body: bytes) -> bytes:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        connection: HTTPConnection
        if parts.scheme == "https":
            context = self.context or ssl.create_default_context()
            connection = HTTPSConnection(host, parts.port, timeout=self.timeout, context=context)
        else:
            connection = HTTPConnection(host, parts.port, timeout=self.timeout)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, parts.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            content = response.read(_MAX)
        except (OSError, HTTPException) as broken:
            why = str(broken) or type(broken).__name__
            raise KeysError(f"{self.url} cannot be asked: {why}; check the address, and that it runs") from None
        finally:
            connection.close()
        if 200 <= response.status < 300:
            return content
        raise _problem(response.status, content)


def _problem(status: int, content: bytes) -> KeysError:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        return KeysError(f"the answer is {status}: that is no service of a node, or something is in front of it")
    text = str(found.get("detail") or found.get("title") or status)
    if remedy := found.get("remedy"):
        text += f": {remedy}"
    rule = found.get("rule")
    word = str(found.get("type") or "").rpartition(":")[2]
    return Denied(text, rule=rule if isinstance(rule, str) else None, problem=word or f"status {status}")
