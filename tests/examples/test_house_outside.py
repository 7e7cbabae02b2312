"""Scoping and Execution Monitoring for IoT Middleware ("scopes"), section 3.5, with scope I on a node of its own:
`examples/house-outside`. The house works without the internet, and what waits for it crosses when it is back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from examples.linked import KEEP, Nodes, nodes
from harness import Client

INTERNET, H2, H3, H4 = "1883", "1884", "1885", "1886"
LINK = "H1->I"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with nodes(tmp_path_factory.mktemp("house"), "house-outside", "outside", "house") as made:
        made.until("house", LINK, state="connected", level="trusted")
        yield made


@pytest.fixture
async def home(running: Nodes) -> AsyncIterator[Nodes]:
    """Where everybody leaves at the end of a test, and A1 is in its first state."""
    running.running["house"].ask("monitor_reset", id="a1")
    yield running
    await running.leave()


async def lock(home: Nodes) -> Client:
    return await home.come("DL", H3, "DL_unlock", "DL_lock")


async def test_scopes_section_3_5_the_owner_lets_somebody_in_from_outside(home: Nodes) -> None:
    """The bell rings outside; A1, in the house, sees what comes from there."""
    door, phone, bell = await lock(home), await home.come("SP", INTERNET, "AccessRequest"), await home.come("DB", H2)
    await bell.publish("AccessRequest", b"ring", qos=1)
    assert (await phone.message()).payload == b"ring"
    await phone.publish("AccessGranted", qos=1)
    await phone.publish("DL_unlock", b"welcome", qos=1)
    message = await door.message()
    assert (message.topic, message.payload) == ("DL_unlock", b"welcome")


async def test_scopes_section_3_5_policy_1_motion_stays_at_home(home: Nodes) -> None:
    """Not even the hub gets it out in the name of the detector; and what comes before the ring would have come."""
    bell, cloud = await home.come("DB", H2, "MD_motion"), await home.come("cloud", INTERNET, "+")
    detector, hub = await home.come("MD", H4), await home.come("hub", H2)
    await detector.publish("MD_motion", qos=1)
    assert (await bell.message()).topic == "MD_motion"
    await hub.publish("MD_motion", qos=1)
    assert (await bell.message()).topic == "MD_motion"
    await hub.publish("AccessRequest", b"ring", qos=1)
    assert (await cloud.message()).topic == "AccessRequest"


async def test_scopes_section_3_5_policy_2_nobody_outside_but_the_owner_opens_the_door(home: Nodes) -> None:
    """The node outside lets the cloud say everything. The house takes it from the owner's phone only."""
    door, bell = await lock(home), await home.come("DB", H2)
    cloud, phone = await home.come("cloud", INTERNET), await home.come("SP", INTERNET, "AccessRequest")
    await bell.publish("AccessRequest", qos=1)
    await phone.message()
    await cloud.publish("AccessGranted", qos=1)
    await cloud.publish("DL_unlock", b"the cloud", qos=1)
    await phone.publish("DL_unlock", b"not granted", qos=1)
    await phone.publish("AccessGranted", qos=1)
    await phone.publish("DL_unlock", b"the owner", qos=1)
    assert (await door.message()).payload == b"the owner"


async def test_scopes_section_3_5_without_the_internet(home: Nodes) -> None:
    """The node outside is killed: the door opens by the rules, and the owner hears of it when it is back."""
    door, bell, panel = await lock(home), await home.come("DB", H2), await home.come("panel", H2, "AccessRequest")
    hub = await home.come("hub", H2)
    cloud = await home.come("cloud", INTERNET, "+", clean_start=False, properties=KEEP)
    await bell.publish("AccessRequest", b"before", qos=1)
    assert (await cloud.message()).payload == (await panel.message()).payload == b"before"
    await panel.publish("AccessDenied", qos=1)
    assert (await cloud.message()).topic == "AccessDenied"
    home.until("house", LINK, queue=0)

    home.kill("outside")
    home.until("house", LINK, state="waiting")
    await hub.publish("DL_unlock", b"hijacked", qos=1)  # A1 still watches
    await bell.publish("AccessRequest", b"meanwhile", qos=1)
    assert (await panel.message()).payload == b"meanwhile"
    await panel.publish("AccessGranted", qos=1)
    await panel.publish("DL_unlock", b"from the wall", qos=1)
    assert (await door.message()).payload == b"from the wall"
    assert home.link("house", LINK)["queue"] == 4

    home.start("outside")
    home.until("house", LINK, state="connected", queue=0)
    cloud = await home.come("cloud", INTERNET, clean_start=False, properties=KEEP)
    assert cloud.connack.session_present
    waited = [(await cloud.message()).topic for _ in range(4)]
    assert waited == ["DL_unlock", "AccessRequest", "AccessGranted", "DL_unlock"]
    phone = await home.come("SP", INTERNET)  # and the other way works again, too
    await bell.publish("AccessRequest", qos=1)
    assert (await cloud.message()).topic == "AccessRequest"
    await phone.publish("AccessGranted", qos=1)
    await phone.publish("DL_unlock", b"welcome", qos=1)
    assert (await door.message()).payload == b"welcome"
