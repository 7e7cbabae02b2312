"""`explain` over a link: both nodes say their part, and neither tells more than a verdict (interfaces, `--through`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from processes import Served, on_uvloop, until
from sockets.linked_pair import FROM_GYM, FROM_REMOTE, GYM, REMOTE, Pair, connected
from tidegate.api.schemas import Question
from tidegate.cli.commands import app
from tidegate.errors import Problem
from tidegate.explain.question import QuestionThrough
from tidegate.net.control_socket import ask
from tidegate.scope.link_questions import ANSWER, QUESTION
from tidegate.wire import V5, Publish, cbor, encode

USERS = """directory:
  users:
    mary: {password: "plain:mary", roles: [member]}
    bob: {password: "plain:bob"}
    alice: {password: "plain:alice", roles: [coach]}
"""
AT_GYM = """policies:
  - {id: members, subject: "role:member", topic: "speed/#", action: write}
  - {id: forward, subject: "link:gym->remotegym", topic: "speed/#", action: write}
  - {id: inside, subject: "link:gym->remotegym", topic: "speed/inside/#", action: write, effect: deny}
preferences:
  - {id: no-bob, user: mary, topic: "speed/#", when: "s.user != 'bob@b'"}
  - {id: stays, user: mary, topic: "speed/mine", to: remotegym, when: "false"}
"""
AT_REMOTE = """policies:
  - {id: take, subject: "link:gym->remotegym", topic: "speed/#", action: read}
  - {id: refuse, subject: "link:gym->remotegym", topic: "speed/secret", action: read, effect: deny}
  - {id: coaches, subject: ["role:coach", "user:bob"], topic: "speed/#", action: read}
"""


@contextlib.asynccontextmanager
async def linked(folder: Path, here: str = AT_GYM, there: str = AT_REMOTE) -> AsyncIterator[Pair]:
    both = Pair(folder)
    remote, gym = (text.replace("policies: open\n", "") for text in (REMOTE, GYM))
    links = (f"{FROM_REMOTE}\n{USERS}{there}", f"{FROM_GYM}\n{USERS}{here}")
    async with both.node("remote", remote, links[0]), both.node("gym", gym, links[1]):
        await connected(both.gym, both.remote)
        yield both


async def explained(node: Served, through: str, subject: str, **question: Any) -> dict[str, Any]:
    """What a node answers over its control socket."""
    arguments = {"topic": "speed/a", **question}
    path = node.node.config.control_socket
    found: dict[str, Any] = await asyncio.to_thread(
        ask, path, "explain_through", through=through, subject=subject, **arguments
    )
    return found


def verdicts(found: dict[str, Any]) -> tuple[Any, ...]:
    """Whether it is allowed, and what stands against it at this end and at the other."""
    ends = []
    for end in ("here", "there"):
        said = found[end]
        ends.append(None if said is None else said["verdict"] if said["verdict"] == "allow" else said["rule"])
    return found["verdict"], *ends


@on_uvloop
async def test_both_ends_say_whether_somebody_there_receives_it(folder: Path) -> None:
    async with linked(folder, there=AT_REMOTE + "explain: true\n") as both:
        for name in ("b", "remotegym", "gym->remotegym"):
            found = await explained(both.gym, name, "user:alice@b", action="read", publisher="user:mary")
            assert verdicts(found) == ("allow", "allow", "allow")
            assert (found["link"], found["published"], found["other"]) == ("gym->remotegym", "here", "b")
        asked: dict[str, Any] = {"action": "read", "publisher": "user:mary"}
        found = await explained(both.gym, "b", "user:bob@b", **asked)
        assert verdicts(found) == ("deny", "allow", "no-bob")  # as the owner wants it, at the other node
        found = await explained(both.gym, "b", "user:mary@b", **asked)
        assert verdicts(found) == ("deny", "allow", "default")
        found = await explained(both.gym, "b", "user:alice@b", topic="speed/secret", **asked)
        assert verdicts(found) == ("deny", "allow", "refuse")  # the policy of the other end
        found = await explained(both.gym, "b", "user:alice@b", topic="speed/inside/1", **asked)
        assert verdicts(found) == ("deny", "inside", None)  # that of this end: the other one is not asked
        found = await explained(both.gym, "b", "user:alice@b", topic="speed/mine", **asked)
        assert verdicts(found) == ("deny", "stays", None)
        found = await explained(both.gym, "b", "user:alice@b", action="read", publisher="user:bob")
        assert verdicts(found) == ("deny", "default", None)
        steps = {(step["step"], step["part"]) for step in found["here"]["steps"]}
        assert ("write", "policies") in steps


@on_uvloop
async def test_why_somebody_here_does_not_receive_what_comes_from_there(folder: Path) -> None:
    async with linked(folder) as both:
        asked: dict[str, Any] = {"action": "read", "publisher": "user:mary@a"}
        found = await explained(both.remote, "a", "user:alice", **asked, payload="12")
        assert verdicts(found) == ("allow", "allow", "allow")
        assert (found["link"], found["published"]) == ("gym->remotegym", "there")
        assert found["here"]["sees"]["payload"] == "12"
        found = await explained(both.remote, "a", "user:bob", **asked)
        assert verdicts(found) == ("deny", "no-bob", "allow")
        found = await explained(both.remote, "a", "user:alice", topic="speed/secret", **asked)
        assert verdicts(found) == ("deny", "refuse", "allow")
        found = await explained(both.remote, "a", "user:alice", topic="speed/inside/1", **asked)
        assert verdicts(found) == ("deny", None, None)  # without `explain: true` there the rule is not told
        assert found["there"] == {"verdict": "deny", "step": "write", "rule": None}


@on_uvloop
async def test_whether_something_leaves_and_enters(folder: Path) -> None:
    async with linked(folder) as both:
        assert verdicts(await explained(both.gym, "b", "user:mary", action="write")) == ("allow", "allow", "allow")
        found = await explained(both.gym, "b", "user:mary", action="write", topic="speed/secret")
        assert (verdicts(found), found["there"]["step"]) == (("deny", "allow", None), "read")
        found = await explained(both.gym, "b", "user:mary", action="write", topic="$SYS/x")
        assert verdicts(found)[0] == "deny"
        # nothing has been published by that
        watcher = await both.remote.connect("w", username="alice", password=b"alice")
        await watcher.subscribe("speed/#")
        await explained(both.gym, "b", "user:mary", action="write")
        await watcher.silent()


@on_uvloop
async def test_on_the_command_line(folder: Path) -> None:
    async with linked(folder) as both:
        file = str(both.gym.file.path)

        async def run(*arguments: str) -> Result:
            asked = ("explain", file, "--action", "read", "--from", "user:mary", "--through", "b", *arguments)
            return await asyncio.to_thread(CliRunner().invoke, app, list(asked))

        allowed = await run("--as", "user:alice@b", "-t", "speed/a", "-m", "12", "--json")
        assert (allowed.exit_code, verdicts(json.loads(allowed.stdout))) == (0, ("allow", "allow", "allow"))
        shown = await run("--as", "user:alice@b", "-t", "speed/secret")
        lines = [line.rstrip() for line in shown.stdout.splitlines() if line.strip()]
        assert (shown.exit_code, lines[:3]) == (
            1,
            ["DENY", "speed/secret over gym->remotegym", "a (this node): allow by forward (write, policies)"],
        )
        assert lines[-1] == "b (the other node): deny (read)"
        nobody = await run("--as", "user:alice@b", "-t", "speed/a", "--through", "nobody")
        assert (nobody.exit_code, "there is gym->remotegym" in nobody.stderr) == (2, True)


def test_over_http() -> None:
    asked = {"as": "user:alice@b", "action": "read", "topic": "speed/a", "from": "user:mary", "through": "b"}
    command = Question.model_validate(asked).command()
    assert isinstance(command, QuestionThrough)
    assert (command.COMMAND, command.through, command.publisher) == ("explain_through", "b", "user:mary")
    assert not isinstance(Question.model_validate({**asked, "through": None}).command(), QuestionThrough)


@pytest.mark.parametrize(
    ("through", "subject", "question", "text"),
    [
        ("nobody", "user:mary", {"action": "write"}, "there is gym->remotegym"),
        ("b", "user:mary", {"action": "subscribe"}, "nobody subscribes over a link"),
        ("b", "user:alice@b", {"action": "read"}, "say who with `from`"),
        ("b", "user:zoe@b", {"action": "read", "publisher": "user:mary"}, "does not say"),
        ("b", "user:mary", {"action": "write", "topic": "a/#"}, "is no topic"),
        ("b", "user:alice@b", {"action": "read", "publisher": "user:mary", "overrides": {"s.level": "x"}}, "s.level"),
        ("remotegym->gym", "user:bob", {"action": "read", "publisher": "user:x", "overrides": {"p.a": 1}}, "assumed"),
    ],
)
@on_uvloop
async def test_what_cannot_be_asked(
    folder: Path, through: str, subject: str, question: dict[str, Any], text: str
) -> None:
    async with linked(folder) as both:
        with pytest.raises(Problem, match=text):
            await explained(both.gym, through, subject, **question)


@on_uvloop
async def test_what_is_assumed_of_the_publisher_counts_at_this_end(folder: Path) -> None:
    async with linked(folder) as both:
        found = await explained(
            both.gym,
            "b",
            "user:alice@b",
            action="read",
            publisher="user:bob",
            overrides={"p.roles": ["member"]},
        )
        assert verdicts(found) == ("allow", "allow", "allow")


@on_uvloop
async def test_a_node_that_is_not_listed_is_told_nothing(folder: Path) -> None:
    async with linked(folder) as both:
        remote = REMOTE.replace("policies: open\n", "").replace("{a: {nodes: [a]}}", "{z: {nodes: [z]}}")
        await both.remote.reload(both.text(remote, f"{FROM_REMOTE}\n{USERS}{AT_REMOTE}"))
        await connected(both.gym, both.remote)
        with pytest.raises(Problem, match="cannot be asked of this node"):
            await explained(both.gym, "b", "user:mary", action="write")


@on_uvloop
async def test_no_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with linked(folder) as both:
        monkeypatch.setattr(both.remote.node.realm.node_links, "answerer", lambda end, what, values, reply: None)
        monkeypatch.setattr("tidegate.node.link_explanations.PATIENCE", 0.05)
        with pytest.raises(Problem, match="did not answer"):
            await explained(both.gym, "b", "user:mary", action="write")
        (end,) = both.gym.node.realm.node_links.ends.values()
        assert end.control.questions._asked == {}
        monkeypatch.setattr("tidegate.node.link_explanations.PATIENCE", 60)
        asking = asyncio.create_task(explained(both.gym, "b", "user:mary", action="write"))
        await until(lambda: bool(end.control.questions._asked))
        for shell in list(both.remote.node.listeners.bound.values())[1].connections.copy():
            shell.transport.abort()
        with pytest.raises(Problem, match="ended before the answer came"):
            await asking


@pytest.mark.parametrize("topic", [QUESTION, ANSWER])
@pytest.mark.parametrize("payload", [b"", b"\xff", cbor.canonical([1]), cbor.canonical({"a": 1}), b"\x9f\x00"])
@on_uvloop
async def test_nonsense_ends_the_connection(folder: Path, topic: str, payload: bytes) -> None:
    async with linked(folder) as both:
        (end,) = both.gym.node.realm.node_links.ends.values()
        both.gym.node.site.open()
        before = end.since
        end.session.send(encode(Publish(topic=topic, payload=payload, qos=0), V5))
        await until(lambda: end.since != before)
        await connected(both.gym, both.remote)


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("leaving", {}),
        ("leaving", {"subject": "x:y", "topic": "a", "payload": b"", "qos": 0, "retain": False}),
        ("leaving", {"subject": "user:mary", "topic": "a/#", "payload": b"", "qos": 9, "retain": False}),
        ("leaving", {"subject": "user:mary", "topic": "a", "payload": b"", "qos": 0, "retain": False, "properties": 3}),
        ("arriving", {"frame": b""}),
        ("arriving", {"frame": b"\xc0\x00"}),
        ("arriving", {"frame": encode(Publish(topic="a", payload=b"TG"), V5)}),
        ("arriving", {"frame": encode(Publish(topic="a", payload=b"x" * 2**21), V5)}),
        ("other", {}),
    ],
)
@on_uvloop
async def test_questions_that_are_none_are_answered_and_change_nothing(
    folder: Path, what: str, values: dict[str, Any]
) -> None:
    async with linked(folder) as both:
        (end,) = both.remote.node.realm.node_links.ends.values()
        answers: list[Any] = []
        both.gym.node.links.explanations.answer(
            next(iter(both.gym.node.realm.node_links.ends.values())), what, values, answers.append
        )
        await until(lambda: bool(answers))
        assert "error" in answers[0] or answers[0]["allowed"] is False
        assert both.gym.node._bugs == 0
        assert end.session.connection is not None
