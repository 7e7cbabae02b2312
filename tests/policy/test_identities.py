"""Identities: an id is never used twice, whatever files nodes take up in whatever order."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import ConfigError
from tidegate.policy.identities import CLIENT, DOCUMENT, USER, FileEntries, Identities, IdentityRecord, Key, taken_up


class Table:
    """The table that nodes share, and the ids it has made."""

    def __init__(self) -> None:
        self.nodes = {node: Identities() for node in "abc"}
        self.clock = 0.0
        self._ids = count(1)

    @property
    def identities(self) -> Identities:
        return self.nodes["a"]

    def take_up(
        self, *names: str, node: str = "a", changed: bool = True, documents: frozenset[Key] = frozenset(), **ids: str
    ) -> list[IdentityRecord]:
        """Names as they are, and `name="id"`."""
        entries: dict[Key, str | None] = {(USER, name): None for name in names}
        entries |= {(USER, name): id for name, id in ids.items()}
        file = FileEntries(node=node, entries=entries, documents=documents)
        self.clock += 1
        known = self.nodes[node]
        records = taken_up(known, file, at=self.clock, new_id=lambda: f"#{next(self._ids)}", changed=changed)
        for each in self.nodes.values():
            each.update(records)
        known.call(file.named)
        return records

    def id(self, name: str, node: str = "a") -> str:
        return self.nodes[node].id(USER, name)


def test_a_name_keeps_its_id_while_it_is_in_the_file() -> None:
    table = Table()
    table.take_up("bob", "mary")
    before = table.id("bob")
    assert before
    assert before != table.id("mary")
    assert table.take_up("bob") != []  # mary is retired
    assert (table.id("bob"), table.id("mary")) == (before, "")
    assert table.take_up("bob") == []
    assert table.identities.name(before) == "bob"


def test_the_next_of_a_name_is_another() -> None:
    table = Table()
    table.take_up("bob")
    first = table.id("bob")
    table.take_up()
    assert table.identities.name(first) is None
    assert table.identities.removed("bob") == 2.0
    table.take_up("bob")
    assert table.id("bob") not in ("", first)


def test_an_id_in_the_file_survives_a_rename() -> None:
    table = Table()
    table.take_up(bob="b1")
    table.take_up(robert="b1")
    assert (table.id("robert"), table.id("bob"), table.identities.name("b1")) == ("b1", "", "robert")
    assert table.identities.removed("bob") is None
    table.take_up("bob", robert="b1")
    assert table.id("bob") not in ("", "b1")


def test_a_name_that_loses_its_id_keeps_it() -> None:
    table = Table()
    table.take_up(bob="b1")
    table.take_up("bob")
    assert table.id("bob") == "b1"


def test_another_id_is_another_identity() -> None:
    table = Table()
    table.take_up("bob")
    first = table.id("bob")
    table.take_up(bob="b1")
    assert table.id("bob") == "b1"
    assert table.identities.name(first) is None


def test_an_id_that_was_retired_is_refused() -> None:
    table = Table()
    table.take_up(bob="b1")
    table.take_up()
    with pytest.raises(ConfigError, match="no id is used twice"):
        table.take_up(mary="b1")
    assert table.id("mary") == ""


def test_nor_is_that_of_a_client_for_a_user() -> None:
    table = Table()
    table.identities.update([IdentityRecord(id="x", kind=CLIENT, name="c", since=0.0, holders=frozenset("a"))])
    with pytest.raises(ConfigError, match="no id is used twice"):
        table.take_up(mary="x")


def test_nodes_that_share_the_table_agree() -> None:
    table = Table()
    table.take_up("bob", node="a")
    before = table.id("bob")
    table.take_up("bob", node="b")
    assert table.id("bob") == before
    table.take_up(node="c")  # it never had him
    assert table.id("bob") == before
    table.take_up(node="a")
    assert table.id("bob") == ""
    table.take_up("bob", node="b", changed=False)  # its file still has the name
    assert table.id("bob", "b") not in ("", before)


def test_an_id_that_another_node_retires_is_gone_here_too() -> None:
    table = Table()
    for node in "ab":
        table.take_up(bob="b1", node=node)
    table.take_up(node="a")
    table.take_up(bob="b1", node="b", changed=False)  # whoever stands in its file is somebody else from now on
    assert table.id("bob", "b") not in ("", "b1")
    with pytest.raises(ConfigError, match="no id is used twice"):
        table.take_up(bob="b1", node="b")


def test_nodes_do_not_rename_back_and_forth() -> None:
    table = Table()
    table.take_up(bob="b1", node="a")
    table.take_up(bob="b1", node="b")
    table.take_up(robert="b1", node="a")
    assert table.take_up(bob="b1", node="b", changed=False) == []


def test_documents_have_one_too() -> None:
    table = Table()
    documents = frozenset({(USER, "zoe")})
    (made,) = table.take_up(documents=documents)
    assert made.holders == {DOCUMENT}
    assert table.take_up(documents=documents) == []


def test_of_two_that_were_made_apart_all_choose_the_same() -> None:
    """Two nodes that could not reach the registry may both have made one; that of the loser is retired."""
    table = Table()
    made = [IdentityRecord(id=id, kind=USER, name="bob", since=1.0, holders=frozenset(id)) for id in "ab"]
    for node in table.nodes.values():
        node.update(made)
    (retired, claimed) = table.take_up("bob", node="b", changed=False)
    assert (retired.id, claimed.id) == ("b", "a")
    assert {table.id("bob", node) for node in "abc"} == {"a"}


def test_a_new_one_may_have_the_name_that_another_node_still_gives_somebody_else() -> None:
    table = Table()
    for node in "ab":
        table.take_up(bob="b1", node=node)
    table.take_up("bob", robert="b1", node="a")
    new = table.id("bob", "a")
    assert new not in ("", "b1")
    for _ in range(2):  # its node starts again with the old file, and nobody gives way for ever
        table.take_up(bob="b1", node="b")
        table.take_up("bob", robert="b1", node="a", changed=False)
    assert table.take_up(bob="b1", node="b", changed=False) == []
    assert (table.id("bob", "a"), table.id("robert", "a"), table.id("bob", "b")) == (new, "b1", "b1")


FILES = st.dictionaries(st.sampled_from("pqr"), st.sampled_from([None, "x", "y"]), max_size=3).filter(
    lambda file: len(ids := [id for id in file.values() if id]) == len(set(ids))
)


@given(st.lists(st.tuples(st.sampled_from("ab"), FILES, st.booleans()), max_size=12))
def test_no_id_is_ever_used_twice(steps: list[tuple[str, dict[str, str | None], bool]]) -> None:
    """And nodes that follow each other come to rest, whatever their files say."""
    table, held = Table(), dict[str, dict[str, str | None]]()
    retired: set[str] = set()

    def take_up(node: str, file: dict[str, str | None], *, changed: bool) -> list[IdentityRecord]:
        names = [name for name, id in file.items() if id is None]
        ids = {name: id for name, id in file.items() if id is not None}
        records = table.take_up(*names, node=node, changed=changed, **ids)
        assert not retired & {each.id for each in records}, "a retired identity never changes again"
        retired.update(each.id for each in records if each.retired is not None)
        found = [table.id(name, node) for name in file]
        assert all(found)
        assert not retired & set(found)
        assert len(set(found)) == len(found), "no two have the same"
        assert [table.nodes[node].name(id) for id in found] == list(file)
        return records

    for node, wanted, follows in steps:
        if follows and node not in held:
            continue
        file = held[node] if follows else wanted
        try:
            take_up(node, file, changed=not follows)
        except ConfigError:
            assert not follows
            continue
        held[node] = file
    for _ in range(3):
        for node, file in held.items():
            take_up(node, file, changed=False)
    assert [take_up(node, file, changed=False) for node, file in held.items()] == [[] for _ in held]
