"""Two node processes on one PostgreSQL server: what is changed on one over HTTP is in force on the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import aiomqtt
import httpx
import pytest

import postgres
from reliability.nodes import OPEN, WELL, Eyes, Node, eyes, pair, until

GOAL = 1.0  # seconds; counted, and told with -s: other things may run on this machine


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture(scope="module")
def two(server: postgres.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """Started at once on an empty database: both come up."""
    with pair(server, tmp_path_factory.mktemp("two")) as both:
        yield both


def number(answer: httpx.Response, *statuses: int) -> int:
    """The version that a change has made."""
    assert answer.status_code in (statuses or (200, 201)), answer.text
    return int(answer.json()["version"])


class Times:
    """How long after the answer a change was in force on the other node."""

    def __init__(self) -> None:
        self.found: list[tuple[str, float]] = []

    async def __call__(self, what: str, condition: Callable[[], Awaitable[object]]) -> None:
        self.found.append((what, await until(condition, WELL)))

    def tell(self) -> None:
        good = sum(seconds < GOAL for _, seconds in self.found)
        print(f"\nin force on the other node: {good} of {len(self.found)} within {GOAL:g} s")
        for what, seconds in sorted(self.found, key=lambda one: one[1]):
            print(f"  {seconds * 1000:6.0f} ms  {what}")


async def admitted(node: Node, user: str, password: str) -> bool:
    try:
        async with node.mqtt(username=user, password=password):
            return True
    except aiomqtt.MqttError:
        return False


async def counts(node: Node, token: str) -> bool:
    async with node.client(token) as api:
        answer = await api.get("/me")
    assert answer.status_code in (200, 401), answer.text
    return answer.status_code == 200


# -- one after the other -----------------------------------------------------------------------------------------------


async def test_a_change_is_in_force_on_the_other_within_a_second(two: tuple[Node, Node]) -> None:
    times = Times()
    for round, (here, there) in enumerate((two, two[::-1])):
        async with here.client() as api, eyes(there, "t/#", username="mary", password="secret") as seen:
            await change_rules(api, seen, times, str(round))
            await change_people(api, there, times, f"bob{round}")
            await change_tokens(api, there, times)
    times.tell()
    assert len(times.found) == 2 * 11


async def change_rules(api: httpx.AsyncClient, seen: Eyes, times: Times, round: str) -> None:
    """A policy and a preference: the next message is decided by them."""
    policy, preference = f"/policies/p{round}", f"/preferences/u{round}"

    async def allowed() -> bool:
        return await seen.passes("t/1")

    async def denied() -> bool:
        return not await seen.passes("t/1")

    assert await denied()
    version = number(await api.put(policy, json=OPEN), 201)
    await times("a policy that is made", allowed)
    changed = {**OPEN, "effect": "deny"}
    version = number(await api.put(policy, json=changed, headers={"If-Match": f'"{version}"'}), 200)
    await times("a policy that is changed", denied)
    number(await api.post(f"{policy}/revert", json={"sequence": version}))
    await times("a change that is taken back", allowed)
    number(await api.put(preference, json={"user": "mary", "topic": "t/#", "when": "false"}), 201)
    await times("a preference that is made", denied)
    assert (await api.delete(preference)).status_code == 200
    await times("a preference that is removed", allowed)
    assert (await api.delete(policy)).status_code == 200
    await times("a policy that is removed", denied)


async def change_people(api: httpx.AsyncClient, there: Node, times: Times, name: str) -> None:
    """A user who comes, gets a role, and goes."""
    path, policy = f"/directory/users/{name}", f"/policies/of-{name}"
    version = number(await api.put(path, json={"password": "plain:x"}), 201)
    await times("a user who is added", lambda: admitted(there, name, "x"))
    number(await api.put(policy, json={**OPEN, "subject": "role:coach"}), 201)
    watching = {"subject": "*", "topic": "t/#", "action": "read"}
    number(await api.put(f"{policy}-all", json=watching), 201)
    async with eyes(there, "t/#", username=name, password="x") as seen:

        async def allowed() -> bool:
            return await seen.passes("t/1")

        assert not await allowed()
        number(await api.put(path, json={"roles": ["coach"]}, headers={"If-Match": f'"{version}"'}), 200)
        await times("a role that is given to who is connected", allowed)
    async with there.mqtt(username=name, password="x") as bob:
        assert (await api.delete(path)).status_code == 200
        begin = time.perf_counter()
        with pytest.raises(aiomqtt.MqttError):
            async with asyncio.timeout(WELL):
                await anext(bob.messages)
        times.found.append(("a user who is removed is disconnected", time.perf_counter() - begin))
    assert not await admitted(there, name, "x")
    for each in (policy, f"{policy}-all"):
        assert (await api.delete(each)).status_code == 200


async def change_tokens(api: httpx.AsyncClient, there: Node, times: Times) -> None:
    made = (await api.post("/tokens", json={"role": "auditor"})).json()
    await times("a token that is made", lambda: counts(there, made["token"]))
    assert (await api.delete(f"/tokens/{made['id']}")).status_code == 200

    async def refused() -> bool:
        return not await counts(there, made["token"])

    await times("a token that is revoked", refused)


async def test_etags_hold_on_all_nodes(two: tuple[Node, Node]) -> None:
    a, b = two
    async with a.client() as here, b.client() as there:
        version = number(await here.put("/policies/e", json=OPEN), 201)

        async def shown() -> bool:
            found = await there.get("/policies/e")
            return bool(found.headers.get("etag") == f'"{version}"')

        await until(shown)
        # the other one has not seen this yet, and still does not overwrite it
        newer = number(await here.put("/policies/e", json={**OPEN, "topic": "e"}, headers={"If-Match": f'"{version}"'}))
        late = await there.put("/policies/e", json=OPEN, headers={"If-Match": f'"{version}"'})
        assert late.status_code == 412, late.text
        assert late.json()["errors"][0]["version"] == newer
        assert (await there.delete("/policies/e", headers={"If-Match": f'"{version}"'})).status_code == 412
        assert (await there.put("/policies/e", json=OPEN)).status_code == 428
        # who comes at once with the same version: one of them
        for _ in range(5):
            same = {"If-Match": f'"{newer}"'}
            answers = await asyncio.gather(
                here.put("/policies/e", json={**OPEN, "topic": "here"}, headers=same),
                there.put("/policies/e", json={**OPEN, "topic": "there"}, headers=same),
            )
            assert sorted(each.status_code for each in answers) == [200, 412], [each.text for each in answers]
            [newer] = [number(each) for each in answers if each.status_code == 200]
        for api in (here, there):
            history = (await api.get("/policies/e/history")).json()["items"]
            assert len(history) == 7
        # taken back where it was not made, as long as nobody has changed it since
        mine = number(await here.put("/policies/e", json={**OPEN, "topic": "e"}, headers={"If-Match": f'"{newer}"'}))
        assert (await there.post("/policies/e/revert", json={"sequence": newer})).status_code == 409
        back = await there.post("/policies/e/revert", json={"sequence": mine})
        assert number(back) > mine
        restored = (await there.get("/policies/e")).json()
        assert restored["value"] == history[-1]["value"]
        again = await here.post("/policies/e/revert", json={"sequence": mine})
        assert again.status_code == 409, again.text
        assert (await here.delete("/policies/e")).status_code == 200


# -- at once -----------------------------------------------------------------------------------------------------------


async def test_changes_on_both_at_once(two: tuple[Node, Node]) -> None:
    """All are made or refused whole, and in the end both nodes have the same rules in the same order."""
    a, b = two
    done: list[int] = []

    async def change(api: httpx.AsyncClient, name: str) -> None:
        for each in range(6):
            path, body = f"/policies/{name}-{each}", {**OPEN, "topic": f"t/{name}"}
            version = number(await api.put(path, json=body), 201)
            newer = number(await api.put(path, json={**body, "effect": "deny"}, headers={"If-Match": f'"{version}"'}))
            done.extend((version, newer))
            if each % 3 == 0:
                answer = await api.delete(path, headers={"If-Match": f'"{newer}"'})
                assert answer.status_code == 200, answer.text
                done.append(answer.json()["version"])

    async def clash(policies: httpx.AsyncClient, views: httpx.AsyncClient, id: str) -> None:
        """Each is good alone: ids are unique among rules of all kinds."""
        view = {"topic": "v", "for": "*", "keep": "all"}
        both = await asyncio.gather(policies.put(f"/policies/{id}", json=OPEN), views.put(f"/views/{id}", json=view))
        assert sorted(each.status_code for each in both) == [201, 422], [each.text for each in both]
        done.extend(number(each) for each in both if each.status_code == 201)

    async with a.client() as here, b.client() as there:
        await asyncio.gather(
            *(change(api, f"{name}{each}") for name, api in (("a", here), ("b", there)) for each in range(2)),
            *(clash(*((here, there) if each % 2 else (there, here)), f"clash{each}") for each in range(4)),
        )
        assert len(set(done)) == len(done) == 2 * 2 * 14 + 4

        async def caught_up() -> bool:
            states = [(await each.status())["registry"] for each in two]
            assert all(each["reachable"] and each["trouble"] is None for each in states)
            return all(each["in_force"] and each["sequence"] == max(done) for each in states)

        await until(caught_up)
        listed = [
            [(each["id"], each["version"]) for each in (await node.ask("admin_list", kind="policy"))["documents"]]
            for node in two
        ]
        assert listed[0] == listed[1]
        assert len(listed[0]) >= 1 + 2 * 2 * 4
        assert await a.digest() == await b.digest()
        # and back again, each on the other node
        for id, version in listed[0]:
            if version is not None:
                api = there if id.startswith("a") else here
                assert (await api.delete(f"/policies/{id}")).status_code == 200
        for each in range(4):
            await here.delete(f"/views/clash{each}")
