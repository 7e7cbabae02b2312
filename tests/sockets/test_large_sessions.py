"""Thousands of subscriptions of a session, and thousands of sessions: nobody else waits when they come, go and end."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from processes import on_uvloop, until
from sockets.acts import come, door, go, inbox, payloads, policy, say, setting
from tidegate import wire
from tidegate.gate.plan_cache import PlanCache
from tidegate.scope.idle_states import IdleStates
from tidegate.scope.session_lifetime import SessionLifetime
from tidegate.session import Session, Site
from tidegate.session.usage import filter_weight

MINE = policy("mine", "mine/#", subject="user:mary")
MANY = [f"mine/{number}/#" for number in range(1000)]
QUOTA = 0x97


def spent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The effort of each turn from now on, as it ends."""
    efforts: list[int] = []
    close = Site.close

    def closed(site: Site) -> None:
        efforts.append(site.effort)
        close(site)

    monkeypatch.setattr(Site, "close", closed)
    return efforts


@on_uvloop
async def test_who_comes_back_with_many_subscriptions_takes_as_long_as_there_are_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took 25 ms for 10,000 subscriptions, each time, and nobody paid for it."""
    touched: list[str] = []
    touch = PlanCache.touch

    def counted(cache: PlanCache, filter: str) -> int:
        touched.append(filter)
        return touch(cache, filter)

    async with door(tmp_path, MINE) as node:
        publisher, large = await come(node, "mary"), await come(node, "mary", client="large", stays=True)
        await large.subscribe(*MANY, qos=1)
        await say(publisher, "mine/1/x", qos=1)
        assert len(await inbox(large)) == 1
        monkeypatch.setattr(PlanCache, "touch", counted)
        for version in (wire.V311, wire.V5):  # plans of the connection before are not followed
            large = await come(node, "mary", client="large", version=version, stays=True)
            for qos in (0, 1):
                await say(publisher, "mine/1/x", b"%d" % version, qos=qos)
            assert await payloads(large) == [b"%d" % version] * 2
        assert touched.count("mine/1/x") >= 2
        assert len(touched) < 20


@pytest.mark.parametrize("filter", ["mine/x", "mine/#", "$share/g/mine/+"])
@on_uvloop
async def test_no_plan_of_the_connection_before_is_followed(tmp_path: Path, filter: str) -> None:
    """What it demanded over another connection neither holds any more nor is forgotten."""
    async with door(tmp_path, MINE) as node:
        publisher, large = await come(node, "mary"), await come(node, "mary", client="large", stays=True)
        await large.subscribe(*MANY)
        await large.subscribe(filter, qos=1)
        for demand in ("none", "tls", "none", "tls"):
            large = await come(node, "mary", client="large", stays=True, asks=[("require", demand)])
            for qos in (0, 1):
                await say(publisher, "mine/x", demand.encode(), qos=qos)
            assert await payloads(large) == ([b"none"] * 2 if demand == "none" else [])


@on_uvloop
async def test_where_there_are_many_plans_who_comes_back_pays(tmp_path: Path) -> None:
    async with door(tmp_path, MINE) as node:
        publisher, large = await come(node, "mary"), await come(node, "mary", client="large", stays=True)
        await large.subscribe(*(f"mine/{number}" for number in range(1000)))
        for number in range(300):
            await publisher.publish(f"mine/{number}")
        await publisher.silent()
        (bound,) = node.node.listeners.bound.values()
        before = bound.admission.payer("127.0.0.1").paid
        await come(node, "mary", client="large", stays=True)
        assert bound.admission.payer("127.0.0.1").paid - before > 1000


@on_uvloop
async def test_held_subscriptions_of_one_session_wake_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 10,000 of them, each connection held the loop for a tenth of a second."""
    open_ = [MINE, policy("r", "held/#", "read", subject="user:mary")]
    async with door(tmp_path, MINE, subscribe="hold", limits={"held": 2000}) as node:
        large = await come(node, "mary", client="large", stays=True)
        assert set((await large.subscribe(*(f"held/{number}" for number in range(1000)))).reasons) == {0}
        site, session = node.node.site, next(iter(node.node.scopes["main"].sessions.values()))
        await go(node, large)
        large = await come(node, "mary", client="large", stays=True)
        assert site.unfinished, "some are left to be looked at"
        await until(lambda: not site.unfinished)
        assert session.held == 1000
        looked = spent(monkeypatch)
        await node.reload(setting(*open_, subscribe="hold", limits={"held": 2000}))
        await until(lambda: session.held == 0)
        assert max(looked) < 5000, "a thousand looks take 15 ms"
        bob = await come(node, "bob")
        assert await say(bob, "held/1", qos=1) == 0x87


@on_uvloop
async def test_sessions_that_expire_together_end_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 wills that fired in one moment held the loop for 60 ms; 100,000 would for more than a second."""
    ended: list[float] = []
    end = SessionLifetime.end

    def noted(lifetime: SessionLifetime, session: Session) -> None:
        ended.append(lifetime.site.now)
        for _ in range(20_000):  # what it takes if there is much to end
            pass
        end(lifetime, session)

    async with door(tmp_path, MINE) as node:
        sessions = node.node.scopes["main"].sessions
        ends = [await come(node, "mary", client=f"s{number}", stays=True) for number in range(30)]
        await go(node, *ends)
        monkeypatch.setattr(SessionLifetime, "end", noted)
        site = node.node.site
        for session in list(sessions.values()):
            site.timers.cancel(session.timer)
            session.timer = site.timers.at(site.now, node.node.scopes["main"].lifetime.end, session)
        await until(lambda: not sessions)
        assert len(ended) == 30
        assert len(set(ended)) > 3, "other turns come between them"


@on_uvloop
async def test_a_look_up_that_goes_many_ways_has_a_price(tmp_path: Path) -> None:
    """Filters of `a` and `+` that a topic agrees with up to its last level: none matches, and all are looked at."""
    async with door(tmp_path, MINE, limits={"patterns": 1000}) as node:
        mary, publisher = await come(node, "mary"), await come(node, "mary", client="p")
        filters = ["mine/" + "/".join(levels) + "/end" for levels in product("a+", repeat=9)]
        assert set((await mary.subscribe(*filters)).reasons) == {0}
        (session,) = [one for one in node.node.scopes["main"].sessions.values() if one.client == "p"]
        assert session.connection is not None
        payer = session.connection.reader.payer
        before = payer.paid + payer._given - payer.credit
        await publisher.publish("mine/a/a/a/a/a/a/a/a/a/other", qos=1)
        assert payer.paid + payer._given - payer.credit - before > 500


@on_uvloop
async def test_filters_that_make_look_ups_long_count_for_more(tmp_path: Path) -> None:
    """A million of them, which one user may have, would have held the loop for ten seconds with each new topic."""
    assert filter_weight("a/b/c/+/d") == filter_weight("+/+/+/x/#") == 1
    assert filter_weight("+/" * 5 + "x") == 41
    assert filter_weight("a/" * 120 + "+") > 20
    async with door(tmp_path, MINE, limits={"user": {"subscriptions": 100}}) as node:
        mary = await come(node, "mary")
        reasons = (await mary.subscribe(*("mine/+/+/+/+/+/" + str(number) for number in range(5)))).reasons
        assert reasons == (0, 0, QUOTA, QUOTA, QUOTA)
        assert (await mary.subscribe(*(f"mine/+/{number}" for number in range(10)))).reasons == (0,) * 10
        await mary.unsubscribe("mine/+/+/+/+/+/0", "mine/+/+/+/+/+/1")
        assert (await mary.subscribe(*(f"mine/x/{number}" for number in range(90)))).reasons == (0,) * 90


# -- what monitors remember of clients that are gone ------------------------------------------------------------------


@on_uvloop
async def test_what_monitors_remember_of_others_is_not_pushed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may come with as many names as they like, and leave a state with each: their own oldest ones go."""
    monkeypatch.setattr(IdleStates.__init__, "__defaults__", (40,))
    once = {"id": "once", "scope": "main", "direction": "im_pub", "each": "client", "dedupe": "1h"}
    async with door(tmp_path, monitors=[once]) as node:
        mary = await come(node, "mary")
        await say(mary, "t", b"said")
        await go(node, mary)
        for number in range(8):
            stranger = await come(node, None, client=f"s{number}")
            for each in range(100):
                await stranger.publish("t", b"%d" % each)
            await stranger.silent()
            await go(node, stranger)
        states = node.node.scopes["main"].path.monitoring.states
        assert len(states.instances) < 8, "one with a hundred repetitions is as large as eight small ones"
        reader = await come(node, "bob")
        await reader.subscribe("t")
        for who, client in (("mary", None), (None, "s7"), (None, "s0")):
            end = await come(node, who, client=client)
            await say(end, "t", b"said" if who else b"99")
        assert await payloads(reader) == [b"99"], "of the first stranger nothing is remembered"
