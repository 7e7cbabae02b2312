"""The connection to the HTTP interface: what goes wrong is one clear line, and the token is told to nobody else."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
import trustme

from cli.administering import CONFIGURATION, tidegate
from harness import PATIENCE, free_port
from processes import process

TOKEN = "tg_secret"
PROBLEM = "application/problem+json"
TLS = b"\x16"
"""How a handshake begins."""


def answer(body: object, status: str = "200 OK", *headers: str, kind: str = "application/json") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + content


def problem(status: str, **members: object) -> bytes:
    return answer(members, status, kind=PROBLEM)


class Scripted:
    """Gives one answer after the other; an empty one closes the connection."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", free_port()))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        while self.answers:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return  # the test is over
            self.connections += 1
            connection.settimeout(PATIENCE)
            if connection.recv(1, socket.MSG_PEEK) == TLS:
                connection.sendall(self.answers.pop(0))  # as a server answers that knows nothing of TLS
                connection.close()
                continue
            with connection, connection.makefile("rb") as stream:
                while self.answers and (request := self._request(stream)):
                    self.asked.append(request)
                    said = self.answers.pop(0)
                    if not said:
                        break
                    connection.sendall(said)

    @staticmethod
    def _request(stream: object) -> str:
        lines: list[str] = []
        length = 0
        while (line := stream.readline().decode()) not in ("\r\n", ""):  # type: ignore[attr-defined]
            lines.append(line.strip())
            if line.lower().startswith("content-length:"):
                length = int(line.partition(":")[2])
        if length:
            stream.read(length)  # type: ignore[attr-defined]
        return "\n".join(lines)


@contextlib.contextmanager
def scripted(*answers: bytes) -> Iterator[Scripted]:
    server = Scripted(answers)
    serving = threading.Thread(target=server.serve)
    serving.start()
    try:
        yield server
    finally:
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        serving.join(PATIENCE)
        assert not serving.is_alive()


def test_keys_are_listed_page_after_page() -> None:
    times = dict.fromkeys(("made", "valid_until", "readable_until"), "2030-01-01T00:00:00.000Z")
    pages = [answer({"items": [{"id": id, **times}], "next": after}) for id, after in (("k1", "k1"), ("k2", None))]
    with scripted(*pages) as server:
        ran = tidegate("key", "list", TIDEGATE_URL=server.url, TIDEGATE_TOKEN=TOKEN)
    assert ran.code == 0
    assert [id in ran.out for id in ("k1", "k2")] == [True, True]
    assert [each.split()[1] for each in server.asked] == ["/keys?limit=1000", "/keys?limit=1000&after=k1"]


def test_nobody_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    for command in (("user", "list"), ("policy", "remove", "p1"), ("token", "list", "--json")):
        ran = tidegate(*command, TIDEGATE_URL=url)
        assert (ran.code, ran.out) == (1, "")
        remedy = "run a node with `http` in its file, or name its address with --url or TIDEGATE_URL"
        assert ran.err == f"error: nothing listens at {url}: {remedy}\n"
    ran = tidegate("user", "list", "--url", "http://no.such.host.invalid")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: cannot connect to http://no.such.host.invalid (")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "--url ftp://localhost",
            "`ftp://localhost` is not the address of a node: write for example http://127.0.0.1:8080",
        ),
        ("--url localhost:8080", "is not the address of a node"),
        ("--url http://", "is not the address of a node"),
        ("--url http://localhost:99999", "is not the address of a node"),
        ("--url http://[::1", "is not the address of a node"),
        ("--url http://mary:secret@localhost", "a URL with a password in it"),
        ("--ca ca.pem", "--ca, --cert and --key are for https://"),
        ("--url https://127.0.0.1 --key k.pem", "--key belongs to a certificate: name it with --cert"),
    ],
)
def test_wrong_usage(arguments: str, said: str) -> None:
    ran = tidegate("user", "list", *arguments.split())
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_what_is_said_with_a_request() -> None:
    with scripted(answer({"items": [], "next": None}), answer({"items": [], "next": None})) as server:
        assert tidegate("user", "list", "--token", TOKEN, "--url", f"{server.url}/behind/").code == 0
        assert tidegate("user", "list", "--url", server.url).code == 0
    first, second = server.asked
    assert first.startswith("GET /behind/directory/users?limit=1000 HTTP/1.1\n")
    assert f"Authorization: Bearer {TOKEN}" in first
    assert "Authorization" not in second


def test_a_page_after_the_other_over_one_connection() -> None:
    def page(number: int, after: str | None) -> bytes:
        item = {"id": f"p{number}", "value": {"topic": "a"}, "source": "api", "version": 1}
        return answer({"items": [item], "next": after})

    with scripted(page(1, "p 1/"), page(2, None)) as server:
        found = tidegate("policy", "list", "--json", "--url", server.url).json
    assert [each["id"] for each in found["items"]] == ["p1", "p2"]
    assert server.connections == 1
    assert "after=p+1%2F" in server.asked[1]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            problem("401 Unauthorized", detail="it has ended", remedy="send one"),
            "it has ended: ask for a new one, and use --token-file FILE, or set TIDEGATE_TOKEN",
        ),
        (
            problem("403 Forbidden", detail="you may not read it", remedy="ask for it", rule="p7"),
            "you may not read it (rule p7): ask for it",
        ),
        (
            problem("422 X", detail="two things are wrong", errors=[{"at": "a", "error": "is odd"}, {"error": "more"}]),
            "`a`: is odd; more",
        ),
        (problem("422 X", detail="policy/p: wrong\npolicy/q: wrong"), "policy/p: wrong; policy/q: wrong"),
        (problem("500 X", detail="it \x1b[31mfailed"), "it \\x1b[31mfailed"),
        (
            answer(b"<html>", "404 Not Found", kind="text/html"),
            "answers 404 Not Found, but not as a node does: check --url",
        ),
        (answer(b"[]"), "answers 200 OK, but not as a node does: check --url"),
        (answer({}, "302 Found", "Location: http://127.0.0.1:1/"), "answers 302 Found, but not as a node does"),
        (b"220 mail.example ESMTP\r\n", "the connection was lost: try again, and check --url"),
        (b"", "the connection was lost: try again, and check --url"),
    ],
)
def test_refusals_are_one_line(said: bytes, shown: str) -> None:
    with scripted(said) as server:
        ran = tidegate("policy", "show", "p1", "--url", server.url, TIDEGATE_TOKEN=TOKEN)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert TOKEN not in ran.err
    assert shown in ran.err
    assert len(server.asked) == 1


def test_a_change_is_sent_once() -> None:
    with scripted(b"", b"") as server:
        ran = tidegate("token", "make", "--role", "admin", "--url", server.url)
        assert ran.code == 1
        assert "it is not known whether the change was made, so look before you try again" in ran.err
    assert len(server.asked) == 1


def test_a_question_is_asked_again_if_the_connection_had_ended() -> None:
    document = {"id": "p1", "value": {}, "source": "api", "version": 3, "changed_at": None}
    page = answer({"items": [document], "next": "p1"})
    with scripted(page, b"", answer({"items": [], "next": None})) as server:
        assert len(tidegate("policy", "list", "--json", "--url", server.url).json["items"]) == 1
    assert server.connections == 2


def test_who_asks_too_often_waits() -> None:
    busy = answer({"detail": "too many"}, "429 Too Many Requests", "Retry-After: 0", kind=PROBLEM)
    with scripted(busy, busy, answer({"items": [], "next": None})) as server:
        assert tidegate("policy", "list", "--json", "--url", server.url).json == {"items": []}
    assert len(server.asked) == 3


def test_tokens_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for content in (b"a b", b"\xff\xfe", b"two\nlines", b"a\x00b"):
        file.write_bytes(content)
        ran = tidegate("user", "list", "--token-file", file)
        assert (ran.code, ran.out) == (1, "")
        assert "the token is not valid, because" in ran.err
    ran = tidegate("user", "list", "--token-file", tmp_path / "nowhere")
    assert (ran.code, ran.err) == (1, f"error: cannot read {tmp_path / 'nowhere'}: No such file or directory\n")


def test_tls_with_certificates_of_clients(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    stranger.cert_pem.write_to_path(tmp_path / "other.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    client = authority.issue_cert("client.example")
    client.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    client.private_key_pem.write_to_path(tmp_path / "client.key")
    text = CONFIGURATION.replace(
        'http: {url: "http://127.0.0.1:HTTP_PORT"',
        'http: {url: "https://127.0.0.1:HTTP_PORT", cert: server.pem, client_ca: ca.pem',
    )
    with process(tmp_path, text) as node:
        token = node.admin_token()
        url = f"https://127.0.0.1:{node.ports['HTTP_PORT']}"
        known = {"TIDEGATE_URL": url, "TIDEGATE_TOKEN": token}
        ours = ("--cert", tmp_path / "client.pem", "--key", tmp_path / "client.key")
        ask = partial(tidegate, "policy", "list", "--json", "--ca", tmp_path / "ca.pem", *ours, **known)
        while "does not answer within" in (ran := ask()).err:
            pass  # the process that speaks HTTP is starting
        assert ran.json["items"]

        for trusted in ((), ("--ca", tmp_path / "other.pem")):
            ran = tidegate("policy", "list", *trusted, *ours, **known)
            assert (ran.code, ran.out) == (1, "")
            assert f"the certificate of {url} is not trusted" in ran.err
            assert "name the CA that issued it with --ca" in ran.err
        ran = tidegate("policy", "list", "--ca", tmp_path / "ca.pem", **known)
        assert (ran.code, ran.out) == (1, "")
        assert "--cert and --key" in ran.err
        ran = tidegate("policy", "list", "--ca", tmp_path / "ca.pem", "--cert", tmp_path / "ca.pem", **known)
        assert (ran.code, ran.out) == (1, "")
        assert f"cannot use the certificate {tmp_path / 'ca.pem'}" in ran.err
        assert "cannot read certificates from" in tidegate("policy", "list", "--ca", tmp_path / "no.pem", **known).err


def test_no_tls_where_it_was_expected() -> None:
    with scripted(answer({})) as server:
        ran = tidegate("policy", "list", "--url", server.url.replace("http:", "https:"))
    assert (ran.code, ran.out) == (1, "")
    assert f"no TLS with https{server.url.removeprefix('http')}" in ran.err
