"""The node itself decides who may have it do what: every command by every role, owner and stranger, over its socket.

`api/test_access.py` is the same by route. Here nobody is in between: this is what a captured HTTP process can send.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from processes import Served, from_file, process
from tidegate.admin.control_commands import MakeToken
from tidegate.admin.documents import own_id
from tidegate.admin.permissions import FREE, PERMITTED
from tidegate.errors import Problem, TidegateError
from tidegate.net.control_socket import ask
from tidegate.node.control_sockets import descends

FILE = """
version: 1
node: {name: n, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
store: sqlite
sys: {interval: 0s}
directory: {users: {mary: {password: "plain:m"}, bob: {password: "plain:b"}, app: {}}}
policies: [{id: p1, subject: "*", topic: "a/#", action: [read, write]}]
preferences: [{id: filed, user: mary, topic: "a/#", when: "true"}]
"""
ROLES = ("admin", "operator", "auditor", "user", "source", None)
LOOKING = "admin operator auditor"
RUNNING = "admin operator"
HASHED = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo"
KEY = {"user": "bob", "request": "r" * 20, "level": "mtls", "address": "1.2.3.4"}

Case = tuple[str, dict[str, Any], str]
"""A command, what is sent, and the roles that may; `nobody` is somebody without a token."""
CASES: list[Case] = [
    ("metrics", {}, LOOKING),
    ("history", {}, LOOKING),
    ("flows", {}, LOOKING),
    ("flow_drawing", {}, LOOKING),
    ("certificate_list", {}, LOOKING),
    ("monitor_list", {}, LOOKING),
    ("monitor_state", {"id": "m"}, LOOKING),
    ("monitor_drawing", {"id": "m"}, LOOKING),
    ("monitor_try", {"id": "m"}, LOOKING),
    ("audit_written", {}, LOOKING),
    ("link_list", {}, LOOKING),
    ("explain", {"subject": "user:mary", "action": "read", "topic": "a/b"}, LOOKING),
    (
        "explain_many",
        {"questions": [{"subject": "user:mary", "action": "read", "topic": "a/b"}]},
        LOOKING,
    ),
    ("client_list", {}, LOOKING),
    ("session_list", {}, LOOKING),
    ("subscription_list", {}, LOOKING),
    ("topic_list", {}, LOOKING),
    ("client_show", {"client": "c"}, LOOKING),
    ("topic_show", {"topic": "a"}, LOOKING),
    ("topic_read", {"topic": "a", "user": "mary", "identity": ""}, ""),  # these tokens are for nobody, who sees none
    ("client_disconnect", {"client": "c", "by": "x"}, RUNNING),
    ("session_drop", {"client": "c", "by": "x"}, RUNNING),
    ("topic_clear", {"topic": "a", "by": "x"}, RUNNING),
    *(("admin_list", {"kind": kind}, LOOKING) for kind in ("policy", "client", "role", "application", "source")),
    ("admin_list", {"kind": "preference", "owner": "bob"}, f"{LOOKING} user"),
    ("admin_get", {"kind": "policy", "id": "p1"}, LOOKING),
    ("admin_get", {"kind": "user", "id": "mary"}, LOOKING),
    ("admin_get", {"kind": "application", "id": "app"}, LOOKING),
    ("admin_history", {"kind": "policy", "id": "p1"}, LOOKING),
    *(
        ("admin_apply", {"changes": [{"kind": kind, "id": "x"}], "by": "x"}, "admin")
        for kind in ("policy", "user", "client", "role", "group", "rule", "flow", "application", "source", "pipeline")
    ),
    ("admin_apply", {"changes": [{"kind": "view", "id": "x"}], "by": "x"}, RUNNING),
    ("admin_apply", {"changes": [{"kind": "view", "id": "x"}, {"kind": "policy", "id": "x"}], "by": "x"}, "admin"),
    ("admin_apply", {"changes": [{"kind": "preference", "id": "x"}], "by": "x"}, "admin user"),
    ("admin_revert", {"sequence": 1, "by": "x"}, RUNNING),
    ("pipeline_draft", {"sequence": 1}, "admin"),
    ("consumer_register", {"name": "new", "body": {"roles": [["x"]]}, "by": "x"}, "admin"),
    ("consumer_register", {"name": "mary.x", "body": {"roles": {}}, "under": "mary", "by": "x"}, "admin user"),
    ("consumer_register", {"name": "bob.x", "body": {"roles": {}}, "under": "bob", "by": "x"}, "admin"),
    ("consumer_renew", {"name": "nobody", "password": HASHED, "by": "x"}, "admin"),
    ("consumer_renew", {"name": "bob", "password": HASHED, "by": "x"}, "admin"),
    ("consumer_renew", {"name": "bob", "password": HASHED, "of": "bob", "by": "x"}, "admin"),
    ("consumer_key", {"name": "bob", "public_key": "x", "by": "x"}, "admin"),
    ("application_remove", {"id": "x", "by": "x"}, "admin"),
    ("application_remove_user", {"name": "bob", "under": "app", "by": "x"}, "admin"),
    ("application_remove_user", {"name": "bob", "under": "app", "itself": True, "by": "x"}, "admin"),
    ("token_make", {"role": "nothing", "by": "x"}, "admin"),
    ("token_list", {}, "admin"),
    ("token_revoke", {"id": "x", "by": "x"}, "admin"),
    ("source_register", {"id": "", "type": "t", "mode": "m", "password": HASHED, "by": "x"}, "admin source nobody"),
    ("source_remove", {"id": "x", "by": "x"}, "admin"),
    ("key_get", {**KEY, "key": "k"}, "user"),
    ("key_publish", {**KEY, "topic": "a"}, "user"),
    ("me_readers", {"user": "bob", "identity": "", "topic": "a/b"}, "user"),
    ("me_deliveries", {"user": "bob", "identity": ""}, "user"),
    ("me_retained", {"user": "bob", "identity": ""}, "user"),
    ("me_shown", {"user": "bob", "identity": "", "topics": ["a/b"], "readers": ["mary"]}, "user"),
    ("me_history", {"user": "bob", "identity": ""}, "user"),
    ("me_export", {"user": "bob", "identity": ""}, "user"),
    ("me_notices", {"user": "bob", "identity": ""}, "user"),
    ("me_erase", {"user": "bob", "identity": "", "password": "wrong"}, "user"),
    ("me_erasures", {"user": "bob", "identity": ""}, "user"),
    ("erasure_list", {}, LOOKING),
    ("erasure_decide", {"id": "x", "grant": True, "by": "x"}, "admin"),
    ("replay_begin", {"changes": [{"kind": "policy", "id": "p1"}], "by": "x"}, "admin"),
    ("replay_show", {}, "admin"),
    ("replay_cancel", {"by": "x"}, "admin"),
    ("key_list", {}, LOOKING),
    ("key_rotate", {"by": "x"}, "admin"),
    ("key_revoke", {"id": "x", "by": "x"}, "admin"),
    ("source_open", {"user": "bob", "sealed": "x"}, "source"),
    ("data_add", {"upload": "x", "part": "eA=="}, "source nobody"),
    ("data_put", {"user": "bob", "address": "x", "level": "tls", "part": "eA=="}, "source nobody"),
]
REFUSED = ("forbidden", "unauthenticated")


class Asked:
    """What the HTTP process can ask of a node, with whatever credential it has."""

    def __init__(self, served: Served, tokens: dict[str | None, str]) -> None:
        self.served = served
        self.tokens = tokens

    async def __call__(self, who: str | None, command: str, **sent: Any) -> Any:
        token = self.tokens.get(who)
        credential = {} if token is None else {"caller": token}
        return await asyncio.to_thread(ask, self.served.node.config.http_socket, command, **sent, **credential)

    async def outcome(self, who: str | None, command: str, sent: dict[str, Any]) -> str:
        """One word for what came of it."""
        try:
            await self(who, command, **sent)
        except Problem as problem:
            return problem.problem
        except TidegateError:
            return "another error"
        return "done"


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    async with from_file(tmp_path, FILE) as served:
        assert served.node.administration is not None
        make = served.node.administration.tokens.make
        tokens: dict[str | None, str] = {}
        for name, role, user in (
            *((role, role, None) for role in ("admin", "operator", "auditor")),
            ("user", "user", "mary"),
            ("bob", "user", "bob"),
            ("source", "source", "app"),
        ):
            tokens[name] = (await make(MakeToken(role=role, user=user, by="test")))["token"]
        yield Asked(served, tokens)


def test_every_command_is_in_the_table() -> None:
    assert {command for command, _, _ in CASES} | {"audit", "me_notices_follow"} == set(PERMITTED)


async def test_every_command_and_every_role(asked: Asked) -> None:
    wrong = []
    for command, sent, roles in CASES:
        for who in ROLES:
            outcome = await asked.outcome(who, command, sent)
            if (who or "nobody") in roles.split():
                # what may be sent may still be wrong, or nothing of the sender's: both say so in other words
                right = outcome not in REFUSED or (who in ("source", "user", None) and command in OWN)
            else:
                right = outcome == ("unauthenticated" if who is None else "forbidden")
            if not right:
                wrong.append((command, sent, who, outcome))
    assert not wrong


OWN = {
    "me_erase",
    "source_register",
    "data_put",
    "source_open",
    "key_get",
    "key_publish",
    "admin_apply",
    "consumer_register",
}
"""Commands that also answer `forbidden` when they are about somebody else, or where the node takes none."""


async def test_without_a_token_only_what_tells_nothing(asked: Asked) -> None:
    assert {"readiness", "token_check", "sign_in", "sign_out", "openid_begin", "openid_finish"} == FREE
    assert (await asked(None, "readiness"))["ready"] in (True, False)
    for command in ("status", "stop", "reload", "monitor_reset", "capability_revoke", "flow", "pipeline_context"):
        for who in ("admin", None):
            assert await asked.outcome(who, command, {}) in ("forbidden", "another error")
    assert not asked.served.node.stopping
    for token in ("", "tg_x", "x" * 1000):
        asked.tokens["wrong"] = token
        assert await asked.outcome("wrong", "token_list", {}) == "unauthenticated"


async def test_a_revoked_token_counts_no_more(asked: Asked) -> None:
    id = (await asked("operator", "token_check", token=asked.tokens["operator"]))["id"]
    assert await asked.outcome("operator", "client_list", {}) == "done"
    await asked("admin", "token_revoke", id=id, by="x")
    assert await asked.outcome("operator", "client_list", {}) == "unauthenticated"


async def test_what_the_process_says_of_the_caller_does_not_count(asked: Asked) -> None:
    """In whose name, whether only to narrow, whose preferences: all of that the node says."""
    made = {"kind": "policy", "id": "new", "body": {"subject": "user:bob", "topic": "b", "action": "read"}}
    done = await asked("admin", "admin_apply", changes=[made], by="token:somebody-else", narrow=True)
    [entry] = (await asked("auditor", "admin_history", kind="policy", id="new"))["entries"]
    assert entry["by"].startswith("token:")
    assert entry["by"] != "token:somebody-else"
    assert done["sequence"] == entry["sequence"]
    view = {"kind": "view", "id": "v", "body": {"topic": "a/#", "for": "*", "keep": ["/a"]}}
    view["expected"] = (await asked("admin", "admin_apply", changes=[view], by="x"))["sequence"]
    wider = {**view, "body": {"topic": "a/#", "for": "*", "keep": "all"}}
    for change in (wider, {**view, "body": None}):
        sent = {"changes": [change], "by": "x", "narrow": False}
        assert await asked.outcome("operator", "admin_apply", sent) == "forbidden"
        assert await asked.outcome("admin", "admin_apply", {**sent, "dry_run": True}) == "done"
    listed = await asked("bob", "admin_list", kind="preference", owner="mary", identity=None)
    assert listed["documents"] == []


async def test_preferences_of_somebody_else_do_not_exist(asked: Asked) -> None:
    """By id, by list, by change and by making one in another's name."""
    mary = (await asked("user", "token_check", token=asked.tokens["user"]))["identity"]
    mine = {"user": "mary", "topic": "a/#", "when": "false"}
    id = await own(asked, "user")
    change = {"kind": "preference", "id": id, "body": {**mine, "owner": mary}}
    made = await asked("user", "admin_apply", changes=[change], by="x")
    assert (await asked("user", "admin_get", kind="preference", id=id))["body"]["user"] == "mary"
    assert await asked.outcome("user", "admin_get", {"kind": "preference", "id": "filed"}) == "done"

    for name in (id, "filed", "nothing"):
        assert await asked.outcome("bob", "admin_get", {"kind": "preference", "id": name}) == "unknown"
    removal = {"kind": "preference", "id": id, "expected": made["sequence"]}
    assert await asked.outcome("bob", "admin_apply", {"changes": [removal], "by": "x"}) == "unknown"
    taken = {**removal, "body": {"user": "bob", "topic": "a/#"}}
    assert await asked.outcome("bob", "admin_apply", {"changes": [taken], "by": "x"}) == "unknown"
    for body in (mine, {**mine, "owner": mary}, {"user": "bob", "topic": "a/#", "owner": mary}):
        forged = {"kind": "preference", "id": await own(asked, "bob"), "body": body}
        assert await asked.outcome("bob", "admin_apply", {"changes": [forged], "by": "x"}) == "forbidden"
    squatted = {"kind": "preference", "id": "p7", "body": {"user": "bob", "topic": "a/#"}}
    assert await asked.outcome("bob", "admin_apply", {"changes": [squatted], "by": "x"}) == "forbidden"
    assert await asked.outcome("user", "admin_apply", {"changes": [removal], "by": "x"}) == "done"


async def own(asked: Asked, who: str) -> str:
    """An id as the HTTP interface makes one up for a preference of theirs."""
    return own_id((await asked(who, "token_check", token=asked.tokens[who]))["identity"])


PROBE = """
import sys
from pathlib import Path
from tidegate.net.control_socket import ask
try:
    print(ask(Path(sys.argv[1]), "status")["node"])
except Exception as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks processes up as Linux tells of them")
async def test_what_a_node_has_started_cannot_use_the_socket_of_administrators(tmp_path: Path) -> None:
    """The HTTP process is such a one, and so is everything that it starts."""

    async def probed() -> str:
        """What a child of this process, in which the node runs, is told."""
        path = served.node.config.control_socket
        command = [sys.executable, "-c", PROBE, str(path)]
        said = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        return said.stdout.strip()

    async with from_file(tmp_path, FILE) as served:
        assert await probed() == "n"
        served.node.control.keeps_orphans = True
        assert await probed() == "this process may not use the control socket"
        assert (await asyncio.to_thread(ask, served.node.config.control_socket, "status"))["node"] == "n"


@pytest.mark.skipif(sys.platform != "linux", reason="looks processes up as Linux tells of them")
def test_the_http_process_descends_from_the_node(tmp_path: Path) -> None:
    with process(tmp_path, FILE + 'http: {url: "http://127.0.0.1:HTTP_PORT"}\n') as running:
        http = running.ask("status")["http"]["pid"]
        assert descends(http, running.pid)
        assert not descends(os.getpid(), running.pid)
