"""Consoles in browsers, as scripts: each follows the stream of events and fetches a page again when that says so.

They begin with a session of their own, and look at *Now*, *Denials* and *Clients* in turn.
"""

from __future__ import annotations

import http.client
import os
import sys
import threading
from urllib.parse import urlencode

PAGES = ("/ui/now", "/ui/denials", "/ui/clients")
HEADERS = {"Sec-Fetch-Site": "same-origin"}


class Console(threading.Thread):
    """One of them."""

    def __init__(self, port: int, token: str, number: int) -> None:
        super().__init__(daemon=True)
        self.pages = 0
        self._port = port
        self._page = PAGES[number % len(PAGES)]
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30.0)
        body = urlencode({"token": token})
        form = {"Content-Type": "application/x-www-form-urlencoded", **HEADERS}
        self._connection.request("POST", "/ui/login", body, form)
        answer = self._connection.getresponse()
        answer.read()
        cookie = answer.getheader("Set-Cookie")
        if cookie is None:
            raise ConnectionError(f"the console did not let us in: {answer.status}")
        self._headers = {"Cookie": cookie.partition(";")[0], **HEADERS}

    def look(self) -> None:
        self._connection.request("GET", self._page, headers={"HX-Request": "true", **self._headers})
        answer = self._connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise ConnectionError(f"{self._page}: {answer.status}")
        self.pages += 1

    def run(self) -> None:
        stream = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60.0)
        stream.request("GET", "/ui/events", headers=self._headers)
        answer = stream.getresponse()
        while line := answer.readline():
            if line.startswith(b"event: now"):
                self.look()


def main() -> None:
    os.nice(10)
    port, count, token = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    consoles = [Console(port, token, number) for number in range(count)]
    for each in consoles:
        each.look()
        each.start()
    print("calling", flush=True)
    sys.stdin.readline()
    print(sum(each.pages for each in consoles), flush=True)
    os._exit(0)  # the streams have no end


main()
