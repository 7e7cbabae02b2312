"""Mosquitto's ACL files: the same ACL, the same clients, the same outcome at the real Mosquitto."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from cli.driving import mosquitto_program
from generated import examples
from harness import free_port
from importing.twins import Outcome, Person, difference, mosquitto, play, tidegate
from tidegate.config import parse
from tidegate.errors import ConfigError
from tidegate.importing import Imported, mosquitto_acl, to_yaml

PEOPLE = (
    Person("c1"),
    Person("c2", "mary"),
    Person("c3", "bob"),
    Person("mary", "c1"),
    Person("w+x", "mary"),
    Person("c4", "h#"),
)
SLASHED = Person("a/b", "mary")
FILTERS = ("#", "$x/#")
TOPICS = (
    *("a", "b", "c1", "mary", "read", "a/", "/a", "/", "a//b"),
    *("a/b", "a/c1", "a/c2", "a/mary", "a/w+x".replace("+", "-"), "b/a", "c1/a", "c2/a", "mary/a", "x-c2-y/a"),
    *("a/b/c1", "a/c1/b", "a/mary/c2", "a/a/b", "a b/c d", "%u/a", "%/a", "{x}/a", "$x/a", "$x/c2", "$x", "a/$x"),
)


async def outcomes(acl: str, people: tuple[Person, ...] = PEOPLE) -> tuple[Outcome, Outcome]:
    """What happens at Mosquitto, and at a node with what was imported."""
    imported = read(acl)
    with mosquitto("allow_anonymous true\nacl_file {acl}", acl=acl) as port:
        there = await play(port, people, FILTERS, TOPICS)
    async with tidegate(imported, people) as port:
        here = await play(port, people, FILTERS, TOPICS)
    return there, here


def read(acl: str) -> Imported:
    return mosquitto_acl.read(acl, "acl")


CASES = {
    "nobody may do anything": "# nothing\n\n",
    "anonymous clients only": "topic a/#\n",
    "users only": "user mary\ntopic a/#\n",
    "a section for each": "topic read #\nuser mary\ntopic write #\nuser bob\ntopic read a/#\n",
    "deny wins wherever it stands": "user mary\ntopic a/#\ntopic deny a/b\nuser bob\ntopic deny a/b\ntopic #\n",
    "deny is for reading and writing": "topic #\nuser mary\ntopic #\nuser bob\ntopic #\ntopic deny a/b\n",
    "read and write": "topic read a/b\ntopic write a/c1\nuser mary\ntopic read a/c1\ntopic write a/b\n",
    "a section that comes twice": "user mary\ntopic read a/b\nuser bob\ntopic #\nuser mary\ntopic write a/b\n",
    "patterns": "pattern write a/%c\npattern read a/+\npattern %u/#\n",
    "patterns by user": "pattern a/%u/%c\npattern a/%u\npattern read a/#\n",
    "part of a level": "pattern x-%c-y/a\npattern %u%c\npattern read #\n",
    "no user, no %u": "topic read #\npattern write a/%u\npattern write c1/%u\npattern write mary/a\n",
    "a pattern that denies": "pattern #\npattern deny a/%c\npattern deny %u/a\npattern deny a/%u/%c\n",
    "a section that allows wins over a pattern that denies": "user mary\ntopic a/b\npattern deny a/#\npattern #\n",
    "a section that denies wins over a pattern that allows": "user mary\ntopic deny a/b\npattern #\n",
    "names with wildcards": "user mary\ntopic a/b\nuser h#\ntopic read a/#\npattern #\npattern a/%c\n",
    "dollar topics": "topic #\ntopic $x/#\nuser mary\ntopic #\nuser bob\ntopic $x/a\npattern $x/%c\n",
    "a leading placeholder": "pattern %c/a\npattern %u/#\npattern deny %u\npattern $x/#\npattern read #\n",
    "spaces": "topic read a b/c d\nuser  mary \ntopic   readwrite   a b/#  \nuser bob\ntopic write a b/c d\r\n",
    "odd topics": "topic read\nuser mary\ntopic readwrite read\npattern %/a\npattern %u/a\npattern {x}/a\n",
    "placeholders in topics mean nothing": "topic #\nuser mary\ntopic %u/a\ntopic {x}/a\ntopic a/%c\n",
    "empty levels": "topic read #\nuser mary\ntopic a/+\ntopic +/a\nuser bob\ntopic /\ntopic a//#\n",
    "the parent of #": "topic read #\nuser mary\ntopic a/#\nuser bob\ntopic a/+/#\ntopic /#\n",
    "deny by $": "pattern #\npattern $x/#\npattern deny $x/%c\npattern deny $%u/a\npattern deny %u/a\n",
}


@pytest.mark.parametrize("case", CASES)
async def test_the_same_outcome(case: str) -> None:
    there, here = await outcomes(CASES[case])
    assert here == there, difference(here, there)


LEVELS = ("a", "b", "+", "c1", "mary")
ACCESS = ("", "read ", "write ", "readwrite ", "deny ")


def filters(levels: tuple[str, ...]) -> st.SearchStrategy[str]:
    path = st.lists(st.sampled_from(levels), min_size=1, max_size=3).map("/".join)
    return st.one_of(st.just("#"), path, path.map("{}/#".format), path.map("$x/{}".format))


topic_lines = st.builds("topic {}{}".format, st.sampled_from(ACCESS), filters(LEVELS))
pattern_lines = st.builds(
    "pattern {}{}".format, st.sampled_from(ACCESS), filters(("a", "b", "+", "%c", "%u", "x-%c-y", "%c%u"))
)
user_lines = st.sampled_from(("user mary", "user bob", "user c1", "user h#"))
acls = st.lists(st.one_of(topic_lines, topic_lines, pattern_lines, user_lines), min_size=1, max_size=12).map("\n".join)


@seed(20)
@settings(max_examples=examples(15, 500), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(acls)
def test_random_files_have_the_same_outcome(acl: str) -> None:
    there, here = asyncio.run(outcomes(acl))
    assert here == there, f"{acl}\n{difference(here, there)}"


@pytest.mark.parametrize(
    "acl",
    [
        "pattern a/%c\npattern read #",
        "pattern #\npattern deny %c",
        "pattern #\npattern deny x/%c/y\npattern deny %c/#",
        "pattern #\npattern deny a/%u\npattern deny a",
    ],
)
async def test_a_name_with_a_slash_is_never_allowed_more(acl: str) -> None:
    there, here = await outcomes(acl, (*PEOPLE, SLASHED))
    assert here <= there, difference(here, there)
    assert {one for one in here if SLASHED.client not in (one.receiver, one.publisher)} == {
        one for one in there if SLASHED.client not in (one.receiver, one.publisher)
    }
    if "deny" in acl:
        assert here == there, difference(here, there)


# -- what is read, without a broker ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("topic", "`topic` without a topic"),
        ("pattern", "`pattern` without a topic"),
        ("user", "`user` without a name"),
        ("user   ", "`user` without a name"),
        ("topic all a/b", "'all' is no access"),
        ("topic a b", "'a' is no access"),
        ("topic read a/b#", "no topic filter"),
        ("topic read a+/b", "no topic filter"),
        ("  # not at the beginning", "'#' is no word"),
        ("topic\tread\ta", "is no word"),
        ("toppic read a", "'toppic' is no word"),
        ("topic read a\0b", "NUL"),
        ("\x1b[2J", "'\\x1b[2J' is no word"),
    ],
)
async def test_what_mosquitto_refuses_is_refused_with_its_place(line: str, told: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        read(f"topic read a\n{line}\n")
    assert str(wrong.value).startswith("acl:2: ")
    assert told in str(wrong.value)
    assert ";" in str(wrong.value)  # it tells a remedy


@pytest.mark.parametrize("line", ["topic", "user", "topic all a/b", "topic read a/b#", "  # x", "topic\tread\ta", "x"])
def test_mosquitto_does_not_start_with_them(line: str, tmp_path: Path) -> None:
    (tmp_path / "acl").write_text(f"{line}\n")
    (tmp_path / "conf").write_text(f"listener {free_port()} 127.0.0.1\nacl_file {tmp_path}/acl\n")
    done = subprocess.run(
        [mosquitto_program(), "-c", str(tmp_path / "conf")], capture_output=True, text=True, timeout=20
    )
    assert done.returncode != 0
    assert "acl" in done.stderr


def test_what_has_no_equivalent_is_listed() -> None:
    imported = read(
        "topic write $SYS/x\ntopic $SYS/#\ntopic $share/g/a\ntopic $CONTROL/#\ntopic $tidegate/rules\n"
        "topic deny $CONTROL/#\nuser a@b\ntopic a\nuser *\ntopic deny a\n"
    )
    assert [(left.place, left.what) for left in imported.left] == [
        ("acl:1", "topic write $SYS/x"),
        ("acl:3", "topic $share/g/a"),
        ("acl:4", "topic $CONTROL/#"),
        ("acl:5", "topic $tidegate/rules"),
        ("acl:8", "topic a"),
        ("acl:10", "topic deny a"),
    ]
    assert [(taken.topic, taken.action) for taken in imported.policies] == [("$SYS/#", ("read",))]
    assert imported.users == {}


def test_too_many_rules() -> None:
    with pytest.raises(ConfigError, match=r"acl:100001: more than 100,000 rules"):
        read("topic a\n" * 100_001)


def test_policies_tell_their_lines() -> None:
    imported = read("user mary\ntopic read a/#\npattern deny x/%c\npattern x/#\n")
    assert [taken.id for taken in imported.policies] == ["acl-2", "acl-wildcards", "acl-3", "acl-4"]
    assert imported.policies[0].origin == "line 2: topic read a/#"


@given(st.text(max_size=200))
@settings(max_examples=300, database=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parses(read(text))


@given(st.lists(st.one_of(topic_lines, st.text(max_size=20).map("topic read {}".format)), max_size=5).map("\n".join))
@settings(max_examples=200, database=None)
def test_whatever_is_read_is_a_configuration(acl: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parses(read(acl))


def parses(imported: Imported) -> bool:
    """Whether a node accepts it, once it has a name and a listener."""
    text = 'node: {name: x}\nlisteners: [{url: "mqtt://127.0.0.1:1883"}]\n' + to_yaml(imported, "acl")
    return bool(parse(text, "x.yaml").built)
