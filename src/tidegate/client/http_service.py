"""HTTP requests of a client: each has its own connection and a time limit.

Problem answers (RFC 9457) are raised as KeysError with their remedy, or as Denied if the key service refuses.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from tidegate.client.exceptions import Denied
from tidegate.errors import KeysError

_MAX: Final = 1 << 20  # bytes of an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpService:
    """The URL of an HTTP service, and the token for it."""

    url: str
    token: str
    context: ssl.SSLContext | None = None
    timeout: float = 10.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{self.url!r} is not an HTTP address: write https://host:port")
        if not self.token:
            raise ValueError(f"{self.url} needs a token: the one that a user got at registration")

    async def request(
        self, method: str, path: str, body: dict[str, Any], headers: Mapping[str, str] = MappingProxyType({})
    ) -> bytes:
        import httpx  # here: a client that requests its keys over MQTT does not load it

        base = httpx.URL(self.url)
        url = base.copy_with(path=base.path.rstrip("/") + path, query=None, fragment=None, userinfo=b"")
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers}
        # the system's authorities, not those of a package; no proxy from the environment
        verify = self.context or (ssl.create_default_context() if base.scheme == "https" else False)
        content = b""
        try:
            async with (
                httpx.AsyncClient(verify=verify, timeout=self.timeout, trust_env=False) as client,
                client.stream(method, url, headers=headers, content=orjson.dumps(body)) as response,
            ):
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) >= _MAX:
                        break
        except httpx.HTTPError as broken:
            why = str(broken) or type(broken).__name__
            raise KeysError(f"{self.url} cannot be reached: {why}; check the address, and that it runs") from None
        if response.is_success:
            return content
        raise _problem(response.status_code, content)


def _problem(status: int, content: bytes) -> KeysError:
    try:
        problem = orjson.loads(content)
    except orjson.JSONDecodeError:
        problem = None
    if not isinstance(problem, dict):
        return KeysError(f"the answer is {status}: this is not a Tidegate node, or a proxy in front of it answered")
    text = str(problem.get("detail") or problem.get("title") or status)
    if remedy := problem.get("remedy"):
        text += f": {remedy}"
    rule = problem.get("rule")
    word = str(problem.get("type") or "").rpartition(":")[2]
    return Denied(text, rule=rule if isinstance(rule, str) else None, problem=word or f"status {status}")
