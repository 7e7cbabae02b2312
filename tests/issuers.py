"""Issuers of OpenID Connect for tests: npm's oidc-provider, and one that says what a test wants.

`Issuer` runs the real one as a process; `signs_in` is a person in front of its pages. `Pretended` serves discovery and
keys that a test makes up, to attack with.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import orjson
from joserfc import jwk, jws

from harness import PATIENCE, free_port
from processes import missing, needs

FOREIGN = Path(__file__).parent / "foreign"
CLIENT = "tidegate"
RENEWING = "renewing"
"""A client that is given refresh tokens."""
SECRET = "between:us & nobody/else"
PEOPLE = {
    "ana": {"roles": ["trainer"], "groups": ["ops"], "shift": "08:00-14:00"},
    "cleo": {"roles": "visitor", "groups": ["ops"]},
    "bob": {"roles": ["visitor"], "groups": []},
}


class SigningKey:
    """A private key, and what it signs."""

    def __init__(self, name: str = "one", algorithm: str = "RS256") -> None:
        made: Any = {
            "RS256": lambda: jwk.RSAKey.generate_key(2048),
            "ES256": lambda: jwk.ECKey.generate_key("P-256"),
            "EdDSA": lambda: jwk.OKPKey.generate_key("Ed25519"),
        }
        self.name, self.algorithm = name, algorithm
        self.key = made[algorithm]()

    @property
    def private(self) -> dict[str, Any]:
        return {**self.key.as_dict(private=True), "kid": self.name, "alg": self.algorithm, "use": "sig"}

    @property
    def public(self) -> dict[str, Any]:
        return {**self.key.as_dict(private=False), "kid": self.name, "alg": self.algorithm, "use": "sig"}

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        whole = {"alg": self.algorithm, "kid": self.name, **header}
        registry = jws.JWSRegistry(algorithms=[whole["alg"]], strict_check_header=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the older name of Ed25519
            return jws.serialize_compact(whole, orjson.dumps(claims), self.key, registry=registry)


def claims(issuer: str, **more: Any) -> dict[str, Any]:
    """What a right token says; None takes something away."""
    now = int(time.time())
    said = {"iss": issuer, "sub": "ana", "aud": CLIENT, "iat": now, "exp": now + 600, **PEOPLE["ana"], **more}
    return {name: value for name, value in said.items() if value is not None}


class Issuer:
    """The real one."""

    def __init__(self, *redirects: str, key: SigningKey | None = None, seconds: int = 600) -> None:
        needs("node")
        if not (FOREIGN / "node_modules/oidc-provider").is_dir():
            missing("oidc-provider is not installed; run `make foreign`")
        self.port = free_port()
        self.redirect = redirects[0]
        self.key = SigningKey() if key is None else key
        self.url = f"http://127.0.0.1:{self.port}"
        client = {
            "client_id": CLIENT,
            "client_secret": SECRET,
            "redirect_uris": redirects,
            "id_token_signed_response_alg": self.key.algorithm,
        }
        renewing = {**client, "client_id": RENEWING, "grant_types": ["authorization_code", "refresh_token"]}
        public = {**client, "client_id": "public", "token_endpoint_auth_method": "none"}
        del public["client_secret"]
        self._settings = {
            "port": self.port,
            "keys": [self.key.private],
            "clients": [client, renewing, public],
            "people": PEOPLE,
            "seconds": seconds,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["node", "issuer.mjs"], cwd=FOREIGN, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(orjson.dumps(self._settings) + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.strip() == b"ready":
                return
        raise AssertionError(f"oidc-provider ended with {self._process.wait()}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None

    def token(self, **more: Any) -> str:
        """One that it could have made."""
        return self.key.sign(claims(self.url, **more))


@contextlib.contextmanager
def running(*redirects: str, **settings: Any) -> Iterator[Issuer]:
    issuer = Issuer(*redirects, **settings)
    issuer.start()
    try:
        yield issuer
    finally:
        issuer.stop()


async def signs_in(location: str, name: str) -> str:
    """Somebody signs in on the pages of the real issuer: where it sends the browser back to."""
    async with httpx.AsyncClient(timeout=PATIENCE) as browser:
        for _ in range(10):
            answer = await browser.get(location)
            if answer.status_code == 200:
                [action] = re.findall(r'action="([^"]+)"', answer.text)
                form = {"prompt": "login", "login": name, "password": "any"}
                answer = await browser.post(urljoin(location, action), data=form)
            assert answer.is_redirect, answer.text
            location = urljoin(location, answer.headers["location"])
            if "/oidc/callback" in location:
                return location
    raise AssertionError(location)


class Pretended:
    """An issuer that says what a test wants: `pages` by path."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}
        self.asked: list[tuple[str, str]] = []
        pretended = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["content-length"])).decode())

            def _answer(self, form: str) -> None:
                pretended.asked.append((self.path, form))
                page = pretended.pages.get(self.path)
                body = orjson.dumps(page)
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def discovers(self, *keys: SigningKey, **more: Any) -> None:
        said = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/auth",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
        }
        self.pages["/.well-known/openid-configuration"] = {**said, **more}
        self.pages["/jwks"] = {"keys": [key.public for key in keys]}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def pretended(*keys: SigningKey, **more: Any) -> Iterator[Pretended]:
    issuer = Pretended()
    issuer.discovers(*keys, **more)
    try:
        yield issuer
    finally:
        issuer.close()
