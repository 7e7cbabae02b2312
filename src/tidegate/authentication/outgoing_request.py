"""One request to a server whose answer decides who gets in: bounded in size and time, however the answer comes.

It follows no redirections and uses no proxy: the answer comes from where the configuration says, or not at all. `send`
blocks; call it in a thread.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.lazy import LazyModule

if TYPE_CHECKING:
    import httpx
else:
    httpx = LazyModule("httpx")

PATIENCE: Final = 5.0  # seconds of silence, and for the content
LARGEST: Final = 1 << 20  # bytes


class Failed(Exception):
    """Why there is no answer, or none that counts."""


class Unreachable(Exception):
    """An identity provider does not answer, or not as it should."""


class OutgoingRequest(threading.Thread):
    """In a thread of its own: a name that is not resolved, or headers that come byte by byte, have no end that could be
    set. Nobody waits for it when the node stops."""

    def __init__(
        self,
        address: str,
        *,
        form: Mapping[str, str] | None = None,
        user: tuple[str, str] | None = None,
        ca: Path | None = None,
    ) -> None:
        """`form`: what is posted; without it, what is there is got. `user`: name and password of this client."""
        super().__init__(name="request", daemon=True)
        self._address = address
        self._form = form
        self._user = user
        self._ca = ca
        self._socket: socket.socket | None = None
        self._outcome: bytes | Failed = Failed("asking failed, see the log")

    def send(self, altogether: float) -> bytes:
        """The content of the answer, after at most that many seconds."""
        self.start()
        self.join(altogether)
        if self.is_alive():
            if self._socket is not None:
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    self._socket.shutdown(socket.SHUT_RDWR)
            raise Failed(f"it takes more than {altogether:g} s")
        if isinstance(self._outcome, Failed):
            raise self._outcome
        return self._outcome

    def run(self) -> None:
        try:
            with httpx.Client(
                timeout=PATIENCE, trust_env=False, follow_redirects=False, verify=_verifying(self._ca), auth=self._user
            ) as client:
                self._outcome = self._answer(client, self._trace)
        except Failed as error:
            self._outcome = error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:  # the last: of a name that is none
            self._outcome = Failed(str(error) or type(error).__name__)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = info["return_value"].get_extra_info("socket")

    def _answer(self, client: httpx.Client, trace: Callable[[str, Mapping[str, Any]], None]) -> bytes:
        headers = {"accept-encoding": "identity"}  # what is not compressed is as large as it looks
        method = "GET" if self._form is None else "POST"
        extensions = {"trace": trace}
        with client.stream(method, self._address, headers=headers, data=self._form, extensions=extensions) as response:
            if response.status_code != httpx.codes.OK:
                raise Failed(f"it answers {response.status_code}")
            until = time.monotonic() + PATIENCE
            content = b""
            for piece in response.iter_raw():
                content += piece
                if len(content) > LARGEST:
                    raise Failed(f"it is larger than {LARGEST >> 20} MiB")
                if time.monotonic() > until:
                    raise Failed(f"it takes more than {PATIENCE:g} s")
            return content


def _verifying(ca: Path | None) -> ssl.SSLContext | bool:
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise Failed(f"the authorities in `{ca}` cannot be read: {error}") from None
