"""Increasing resilience of a publish-subscribe system ("SEC-REDS"), chapter 2 and appendix B: `examples/hospital`.

Five nodes, each a process: emergency, cardiology and radiology are a group, linked over TLS with certificates at both
ends. Oncology is one of its own. The reception brings everybody general information, and nobody trusts it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from examples.linked import Nodes
from harness import PATIENCE, Client
from sockets.holding import Holder
from sockets.test_links import greeting
from tidegate import wire
from tidegate.cli import certificates
from tidegate.net.control_socket import follow

EMERGENCY, CARDIOLOGY, RADIOLOGY = "8883", "8884", "8885"
TOPIC, RULES = "angina/pectoris", "$tidegate/rules"
REPORT = {"person": "John", "illness": "steady angina", "therapy": "Carvasin 10mg"}
TABLE = ("view", json.dumps({"group:cardiologists@cardiology": ["/illness"], "user:andrew@cardiology": "all"}))
MINISTRY = Ed25519PrivateKey.generate()
DEMAND = ("require", "trusted")
NODES = ("cardiology", "emergency", "radiology", "oncology", "reception")


class Hospital(Nodes):
    """The nodes, and people with certificates."""

    def __init__(self, folder: Path) -> None:
        (folder / "keys").mkdir()
        public = MINISTRY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (folder / "keys/issuer.pub").write_bytes(public)
        super().__init__(folder, "hospital", *NODES)
        for name in ("anna", "john", "andrew", "mark", "nina", "carol", "eve"):
            certificates.issue(folder / "certs", name, [], client=True, days=2)

    async def staff(self, name: str, port: str, *pairs: tuple[str, str], expect: int = 0, **fields: Any) -> Client:
        """Somebody with a certificate."""
        context = ssl.create_default_context(cafile=self.folder / "certs/ca.pem")
        context.load_cert_chain(self.folder / f"certs/{name}.pem", self.folder / f"certs/{name}.key")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.ports[port]), ssl=context)
        client = Client(reader, writer)
        self.clients.append(client)
        fields = {"client_id": name, "clean_start": True, "keep_alive": 0, **fields}
        fields.setdefault("properties", wire.Properties(user_properties=pairs))
        await client.send(wire.Connect(version=wire.V5, **fields))
        client.connack = await client.expect(wire.Connack)
        assert client.connack.reason == expect, client.connack
        return client

    async def anybody(self, name: str, port: str) -> Client:
        """Somebody without a name, over a connection that is not encrypted."""
        client = Client(*await asyncio.open_connection("127.0.0.1", int(self.ports[port])))
        self.clients.append(client)
        await client.send(wire.Connect(version=wire.V5, client_id=name, clean_start=True, keep_alive=0))
        client.connack = await client.expect(wire.Connack)
        return client

    def groups(self, name: str) -> list[list[str]]:
        found: list[list[str]] = self.running[name].ask("link_list")["groups"]
        return found

    def until_grouped(self, name: str, *members: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while [list(members)] != (found := self.groups(name)):
            assert time.monotonic() < deadline, found
            time.sleep(0.02)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hospital]:
    made = Hospital(tmp_path_factory.mktemp("hospital"))
    try:
        made.start(*NODES)
        joined(made)
        yield made
    except BaseException:
        made.kill()
        raise
    made.stop()


@pytest.fixture
async def hospital(running: Hospital) -> AsyncIterator[Hospital]:
    """Where everybody leaves at the end of a test."""
    yield running
    await running.leave()


def joined(hospital: Hospital) -> None:
    for link in ("cardiology->emergency", "cardiology->radiology"):
        hospital.until("cardiology", link, state="connected", level="trusted")
    for link in ("reception->emergency", "reception->oncology"):
        hospital.until("reception", link, state="connected")


async def say(end: Client, topic: str, payload: bytes, *pairs: tuple[str, str], **fields: Any) -> int:
    answer = await end.publish(topic, payload, qos=1, properties=wire.Properties(user_properties=pairs), **fields)
    assert isinstance(answer, wire.Puback)
    return answer.reason


def names(message: wire.Publish) -> set[str]:
    return {name for name, _ in message.properties.user_properties}


# -- 2.2 and 2.3: secure connections, secure paths and groups ----------------------------------------------------------


async def test_figure_2_2_both_ends_authenticate_and_authorize(hospital: Hospital) -> None:
    """Each end knows the other by its certificate; whoever is on no list, or another one, is no neighbour."""
    for node, link, peer in (
        ("emergency", "emergency->cardiology", "CN=cardiology"),
        ("cardiology", "cardiology->emergency", "CN=emergency"),
    ):
        shown = hospital.link(node, link)
        assert (shown["state"], shown["level"], shown["peer"]) == ("connected", "trusted", peer)
    for who in ("eve", "radiology"):  # no nurse, and no other ward, is emergency
        properties = greeting("emergency->cardiology")
        refused = await hospital.staff(
            who, CARDIOLOGY, client_id="l", clean_start=False, properties=properties, expect=wire.Reason.NOT_AUTHORIZED
        )
        await refused.closed()
    hospital.until("cardiology", "cardiology->emergency", state="connected")


async def test_figure_2_3_what_demands_a_secure_path_reaches_those_who_have_one(hospital: Hospital) -> None:
    anna, nina = await hospital.staff("anna", EMERGENCY), await hospital.staff("nina", CARDIOLOGY)
    plain = await hospital.anybody("plain", "1884")
    for reader in (nina, plain):
        await reader.subscribe("ward/#", "info/#", qos=1)
    assert await say(anna, "ward/1", b"secret", DEMAND) in (0, 16)
    assert (await nina.message()).payload == b"secret"
    rita = await hospital.anybody("rita", "1886")
    await say(rita, "info/1", b"for all")
    for reader in (nina, plain):
        assert (await reader.message()).payload == b"for all"
    secure = wire.Properties(user_properties=(DEMAND,))
    await nina.subscribe("info/#", qos=1, properties=secure)  # a subscriber demands it as well
    await say(rita, "info/2", b"from somebody")
    assert (await plain.message()).payload == b"from somebody"
    await nina.silent()


async def test_figures_2_4_and_2_5_groups(hospital: Hospital) -> None:
    together = ("cardiology@cardiology", "emergency@emergency", "radiology@radiology")
    for ward in ("emergency", "cardiology", "radiology"):
        hospital.until_grouped(ward, *together)
    hospital.until_grouped("oncology", "oncology@oncology")
    hospital.until_grouped("reception", "reception@reception")
    status = hospital.running["emergency"].ask("status")
    assert status["groups"] == [list(together)]


async def test_figure_2_6_what_is_general_goes_everywhere_and_the_rest_stays_in_its_ward(hospital: Hospital) -> None:
    anna, nina = await hospital.staff("anna", EMERGENCY), await hospital.staff("nina", CARDIOLOGY)
    otto, rita = await hospital.anybody("otto", "1885"), await hospital.anybody("rita", "1886")
    for reader in (anna, nina, otto):
        await reader.subscribe("info/#", "ward/#", qos=1)
    await rita.subscribe("info/#", qos=1)
    writer, desk = await hospital.staff("anna", EMERGENCY, client_id="2"), await hospital.anybody("desk", "1886")
    other = await hospital.anybody("other", "1885")
    await say(writer, "ward/bed-1", b"theirs")
    for reader in (anna, nina):
        assert (await reader.message()).topic == "ward/bed-1"
    await say(other, "ward/bed-2", b"another group's")
    assert (await otto.message()).topic == "ward/bed-2"
    await say(desk, "info/menu", b"soup")
    for reader in (anna, nina, otto, rita):
        assert (await reader.message()).topic == "info/menu"  # and nothing of any ward before it


# -- 2.4: certificate requests -----------------------------------------------------------------------------------------


async def test_figures_2_7_to_2_9_a_mobile_subscriber_whom_a_neighbours_neighbour_knows(hospital: Hospital) -> None:
    """Emergency asks cardiology, which asks radiology, where Carol is a nurse; the reply comes back that way."""
    carol = await hospital.staff("carol", EMERGENCY)
    assert ("level", "trusted") in carol.connack.properties.user_properties
    assert (await carol.subscribe("ward/#", qos=1)).reasons == (1,)
    nina = await hospital.staff("nina", CARDIOLOGY)
    await say(nina, "ward/bed-3", b"1", DEMAND)
    assert (await carol.message()).payload == b"1"
    await say(await hospital.staff("carol", EMERGENCY, client_id="2"), "ward/bed-3", b"2", DEMAND)
    assert (await carol.message()).payload == b"2"
    # nobody knows Eve: `close` in emergency, `degrade` in cardiology
    await hospital.staff("eve", EMERGENCY, expect=wire.Reason.NOT_AUTHORIZED)
    eve = await hospital.staff("eve", CARDIOLOGY)
    assert ("level", "tls") in eve.connack.properties.user_properties
    # radiology takes Carol off its list: the word is withdrawn, and she has to go
    with hospital.changed("radiology", ("CN=cardiology, CN=carol", "CN=cardiology")):
        assert (await carol.expect(wire.Disconnect)).reason == wire.Reason.NOT_AUTHORIZED
        await hospital.staff("carol", EMERGENCY, expect=wire.Reason.NOT_AUTHORIZED)


# -- 2.5: access control -----------------------------------------------------------------------------------------------


def john_may() -> Holder:
    rights = ("write:angina/#", f"write:{RULES}")
    return Holder(*rights, subject="user:john", issuer=MINISTRY, iss="ministry", proof="per-message")


async def johns(hospital: Hospital, holder: Holder) -> Client:
    return await hospital.staff("john", EMERGENCY, *holder.shows("john"))


async def reports(john: Client, holder: Holder, **changed: Any) -> int:
    payload = json.dumps({**REPORT, **changed}).encode()
    return await say(john, TOPIC, payload, TABLE, DEMAND, holder.write(TOPIC, payload, properties=(TABLE, DEMAND)))


async def rules(john: Client, holder: Holder, *said: dict[str, Any]) -> int:
    payload = json.dumps(said).encode()
    return await say(john, RULES, payload, holder.write(RULES, payload))


OPEN = {"id": "AllowAllCardiologists", "topic": TOPIC, "subject": "group:cardiologists@cardiology"}


async def test_figures_2_10_to_2_12_a_bogus_publisher_and_a_proof_that_travels(hospital: Hospital) -> None:
    """Who holds no key publishes nothing in John's name; what John proves is verified in cardiology once more."""
    holder = john_may()
    thief = Holder("write:angina/#", subject="user:john", issuer=MINISTRY, iss="ministry", jti=holder.id)
    thief.key = Ed25519PrivateKey.generate()
    john, andrew = await johns(hospital, holder), await hospital.staff("andrew", CARDIOLOGY)
    signed = wire.Properties(user_properties=(("require", "trusted,signed"),))
    await andrew.subscribe(TOPIC, qos=1, properties=signed)
    payload = json.dumps(REPORT).encode()
    assert await say(john, TOPIC, payload, TABLE, thief.write(TOPIC, payload, properties=(TABLE,))) == 0x87
    assert await reports(john, holder) in (0, 16)
    message = await andrew.message()
    assert json.loads(message.payload) == REPORT
    assert not names(message) & {
        "proof",
        "capability",
        "view",
        "require",
        "tidegate-proof",
    }  # the last node removes them
    assert hospital.denials("cardiology", rule=holder.rule) == []


async def test_figure_2_11_rights_belong_to_who_is_at_the_other_end_of_a_connection(hospital: Hospital) -> None:
    """The table of connections has the id of each neighbour; what a client may do is decided by who it has proved to
    be, at its own node and at the next one, whatever it calls itself."""
    ids = {hospital.link("cardiology", f"cardiology->{ward}")["node"] for ward in ("emergency", "radiology")}
    own = {hospital.link(ward, f"{ward}->cardiology")["node"] for ward in ("emergency", "radiology")}
    assert (len(ids), len(own), len(ids | own)) == (2, 1, 3)  # unique in the whole network
    andrew = await hospital.staff("andrew", CARDIOLOGY)
    await andrew.subscribe("angina/#", "ward/#", qos=1)
    holder = john_may()
    await johns(hospital, holder)
    nina = await hospital.staff("nina", EMERGENCY, client_id="john-2")
    for text in ("user:john", "john"):
        assert await say(nina, TOPIC, text.encode()) == wire.Reason.NOT_AUTHORIZED
    await andrew.silent()


async def test_figures_2_13_to_2_16_and_appendix_b_rules_go_to_all_nodes_and_views_to_the_last(
    hospital: Hospital,
) -> None:
    """John opens his reports at his own node; Mark, a cardiologist by his capability, receives them elsewhere."""
    holder = john_may()
    mays = Holder("read:angina/#", subject="user:mark", issuer=MINISTRY, iss="ministry", groups=["cardiologists"])
    john = await johns(hospital, holder)
    mark = await hospital.staff("mark", CARDIOLOGY, ("capability", mays.token))
    andrew, nina = await hospital.staff("andrew", CARDIOLOGY), await hospital.staff("nina", CARDIOLOGY)
    signed = wire.Properties(user_properties=(("require", "trusted,signed"),))
    for reader, held in ((andrew, False), (mark, True), (nina, True)):
        answer = await reader.subscribe(TOPIC, qos=1, properties=wire.NONE if held else signed)
        assert any(name == "held" for name, _ in answer.properties.user_properties) is held
    await reports(john, holder, illness="before")
    assert json.loads((await andrew.message()).payload)["illness"] == "before"
    hospital.running["radiology"].ask("status")
    hospital.kill("radiology")
    assert await rules(john, holder, OPEN) == 0
    await reports(john, holder)
    assert json.loads((await andrew.message()).payload) == REPORT  # figures 2.14 to 2.16: each their part
    assert json.loads((await mark.message()).payload) == {"illness": REPORT["illness"]}
    await nina.silent()
    hospital.start("radiology")
    joined(hospital)
    deadline = time.monotonic() + PATIENCE
    while "john@emergency" not in str(audited(hospital, "radiology")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert await rules(john, holder, {"id": "AllowAllCardiologists", "remove": True}) == 0
    await reports(john, holder, illness="after")
    assert json.loads((await andrew.message()).payload)["illness"] == "after"
    await mark.silent()


def audited(hospital: Hospital, node: str) -> list[Any]:
    return [row for piece in follow(hospital.running[node].control, "audit", kinds=["change"]) for row in piece]
