"""One connection to the HTTP interface of a node, and its refusals as a line that says what to do.

Only the standard library. Nothing is followed elsewhere: no redirects, no proxies. What changes something is sent once;
if the connection ends before the answer, that is told, and not tried again. The token is in no text that is shown.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

from tidegate.cli import terminal
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

URL: Final = "http://127.0.0.1:8080"
PATIENCE: Final = 90.0  # seconds; the node takes up to 60 for a dry run
CONNECTING: Final = 10.0
PAGE: Final = 1000  # documents at a time
LARGEST: Final = 256 << 20  # bytes of an answer
_MOST: Final = 64 << 10  # bytes of a file with a token
_WAITS: Final = 20  # times that somebody who asks too often is patient
_TOKEN: Final = "say --token-file FILE, or set TIDEGATE_TOKEN"  # noqa: S105 - how to give one


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Whom to ask, and as whom."""

    url: str = URL
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the node said."""

    value: Any
    version: str | None = None
    """The ETag, to be sent with a change."""


class Refused(TidegateError):
    """The node understood, and said no."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


def path(*parts: str) -> str:
    """The path of something; the first part is taken as it is, in the others a `/` is no separator."""
    first, *ids = parts
    return "/".join((first, *(quote(each, safe="") for each in ids)))


class Api:
    """Asks one node, one question after the other, over one connection that is opened by the first."""

    def __init__(self, where: Where, *, patience: float = PATIENCE) -> None:
        self._where = where
        self._patience = patience
        self._connection: HTTPConnection | None = None
        self._headers: dict[str, str] = {}
        self._prefix = ""
        self._me: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()

    def get(self, where: str, **query: object) -> Answer:
        return self.ask("GET", where, query=query)

    def pages(self, where: str, **query: object) -> Iterator[dict[str, Any]]:
        """Everything of a list, page after page."""
        after: object = None
        while True:
            found = self.get(where, limit=PAGE, after=after, **query).value
            yield from found["items"]
            after = found.get("next")
            if after is None:
                return

    @property
    def me(self) -> dict[str, Any]:
        """Whose token this is."""
        if self._me is None:
            self._me = self.get("/me").value
        return self._me

    def ask(
        self,
        method: str,
        where: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        match: str | None = None,
    ) -> Answer:
        """The answer; Refused or TidegateError with the remedy. `match` is the version that is to be changed."""
        asked = urlencode({key: _written(value) for key, value in (query or {}).items() if value not in (None, "")})
        content = None if body is None else json.dumps(body).encode()
        target = f"{where}?{asked}" if asked else where
        for _ in range(_WAITS):
            response, said = self._exchange(method, target, content, match)
            later = response.headers.get("Retry-After", "")
            if response.status != 429 or not later.isdecimal() or float(later) > self._patience:
                break
            time.sleep(float(later))
        return self._understood(response, said)

    def _exchange(
        self, method: str, target: str, content: bytes | None, match: str | None
    ) -> tuple[HTTPResponse, bytes]:
        from http.client import HTTPException

        fresh = self._connection is None
        connection = self._connection or self._connected()
        headers = {**self._headers, "Accept": "application/json"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        if match is not None:
            headers["If-Match"] = match
        try:
            connection.request(method, self._prefix + target, content, headers)
            response = connection.getresponse()
            said = response.read(LARGEST + 1)
        except (OSError, HTTPException) as lost:
            self._forget()
            if method == "GET" and not fresh:
                return self._exchange(method, target, content, match)  # it had been idle for too long
            raise TidegateError(self._lost(lost, method)) from None
        if len(said) > LARGEST:
            raise TidegateError(f"{self._where.url} answers with more than {LARGEST >> 20} MiB: is that a node?")
        if response.will_close:
            self._forget()
        return response, said

    def _understood(self, response: HTTPResponse, said: bytes) -> Answer:
        try:
            value = json.loads(said) if said else None
        except ValueError:
            value = None
        if 200 <= response.status < 300 and isinstance(value, dict):
            return Answer(value=value, version=response.headers.get("ETag"))
        if isinstance(value, dict) and "detail" in value:
            raise Refused(
                _refusal(response.status, value, given="Authorization" in self._headers), status=response.status
            )
        what = f"{response.status} {response.reason}".strip()
        raise TidegateError(f"{self._where.url} answers {what}, but not as a node does: check --url")

    # -- the connection --------------------------------------------------------------------------------------------

    def _connected(self) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        where = self._where
        https, host, port, self._prefix = _address(where.url)
        if not https and (where.ca or where.cert or where.cert_key):
            terminal.usage("--ca, --cert and --key are for https://: write that, or leave them out")
        token = _token(where)
        if token:
            self._headers = {"Authorization": f"Bearer {token}"}
            if not https and not _loopback(host):
                terminal.note(
                    f"The token is sent to {host} unencrypted: use https:// if the network is not yours alone."
                )
        patience = min(CONNECTING, self._patience)
        connection: HTTPConnection
        if https:
            connection = HTTPSConnection(host, port, timeout=patience, context=_context(where))
        else:
            connection = HTTPConnection(host, port, timeout=patience)
        try:
            connection.connect()
        except OSError as refused:
            connection.close()
            raise TidegateError(self._unreachable(refused)) from None
        connection.sock.settimeout(self._patience)
        self._connection = connection
        return connection

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _unreachable(self, refused: OSError) -> str:
        import ssl

        url = self._where.url
        match refused:
            case ssl.SSLCertVerificationError(verify_message=why):
                return f"the certificate of {url} is not to be trusted ({why}): name the CA that issued it with --ca"
            case ssl.SSLError():
                return (
                    f"no TLS with {url} ({refused.reason or refused}): does it speak https, and want --cert and --key?"
                )
            case TimeoutError():
                return f"{url} does not answer within {CONNECTING:g} s: check --url and the network"
            case ConnectionRefusedError():
                remedy = "run a node with `http` in its file, or say where one is with --url or TIDEGATE_URL"
                return f"nobody listens at {url}: {remedy}"
            case _:
                return f"cannot connect to {url} ({refused.strerror or refused}): check --url"

    def _lost(self, lost: Exception, method: str) -> str:
        import ssl

        url = self._where.url
        if isinstance(lost, ssl.SSLError):  # with TLS 1.3 a certificate that is missing is told after the handshake
            return self._unreachable(lost)
        said = f"no answer within {self._patience:g} s" if isinstance(lost, TimeoutError) else "the connection was lost"
        if method == "GET":
            # A certificate that is missing can look like this, too: the node closes before it is asked anything.
            wants = ", and whether the node wants --cert and --key" if url.startswith("https:") else ""
            return f"{url}: {said}: try again, and check --url{wants}"
        return f"{url}: {said}: it is not known whether it was done, so look before you try again"


def _address(url: str) -> tuple[bool, str, int, str]:
    wrong = f"`{url}` is no address of a node: write for example {URL}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        terminal.usage(wrong)
    if parts.username is not None or parts.password is not None:
        terminal.usage("a URL with a password in it is seen by everybody on this machine: leave that out")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        terminal.usage(wrong)
    https = parts.scheme == "https"
    return https, parts.hostname, port or (443 if https else 80), quote(parts.path.rstrip("/"), safe="/%")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(where: Where) -> str | None:
    token = where.token
    if where.token_file is not None:
        try:
            with where.token_file.open("rb") as stream:
                token = stream.read(_MOST).decode("ascii", "replace")  # what is none is told below
        except OSError as broken:
            raise TidegateError(f"cannot read {where.token_file}: {broken.strerror}") from None
    token = token.strip() if token else None
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise TidegateError(f"what was given as the token is none, which is one line of plain text: {_TOKEN}")
    return token


def _context(where: Where) -> Any:
    import ssl

    if where.cert_key is not None and where.cert is None:
        terminal.usage("--key belongs to a certificate: name it with --cert")
    try:
        context = ssl.create_default_context(cafile=where.ca)
    except OSError as broken:
        raise TidegateError(f"cannot read certificates from {where.ca}: {broken.strerror or broken}") from None
    if where.cert is not None:
        try:
            context.load_cert_chain(where.cert, where.cert_key, password="")  # nobody is there to be asked for one
        except (OSError, ValueError) as broken:
            files = f"{where.cert}{f' with {where.cert_key}' if where.cert_key else ''}"
            reason = getattr(broken, "strerror", None) or broken
            raise TidegateError(f"cannot use the certificate {files}: {reason}") from None
    return context


def _written(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _refusal(status: int, problem: Mapping[str, Any], *, given: bool) -> str:
    """What is wrong, by whom, and what to do, in a line."""
    detail, remedy = str(problem["detail"]), str(problem.get("remedy") or "")
    if status == 401:
        remedy = f"have one made, and {_TOKEN}" if given else _TOKEN
        detail = detail if given else "a token is needed"
    rule = problem.get("rule")
    if rule:
        detail += f" (rule {rule})"
    errors = [each for each in problem.get("errors") or () if isinstance(each, dict) and "error" in each]
    if errors and not any(str(each["error"]) in detail for each in errors):
        detail = "; ".join(
            f"`{each['at']}`: {each['error']}" if each.get("at") else str(each["error"]) for each in errors
        )
        remedy = ""
    detail = "; ".join(line.strip() for line in detail.splitlines() if line.strip()) or f"refused with {status}"
    return f"{detail}: {remedy}" if remedy and remedy not in detail else detail
