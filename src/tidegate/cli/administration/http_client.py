"""An HTTP client for the interface of a node. A refusal becomes one line that names the problem and the remedy.

The client follows no redirects and uses no proxies. It sends a change once: if the connection ends before the answer,
it reports that the outcome is unknown and does not send it again. The token appears in no message.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

import typer

from tidegate.cli import terminal
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    import ssl

    import httpx

URL: Final = "http://127.0.0.1:8080"
PATIENCE: Final = 90.0  # seconds; the node takes up to 60 for a dry run
CONNECTING: Final = 10.0
PAGE: Final = 1000  # documents at a time
LARGEST: Final = 256 << 20  # bytes of an answer
_TOKEN_FILE: Final = 64 << 10  # bytes of a file with a token
_ATTEMPTS: Final = 20  # how often a request is repeated that the node refuses with 429
_TOKEN: Final = "use --token-file FILE, or set TIDEGATE_TOKEN"  # noqa: S105 - how to give one
_option = partial(typer.Option, rich_help_panel="Connection")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a node and the credentials for it; each field is an option."""

    url: Annotated[
        str, _option("--url", help="The HTTP address of the node.", envvar="TIDEGATE_URL", metavar="URL")
    ] = URL
    token: Annotated[
        str | None,
        _option(
            "--token",
            help="Your token. Others on this machine can see a command line: prefer the variable.",
            envvar="TIDEGATE_TOKEN",
            metavar="TOKEN",
        ),
    ] = field(default=None, repr=False)
    token_file: Annotated[Path | None, _option("--token-file", help="A file that holds the token, instead.")] = None
    ca: Annotated[Path | None, _option("--ca", help="CA of the node's certificate. Default: those of the system.")] = (
        None
    )
    cert: Annotated[Path | None, _option("--cert", help="Your certificate, if the node wants one.")] = None
    cert_key: Annotated[Path | None, _option("--key", help="Its private key, if in another file.")] = None


class Refused(TidegateError):
    """The node understood the request and refused it."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


def path(*parts: str) -> str:
    """The path of a resource. The first part is used as it is; in the others a `/` is encoded."""
    first, *ids = parts
    return "/".join((first, *(quote(id, safe="") for id in ids)))


class ApiClient:
    """Sends requests to one node, one after the other; the first one opens the connection."""

    def __init__(self, endpoint: Endpoint, *, patience: float = PATIENCE) -> None:
        self._endpoint = endpoint
        self._patience = patience
        self._client: httpx.Client | None = None
        self._reused = False  # whether the connection has answered before
        self._me: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    def get(self, target: str, **query: object) -> Any:
        return self.request("GET", target, query=query)[0]

    def read(self, target: str) -> tuple[Any, str | None]:
        """A document, and its version to be sent with a change."""
        return self.request("GET", target)

    def pages(self, target: str) -> Iterator[dict[str, Any]]:
        after: object = None
        while True:
            page = self.get(target, limit=PAGE, after=after)
            yield from page["items"]
            after = page.get("next")
            if after is None:
                return

    @property
    def me(self) -> dict[str, Any]:
        if self._me is None:
            self._me = self.get("/me")
        return self._me

    def change(
        self, method: str, target: str, *, dry_run: bool, why: str, body: object = None, match: str | None = None
    ) -> dict[str, Any]:
        """Requests a change, or with `dry_run` only its effect. `match` is the version that is changed."""
        query = {"dry_run": dry_run, "why": why}
        value: dict[str, Any] = self.request(method, target, query=query, body=body, match=match)[0]
        return value

    def request(
        self,
        method: str,
        target: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        match: str | None = None,
    ) -> tuple[Any, str | None]:
        """The JSON object that the node answers with, and its ETag; Refused or TidegateError with the remedy."""
        parameters = {
            key: str(value).lower() if isinstance(value, bool) else value
            for key, value in (query or {}).items()
            if value not in (None, "")
        }
        if parameters:
            target = f"{target}?{urlencode(parameters)}"
        headers = {} if match is None else {"If-Match": match}
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = None if body is None else json.dumps(body).encode()
        for _ in range(_ATTEMPTS):
            response, received = self._exchange(method, target, content, headers)
            later = response.headers.get("Retry-After", "")
            if response.status_code != 429 or not later.isdecimal() or float(later) > self._patience:
                break
            time.sleep(float(later))
        return self._answer(response, received)

    def _exchange(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str]
    ) -> tuple[httpx.Response, bytes]:
        import httpx

        if self._client is None:
            self._client = self._connect()
        reused, self._reused = self._reused, False
        received = bytearray()
        try:
            with self._client.stream(method, self._url + target, content=content, headers=headers) as response:
                for chunk in response.iter_bytes():
                    received += chunk
                    if len(received) > LARGEST:
                        url = self._endpoint.url
                        raise TidegateError(f"{url} answers with more than {LARGEST >> 20} MiB: is that a node?")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise TidegateError(self._unreachable(_os_error(error))) from None
        except httpx.HTTPError as error:
            if method == "GET" and reused:
                return self._exchange(method, target, content, headers)  # the connection had been idle for too long
            raise TidegateError(self._lost(error, method)) from None
        self._reused = True
        return response, bytes(received)

    def _answer(self, response: httpx.Response, received: bytes) -> tuple[Any, str | None]:
        try:
            value = json.loads(received) if received else None
        except ValueError:
            value = None
        if response.is_success and isinstance(value, dict):
            return value, response.headers.get("ETag")
        status = response.status_code
        if isinstance(value, dict) and "detail" in value:
            given = "Authorization" in response.request.headers
            raise Refused(_refusal(status, value, given=given), status=status)
        text = f"{status} {response.reason_phrase}".strip()
        raise TidegateError(f"{self._endpoint.url} answers {text}, but not as a node does: check --url")

    # -- the connection --------------------------------------------------------------------------------------------

    def _connect(self) -> httpx.Client:
        """A client for the endpoint. Nothing is sent yet."""
        import httpx

        endpoint = self._endpoint
        https, host, self._url = _address(endpoint.url)
        if not https and (endpoint.ca or endpoint.cert or endpoint.cert_key):
            terminal.usage("--ca, --cert and --key are for https://: write that, or leave them out")
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        token = _token(endpoint)
        if token:
            headers["Authorization"] = f"Bearer {token}"
            if not https and not _loopback(host):
                terminal.note(
                    f"The token is sent to {host} unencrypted: use https:// if the network is not yours alone."
                )
        return httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(self._patience, connect=min(CONNECTING, self._patience)),
            verify=_tls_context(endpoint) if https else False,
            trust_env=False,
        )

    def _unreachable(self, error: OSError) -> str:
        import ssl

        url = self._endpoint.url
        match error:
            case ssl.SSLCertVerificationError(verify_message=why):
                return f"the certificate of {url} is not trusted ({why}): name the CA that issued it with --ca"
            case ssl.SSLError():
                return f"no TLS with {url} ({error.reason or error}): does it speak https, and want --cert and --key?"
            case TimeoutError():
                return f"{url} does not answer within {CONNECTING:g} s: check --url and the network"
            case ConnectionRefusedError():
                remedy = "run a node with `http` in its file, or name its address with --url or TIDEGATE_URL"
                return f"nothing listens at {url}: {remedy}"
            case _:
                return f"cannot connect to {url} ({error.strerror or error}): check --url"

    def _lost(self, error: httpx.HTTPError, method: str) -> str:
        import ssl

        import httpx

        url = self._endpoint.url
        cause = _os_error(error)
        if isinstance(cause, ssl.SSLError):  # TLS 1.3 reports a missing client certificate after the handshake
            return self._unreachable(cause)
        timeout = isinstance(error, httpx.TimeoutException)
        what = f"no answer within {self._patience:g} s" if timeout else "the connection was lost"
        if method == "GET":
            # A missing client certificate can look like this, too: the node closes before it reads a request.
            wants = ", and whether the node wants --cert and --key" if url.startswith("https:") else ""
            return f"{url}: {what}: try again, and check --url{wants}"
        return f"{url}: {what}: it is not known whether the change was made, so look before you try again"


def _os_error(error: BaseException) -> OSError:
    """The error of the operating system or of TLS that httpx has wrapped."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return cause if cause is not None else OSError(str(error))


def _address(url: str) -> tuple[bool, str, str]:
    """Whether it is https, the host, and the URL that paths are appended to."""
    wrong = f"`{url}` is not the address of a node: write for example {URL}"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is none
    except ValueError:
        terminal.usage(wrong)
    if parts.username is not None or parts.password is not None:
        terminal.usage("a URL with a password in it is seen by everybody on this machine: leave that out")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        terminal.usage(wrong)
    https = parts.scheme == "https"
    return https, parts.hostname, f"{parts.scheme}://{parts.netloc}{quote(parts.path.rstrip('/'), safe='/%')}"


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(endpoint: Endpoint) -> str | None:
    token = endpoint.token
    if endpoint.token_file is not None:
        try:
            with endpoint.token_file.open("rb") as stream:
                token = stream.read(_TOKEN_FILE).decode("ascii", "replace")  # refused below if it is not ASCII
        except OSError as broken:
            raise TidegateError(f"cannot read {endpoint.token_file}: {broken.strerror}") from None
    token = token.strip() if token else None
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise TidegateError(f"the token is not valid, because a token is one line of plain text: {_TOKEN}")
    return token


def _tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    import ssl

    if endpoint.cert_key is not None and endpoint.cert is None:
        terminal.usage("--key belongs to a certificate: name it with --cert")
    try:
        context = ssl.create_default_context(cafile=endpoint.ca)
    except OSError as broken:
        raise TidegateError(f"cannot read certificates from {endpoint.ca}: {broken.strerror or broken}") from None
    if endpoint.cert is not None:
        try:
            context.load_cert_chain(endpoint.cert, endpoint.cert_key, password="")  # do not ask on the terminal
        except (OSError, ValueError) as broken:
            files = f"{endpoint.cert}{f' with {endpoint.cert_key}' if endpoint.cert_key else ''}"
            reason = getattr(broken, "strerror", None) or broken
            raise TidegateError(f"cannot use the certificate {files}: {reason}") from None
    return context


def _refusal(status: int, problem: Mapping[str, Any], *, given: bool) -> str:
    """The problem, the rule that decided it, and the remedy, in one line."""
    detail, remedy = str(problem["detail"]), str(problem.get("remedy") or "")
    if status == 401:
        remedy = f"ask for a new one, and {_TOKEN}" if given else _TOKEN
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
