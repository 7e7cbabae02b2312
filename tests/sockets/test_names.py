"""Names. Of topics with placeholders and wildcards, of clients, of attributes.

Each test quotes the sentence of the specification that it holds the node to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Client
from processes import on_uvloop
from sockets.acts import (
    ALL,
    PEOPLE,
    come,
    door,
    inbox,
    payloads,
    policy,
    say,
    user,
)
from tidegate import wire
from tidegate.config import ConfigErrors

# -- names of topics ---------------------------------------------------------------------------------------------


async def may(end: Client, filter: str, topic: str) -> tuple[bool, bool]:
    """Whether it may subscribe to the filter, and publish to the topic."""
    granted = (await end.subscribe(filter, no_local=True)).reasons[0] < 0x80
    return granted, await say(end, topic, qos=1) < 0x80


@pytest.mark.parametrize("client", ["#", "+", "a/b", "a/#", "/", "x+"])
@on_uvloop
async def test_a_placeholder_with_a_wildcard_or_a_slash_never_matches(tmp_path: Path, client: str) -> None:
    """*a topic filter that may hold `{s.user}`-style placeholders; a value with `/`, `+` or `#` in it never matches*"""
    rules = [policy("own", "own/{s.client}/#"), policy("first", "{s.client}/#"), policy("part", "part/x{s.client}")]
    async with door(tmp_path, *rules) as node:
        victim = await come(node, "mary", client="victim")
        assert (await victim.subscribe("own/victim/#", "victim/#")).reasons == (0, 0)
        end = await come(node, "bob", client=client)
        for filter in ("own/#", "own/+/#", "own/a/b", "own/victim/x", "#", "+/#", "part/#", "part/xa"):
            topic = filter.replace("#", "t").replace("+", "victim")
            assert await may(end, filter, topic) == (False, False), filter
        assert await inbox(victim) == []


@on_uvloop
async def test_nobody_gets_at_the_nodes_topics_by_being_called_so(tmp_path: Path) -> None:
    """*`#` and `+` never match a leading `$`*: nor does the name of a client stand in for it."""
    async with door(tmp_path, policy("first", "{s.client}/#"), policy("own", "own/{s.client}/#")) as node:
        end = await come(node, "bob", client="$SYS")
        assert await may(end, "$SYS/#", "$SYS/x") == (False, False)
        assert await may(end, "own/$SYS/x", "own/$SYS/x") == (True, True)


@on_uvloop
async def test_a_placeholder_without_a_value_never_matches(tmp_path: Path) -> None:
    """The same for what is empty, absent, or no text; and a client without a name is called what CONNACK says."""
    users = {"mary": user(zone="a"), "alice": user(zone="#"), "bob": user(zone=""), "carol": user(zone=["a"])}
    rules = [policy("zone", "zone/{s.zone}/x"), policy("user", "user/{s.user}"), policy("own", "own/{s.client}")]
    async with door(tmp_path, *rules, directory={"users": users}) as node:
        for name in users:
            end = await come(node, name)
            assert await may(end, "zone/a/x", "zone/a/x") == ((name == "mary"),) * 2
            assert await may(end, "zone/+/x", "zone//x") == (name == "mary", False)
            assert await may(end, f"user/{name}", f"user/{name}") == (True, True)
            assert await may(end, "user/+", "user/other") == (True, False)
        nobody = await come(node, None)
        assert await may(nobody, "user/#", "user/") == (False, False)
        assert await may(nobody, "zone/#", "zone/x/x") == (False, False)
        own = nobody.connack.properties.assigned_client_identifier
        assert await may(nobody, f"own/{own}", f"own/{own}") == (True, True)
        assert await may(nobody, "own/", "own/") == (False, False)


@on_uvloop
async def test_wildcards_never_match_a_leading_dollar(tmp_path: Path) -> None:
    """*`#` and `+` never match a leading `$`. Shared subscriptions are judged by the filter without `$share/group/`*"""
    rules = [policy("all"), policy("plus", "+/#"), policy("dollar", "$lab/#", subject="user:mary")]
    async with door(tmp_path, *rules) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        refused = ["$SYS/#", "$SYS/broker/version", "$lab/#", "$share/g/$SYS/#", "$share/g/$lab/x", "$tidegate/rules"]
        assert (await alice.subscribe(*refused)).reasons == (0x87,) * len(refused)
        assert (await alice.subscribe("#", "+/#", "$share/g/#")).reasons == (0, 0, 0)
        carol = await come(node, "mary", client="second")
        assert (await carol.subscribe("$lab/#", "#")).reasons == (0, 0)
        assert await say(mary, "$lab/x", b"1", qos=1) == 0
        assert await payloads(carol) == [b"1"]
        assert await inbox(alice) == []


@pytest.mark.parametrize("topic", ["$SYS/broker/version", "$SYS", "$tidegate/rules", "$share/g/t"])
@pytest.mark.parametrize("version", [wire.V311, wire.V5])
@on_uvloop
async def test_reserved_topics_are_the_nodes_own(tmp_path: Path, topic: str, version: int) -> None:
    """*`$SYS/…` (statistics, as other brokers have them)*: no policy lets a client write there, nor a will."""
    rules = [ALL, policy("sys", "$SYS/#"), policy("own", "$tidegate/#")]
    async with door(tmp_path, *rules) as node:
        mary = await come(node, "mary", version=version)
        assert await say(mary, topic, qos=1, retain=True) == (0x87 if version == wire.V5 else 0)
        assert node.node.scopes["main"].retained.get(topic) is None
        will = wire.Will(topic=topic, payload=b"gone", qos=0, retain=True)
        await come(node, "bob", version=version, will=will, expect=0x87 if version == wire.V5 else 5)


# -- who somebody is ---------------------------------------------------------------------------------------------


@on_uvloop
async def test_an_entry_of_a_client_applies_only_to_who_is_authenticated_for_it(tmp_path: Path) -> None:
    """*An entry `directory.clients.X` applies only to a connection authenticated for X*"""
    directory = {"users": PEOPLE, "clients": {"treadmill": {"user": "mary", "roles": ["machine"]}}}
    async with door(tmp_path, policy("p", subject="role:machine"), directory=directory) as node:
        mary = await come(node, "mary", client="treadmill")
        assert await may(mary, "t", "t") == (True, True)
        for name in ("bob", None):
            other = await come(node, name, client="treadmill")
            assert await may(other, "t", "t") == (False, False)
        assert await may(await come(node, "mary", client="another"), "t", "t") == (False, False)


@on_uvloop
async def test_a_selector_of_a_client_means_the_one_that_the_directory_knows(tmp_path: Path) -> None:
    """The same for `client:X` in a policy, where the directory says whose client X is: a client identifier is only
    what somebody claims."""
    directory = {"users": PEOPLE, "clients": {"treadmill": {"user": "mary"}}}
    async with door(tmp_path, policy("p", subject="client:treadmill"), directory=directory) as node:
        mary = await come(node, "mary", client="treadmill")
        assert await may(mary, "t", "t") == (True, True)
        bob = await come(node, "bob", client="treadmill")
        assert await may(bob, "t", "t") == (False, False)


@on_uvloop
async def test_a_built_in_name_cannot_be_set(tmp_path: Path) -> None:
    """*plus what the directory or a verified capability adds. Neither can set a built-in name*"""
    for name in ("user", "client", "level", "roles", "tls", "domain"):
        with pytest.raises(ConfigErrors, match="by the node itself"):
            async with door(tmp_path, directory={"users": {"mary": user(**{name: "trusted"})}}):
                pass
