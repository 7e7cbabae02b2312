"""What the other node lacks of what preferences here call is told when a link opens."""

from __future__ import annotations

import pytest

from scope.nodes import Cable, Node, node_link
from tidegate.errors import ProtocolError
from tidegate.policy import Levels, Preference, Preferences
from tidegate.predicate import compile, function
from tidegate.scope import vocabulary
from tidegate.wire import cbor


@function()
def enrolled(user: str) -> bool:
    return user == "alice"


FUNCTIONS = {"enrolled": enrolled}
TEXT = "enrolled(s.user) && s.user.startsWith('a') && s.level >= 'tls' && 'near' in p.facts"


def pair(knows: bool) -> tuple[Node, Node, list[tuple[str, tuple[str, ...]]]]:
    levels = Levels(facts={"near": "true"})
    wish = Preference(id="u", user="mary", topic="#", when=compile(TEXT, functions=FUNCTIONS), text=TEXT)
    a = Node(
        "a",
        node_link("x", "y"),
        preferences=Preferences([wish], domain="d"),
        functions=FUNCTIONS,
        levels=levels,
    )
    b = Node("b", node_link("y", "x"), **({"functions": FUNCTIONS, "levels": levels} if knows else {}))
    told: list[tuple[str, tuple[str, ...]]] = []
    a.realm.node_links.on_lack.append(lambda link, names: told.append((link, names)))
    return a, b, told


def test_functions_and_facts_that_the_other_node_lacks() -> None:
    a, b, told = pair(knows=False)
    Cable(a, b, "x->y").run()
    assert told == [("x->y", ("enrolled", "near"))]
    assert b.realm.node_links.ends["y->x"].lacks == ()


def test_nothing_is_told_of_what_both_know() -> None:
    a, b, told = pair(knows=True)
    Cable(a, b, "x->y").run()
    assert told == []


@pytest.mark.parametrize("said", [b"", b"\xff", cbor.canonical([]), cbor.canonical([[], [], [1]]), b"\x83" * 9])
def test_names_that_are_none(said: bytes) -> None:
    a, b, _ = pair(knows=True)
    cable = Cable(a, b, "x->y")
    with pytest.raises(ProtocolError):
        vocabulary.take(a.realm.node_links.ends["x->y"], said)
    cable.run()
