"""Attributes of publishers that travel: those that the link lists, and those that the owner's own preferences read."""

from __future__ import annotations

import pytest

import pure
from scope.nodes import Cable, Node, node_link
from scope.spaces import got, say
from scope.test_node_links import policies, rule
from tidegate.policy import Action, Preference, Preferences
from tidegate.policy.domains import Domain
from tidegate.predicate import compile
from tidegate.scope import Identity

HOME = {"home": Domain(nodes=("a",))}
TOLD = {"home": Domain(nodes=("a",), attributes=("enrolled",))}


@pytest.fixture(autouse=True)
def _mary(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = {"enrolled": ["ts1"], "shift": "day", "node": "mine"}
    found = Identity(principal="mary", user="mary", attributes=attributes)
    monkeypatch.setattr(pure.Anybody, "reauthorize", lambda self, session: found)
    monkeypatch.setattr(pure.Anybody, "authenticate", lambda self, connection, packet, answer: answer(found))


def crossed(
    *, export: tuple[str, ...] = (), believes: dict[str, Domain] = TOLD, wish: str = "", read: str = "true"
) -> bool:
    """Whether a message of Mary, who has two attributes at home, is received by the rules of the other node."""
    wishes = [Preference(id="w", user="mary", topic="#", when=compile(wish), text=wish)] if wish else []
    a = Node(
        "a",
        node_link("x", "y", export=export),
        domain="home",
        believes=believes,
        preferences=Preferences(wishes, domain="home"),
    )
    reading = policies(rule("l", "link:x->y", "#", Action.READ), rule("r", "client:sub", "#", Action.READ, when=read))
    b = Node("b", node_link("y", "x"), believes=believes, policies=reading)
    b.realm.node_links.travel(None, lambda signer, signed, signature: "home")
    cable = Cable(a, b, "x->y")
    subscriber, publisher = b.peer("sub"), a.peer("pub", username="mary")
    subscriber.subscribe("#")
    say(publisher, "t")
    cable.run()
    return got(subscriber) == [("t", b"x")]


ENROLLED = "'ts1' in p.enrolled"


def test_what_the_link_lists_and_the_other_node_believes() -> None:
    assert crossed(export=("enrolled",), read=ENROLLED)
    assert not crossed(read=ENROLLED)
    assert not crossed(export=("enrolled",), believes=HOME, read=ENROLLED)
    assert not crossed(export=("enrolled", "shift"), read="p.shift == 'day'")


def test_what_the_owners_own_preferences_read() -> None:
    assert crossed(wish=f"{ENROLLED} && p.shift == 'day'")
    assert not crossed(wish="'ts2' in p.enrolled")
    assert not crossed(wish="p.shift == 'day'", read=ENROLLED)


def test_no_attribute_is_a_built_in_name() -> None:
    assert not crossed(
        export=("node",), believes={"home": Domain(nodes=("a",), attributes=("node",))}, read="p.node == 'mine'"
    )
