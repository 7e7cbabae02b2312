"""A node that only pretends: its control socket is real, what it administers is a dictionary.

`served(...)` runs the application on it, on a real socket on the test's own loop; `Api` asks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import orjson

from harness import PATIENCE, free_port
from tidegate.api.app import Application, Pages
from tidegate.api.server import Server
from tidegate.audit.query import Query
from tidegate.audit.sink import AuditSink
from tidegate.errors import Problem
from tidegate.net.control_socket import Control
from tidegate.node.http import Serving
from tidegate.node.readiness import readiness
from tidegate.store.journal.rows import AuditRow

ROLES = ("admin", "operator", "auditor", "user", "source")


class Pretended:
    """Answers as a node does."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], dict[str, Any]] = {}
        self.entries: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.tokens: dict[str, dict[str, Any]] = {
            role: {
                "id": f"id-{role}",
                "role": role,
                "user": {"user": "mary", "source": "sensor"}.get(role),
                "expires": 4e9,
            }
            for role in ROLES
        }
        self.tokens["bobs"] = {"id": "id-bob", "role": "user", "user": "bob", "expires": 4e9}
        self.state: dict[str, Any] = {
            "rules": "1-abc",
            "refusing": False,
            "registry": {"trouble": None, "reachable": True},
        }
        self.asked: list[str] = []
        self.looked = 0
        """How often it was asked whether it is ready; once when the application starts."""
        self.by: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.refusal: Problem | None = None
        """What becomes of requests for keys; None: they are answered."""
        self.sink = AuditSink()
        self.pause = asyncio.Event()
        self.pause.set()
        self._sequence = count(1)

    def put(self, kind: str, id: str, body: dict[str, Any], *, source: str = "api") -> int | None:
        version = next(self._sequence) if source == "api" else None
        self.documents[kind, id] = {
            "kind": kind,
            "id": id,
            "body": body,
            "source": source,
            "version": version,
            "changed_at": time.time() if version else None,
            "changed_by": "test",
            "why": "",
        }
        entry = {"sequence": version or 0, "body": body, "at": time.time(), "by": "test", "why": ""}
        self.entries.setdefault((kind, id), []).append(entry)
        return version

    def commands(self) -> dict[str, Any]:
        names = [name for name in dir(type(self)) if name.startswith("do_")]
        return {name.removeprefix("do_"): getattr(self, name) for name in names}

    def do_readiness(self) -> dict[str, Any]:
        self.looked += 1
        return readiness(self.state)

    def do_metrics(self) -> dict[str, Any]:
        link = {
            "address": None,
            "level": None,
            "degraded": None,
            "queue": 0,
            "bytes": 8,
            "oldest": None,
            "round_trip": None,
            "error": None,
            "standby": 1,
            "switches": 3,
            "on_backup": False,
        }
        return {
            **self.state,
            "scopes": {"main": {"sessions": 3}},
            "links": [
                {
                    **link,
                    "link": "a->b",
                    "state": "connected",
                    "address": "mqtts://b:8883",
                    "level": "trusted",
                    "queue": 7,
                    "oldest": 2.5,
                    "round_trip": 0.25,
                    "on_backup": True,
                },
                {**link, "link": "c->d", "state": "waiting", "error": "away"},
            ],
            "keys": {"keys": 5, "made": 7, "trouble": "away"},
            "http": {"pid": 1, "port": 2, "restarts": 3},
            "numbers": {"clients/connected": 2, "strange/one": 1, "cpu/seconds": 1.5},
            "limits": {"sessions": {"used": 3, "limit": 10, "user_limit": 5, "reached": 1}, "session_expiry": 60},
            "denials": [["write", "p1", 4]],
            "latency": {"seconds": [0.001, 0.01], "counts": [5, 2, 1], "sum": 0.5},
        }

    async def do_token_check(self, token: str) -> dict[str, Any]:
        self.asked.append("token_check")
        if token not in self.tokens:
            raise Problem("no such token", problem="unknown")
        return self.tokens[token]

    def do_token_list(self) -> dict[str, Any]:
        return {"tokens": list(self.tokens.values())}

    def do_token_make(
        self,
        role: str,
        user: str | None,
        name: str,
        seconds: int | None,
        by: str,
        why: str,
        dry_run: bool,
        compared: bool,
    ) -> dict[str, Any]:
        about = {"role": role, "user": user, "name": name, "expires": 4e9}
        if dry_run:
            return about
        made = {"id": "new", **about}
        self.tokens["new-token"] = made
        return {**made, "token": "new-token"}

    def do_token_revoke(self, id: str, by: str, why: str, dry_run: bool, compared: bool) -> dict[str, Any]:
        for text, token in self.tokens.items():
            if token["id"] == id:
                return token if dry_run else self.tokens.pop(text)
        raise Problem("no such token", problem="unknown")

    def do_admin_list(
        self, kind: str, after: str | None, limit: int, owner: str | None, identity: str | None
    ) -> dict[str, Any]:
        def owned(body: dict[str, Any]) -> bool:
            return owner is None or body.get("user") == owner

        found = sorted(
            (each for (one, _), each in self.documents.items() if one == kind and owned(each["body"])),
            key=lambda each: str(each["id"]),
        )
        left = [each for each in found if after is None or each["id"] > after]
        return {"documents": left[:limit], "next": left[limit - 1]["id"] if len(left) > limit else None}

    def do_admin_get(self, kind: str, id: str, owner: str | None = None, identity: str | None = None) -> dict[str, Any]:
        if (kind, id) not in self.documents:
            raise Problem(f"there is no {kind} {id!r}", problem="unknown")
        return self.documents[kind, id]

    def do_admin_history(self, kind: str, id: str) -> dict[str, Any]:
        return {"entries": self.entries.get((kind, id), [])}

    async def do_admin_apply(
        self,
        changes: list[dict[str, Any]],
        by: str,
        why: str,
        dry_run: bool,
        compared: bool,
        fence: int | None,
        narrow: bool,
        owner: str | None = None,
        identity: str | None = None,
    ) -> dict[str, Any]:
        await self.pause.wait()
        self.by.append(by)
        for change in changes:
            kind, id, expected = change["kind"], change["id"], change["expected"]
            there = self.documents.get((kind, id))
            version = there["version"] if there else None
            if there is not None and there["source"] == "file":
                raise Problem(f"{kind}/{id} stands in the file", problem="readonly")
            if there is None and change["body"] is None and expected is None:
                raise Problem(f"there is no {kind} {id}", problem="unknown")
            wrong = expected != version if expected is not None else there is not None and change["body"] is not None
            if wrong:
                raise Problem(f"{kind} {id} is version {version}", problem="conflict")
            if dry_run:
                return {"effect": {"decisions": 0, "different": []}, "rules": "1-abc"}
            if change["body"] is None:
                del self.documents[kind, id]
            else:
                self.put(kind, id, change["body"])
        return {
            "sequence": next(self._sequence) if changes[0]["body"] is None else self._last(changes),
            "rules": "2-abc",
        }

    def _last(self, changes: list[dict[str, Any]]) -> int:
        return int(self.documents[changes[0]["kind"], changes[0]["id"]]["version"])

    def do_admin_revert(
        self,
        sequence: int,
        by: str,
        why: str,
        dry_run: bool,
        compared: bool,
        fence: int | None,
        narrow: bool,
        kinds: list[str] | None,
    ) -> dict[str, Any]:
        if dry_run:
            return {"sequence": None, "effect": {"decisions": 0, "different": []}, "rules": "1-abc"}
        return {"sequence": next(self._sequence), "rules": "3-abc"}

    def do_key_get(self, **asked: Any) -> dict[str, Any]:
        self.asked.append("key_get")
        return self._key(asked)

    def do_key_publish(self, **asked: Any) -> dict[str, Any]:
        return self._key(asked)

    def _key(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(asked)
        wrapped = {"keyId": "k1", "request": asked["request"], "validMs": 1000, "kem": "x25519", "key": "QUJD"}
        return {"answer": orjson.dumps(wrapped).decode()}

    def do_key_list(self, after: str | None = None, limit: int = 10) -> dict[str, Any]:
        times = {"made": 1e9, "valid_until": 1e9 + 300, "readable_until": 1e9 + 3900}
        about = {"group": "g", "filter": "a/#", "owner": "mary", "topic": None, "used": 7, "shared": False}
        ids = [id for id in ("k1", "k2", "k3") if after is None or id > after]
        return {"keys": [{"id": id, **about, **times} for id in ids[:limit]]}

    def do_key_rotate(
        self, by: str, why: str, dry_run: bool, compared: bool, filter: str | None = None, user: str | None = None
    ) -> dict[str, Any]:
        if not dry_run:
            self.requests.append({"by": by, "filter": filter, "user": user, "why": why})
        return {"groups": 4}

    def do_key_revoke(self, id: str, by: str, why: str, dry_run: bool, compared: bool) -> dict[str, Any]:
        if dry_run:
            [key] = [each for each in self.do_key_list()["keys"] if each["id"] == id]
            return {"revoked": id, "key": key}
        self.requests.append({"id": id, "by": by, "why": why})
        return {"revoked": id}

    def do_explain(self, **asked: Any) -> dict[str, Any]:
        return {"allowed": True, "asked": asked}

    def do_link_list(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "link": "a->b",
            "direction": "connects",
            "state": "connected",
            "address": "x",
            "level": "trusted",
        }
        return {
            "links": [
                {
                    **row,
                    "degraded": None,
                    "queue": 1,
                    "bytes": 2,
                    "oldest": 3.5,
                    "round_trip": 0.1,
                    "since": "x",
                    "error": None,
                    "standby": 0,
                    "switches": 0,
                    "on_backup": False,
                    "failover": None,
                }
            ]
        }

    def do_flows(self, **asked: Any) -> dict[str, Any]:
        return {"flows": [], "asked": asked}

    async def do_audit(self, limit: int = 10_000, follow: bool = False, **wanted: Any) -> AsyncIterator[Any]:
        async for piece in self.sink.stream(Query.of(wanted), limit, follow=follow):
            yield piece

    def do_audit_written(self) -> dict[str, Any]:
        return {"journal": True, "trouble": None}

    def row(self, at: float, rule: str = "p1", **more: Any) -> None:
        self.sink.write(AuditRow(at, node="test", rule=rule, **more))


class Api(httpx.AsyncClient):
    """Asks as somebody."""

    def __init__(self, server: Server, node: Pretended, control: Control, port: int) -> None:
        super().__init__(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)
        self.server = server
        self.node = node
        self.control = control
        self.port = port

    async def ask(self, method: str, path: str, who: str | None = "admin", **options: Any) -> httpx.Response:
        headers = {**({"Authorization": f"Bearer {who}"} if who else {}), **options.pop("headers", {})}
        return await self.request(method, path, headers=headers, **options)


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        listener.setblocking(False)
        yield listener


@contextlib.asynccontextmanager
async def hosting(
    control: Path,
    port: int,
    *,
    data: Path | None = None,
    tls: ssl.SSLContext | None = None,
    pages: Pages | None = None,
    **limits: Any,
) -> AsyncIterator[Server]:
    """The application, for the node behind `control`."""
    chosen = {"rate": 1e6, "address_rate": 1e6, "max_body": 64 << 10, "timeout": PATIENCE, **limits}
    server = Server(Application(Serving(control=control, data=data, **chosen), pages), tls)
    with _listening(port) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield server
        finally:
            server.stop()
            await running


@contextlib.asynccontextmanager
async def served(folder: Path, *, data: Path | None = None, **limits: Any) -> AsyncIterator[Api]:
    """The application on a node that pretends."""
    node = Pretended()
    control = Control(folder / "control" / "node.sock", node.commands(), authorise=lambda _, caller, sent: sent)
    await control.start()
    port = free_port()
    try:
        async with hosting(control.path, port, data=data, **limits) as server, Api(server, node, control, port) as api:
            yield api
    finally:
        await control.close()
