"""Questions over a link: answered once, over the connection that they came over, and not too many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scope.nodes import Cable, Node, node_link
from tidegate.scope.link_questions import ANSWERING, BURST, OPEN, LinkQuestions, Values
from tidegate.scope.node_links import LinkEnd

Reply = Callable[[Values], None]


def linked(answer: Callable[[str, Values, Reply], None]) -> tuple[LinkQuestions, Cable]:
    """The questions of one node, which the other one answers."""
    a, b = Node("a", node_link("x", "y")), Node("b", node_link("y", "x"))
    cable = Cable(a, b, "x->y")

    def answerer(end: LinkEnd, what: str, values: Values, reply: Reply) -> None:
        answer(what, values, reply)

    b.realm.node_links.answerer = answerer
    return a.realm.node_links.ends["x->y"].control.questions, cable


def test_an_answer_comes_back() -> None:
    questions, cable = linked(lambda what, values, reply: reply({"what": what, "twice": values["n"] * 2}))
    got: list[Any] = []
    for n in range(3):
        questions.ask("double", {"n": n}, got.append)
    cable.run()
    assert got == [{"what": "double", "twice": n * 2} for n in range(3)]


def test_without_a_connection_nothing_is_asked() -> None:
    questions, cable = linked(lambda what, values, reply: reply({}))
    cable.cut()
    assert questions.ask("x", {}, lambda answer: None) == "there is no connection"


def test_who_has_asked_is_told_that_the_connection_has_ended() -> None:
    replies: list[Reply] = []
    questions, cable = linked(lambda what, values, reply: replies.append(reply))
    got: list[Any] = []
    questions.ask("x", {}, got.append)
    cable.run()
    cable.cut()
    assert got == [None]
    cable.plug()
    replies[0]({"late": True})  # over another connection it is not sent
    cable.run()
    assert got == [None]
    questions.ask("y", {}, got.append)
    cable.run()
    replies[1]({"in": "time"})
    cable.run()
    assert got == [None, {"in": "time"}]


def test_an_answer_that_nobody_waits_for() -> None:
    replies: list[Reply] = []
    questions, cable = linked(lambda what, values, reply: replies.append(reply))
    got: list[Any] = []
    number = questions.ask("x", {}, got.append)
    assert isinstance(number, int)
    questions.forget(number)
    cable.run()
    replies[0]({})
    cable.run()
    assert got == []


def test_bound_of_those_that_wait() -> None:
    questions, _ = linked(lambda what, values, reply: None)
    asked = [questions.ask("x", {}, lambda answer: None) for _ in range(OPEN + 1)]
    assert all(isinstance(each, int) for each in asked[:-1])
    assert "too many" in str(asked[-1])


def test_bound_of_those_that_are_being_answered() -> None:
    replies: list[Reply] = []
    questions, cable = linked(lambda what, values, reply: replies.append(reply))
    got: list[Any] = []
    for _ in range(ANSWERING + 1):
        questions.ask("x", {}, got.append)
    cable.run()
    assert (len(replies), [list(each) for each in got]) == (ANSWERING, [["error"]])
    replies[0]({})
    cable.run()
    questions.ask("x", {}, got.append)
    cable.run()
    assert len(replies) == ANSWERING + 1


def test_rate_of_questions() -> None:
    questions, cable = linked(lambda what, values, reply: reply({}))
    got: list[Any] = []
    for _ in range(int(BURST) + 3):
        questions.ask("x", {}, got.append)
        cable.run()
    assert [list(each) for each in got] == [[]] * int(BURST) + [["error"]] * 3


def test_what_is_too_large_for_the_other_node() -> None:
    questions, cable = linked(lambda what, values, reply: reply({"x": b"0" * 100_000}))
    got: list[Any] = []
    far = cable.there.realm.node_links.ends["y->x"].session
    far.maximum = 10_000
    questions.ask("x", {}, got.append)
    cable.run()
    assert got == [{"error": "the answer is too large"}]
    questions.end.session.maximum = 1000
    assert questions.ask("x", {"x": b"0" * 1000}, got.append) == "it is too large for the other node"
