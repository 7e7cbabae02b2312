"""Increasing resilience of a publish-subscribe system ("SEC-REDS"): what concerns one broker and its clients.

Several brokers, as processes: chapter 2, publishers' rules, authorization certificates and appendix B in
`tests/examples/test_hospital.py`; figures 1.4 to 1.6 and chapter 3 with the links (`tests/sockets/test_failover.py`).
Where rules open something, a policy of the administrator does it here. Figures 2.17 to 2.20 and chapter 4 are the
architecture of that system.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seeds.real import Visitor, authority, mixed
from seeds.town import DENIED, GRANTED, NOBODY, OK, Town
from tidegate.policy.trust_list import fingerprint

JOHN, ANDREW, MARK, MALLORY = "John Patient", "Andrew Smith", "Mark Cardiologist", "Mallory"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("sec-reds"), JOHN, ANDREW, MARK, MALLORY)


# -- chapter 1 -------------------------------------------------------------------------------------------------------


def test_sec_reds_figure_1_1_a_message_goes_to_those_whose_filter_it_matches() -> None:
    town = Town("policies: open\n")
    p1, s1, s2, s3 = (town.come(client=name) for name in ("P1", "S1", "S2", "S3"))
    for subscriber, filter in ((s1, "d"), (s2, "+"), (s3, "other")):
        assert subscriber.subscribe(filter) == GRANTED
    p1.publish("d")
    assert [len(one.got()) for one in (s1, s2, s3)] == [1, 1, 0]


def test_sec_reds_section_1_2_subject_based_and_content_based_subscriptions() -> None:
    """All temperatures, or only those above ten."""
    town = Town("policies: open\n")
    sensor, subject, content = (town.come(client=name) for name in ("sensor", "subject", "content"))
    subject.subscribe("temperature")
    content.subscribe("temperature", where="o.payload > 10")
    for value in (9, 10, 11):
        sensor.publish("temperature", value)
    assert subject.contents() == [9, 10, 11]
    assert content.contents() == [11]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("o.payload.kind == 'fire'", [0, 2]),
        ("o.payload.place.matches('^north')", [0, 1]),
        ("o.payload.kind == 'fire' && o.payload.place.startsWith('south')", [2]),
        ("o.payload.missing == 1", []),
    ],
)
def test_sec_reds_section_1_2_1_receivers_define_their_own_classes_of_messages(where: str, expected: list[int]) -> None:
    """By keys and values, and by regular expressions."""
    town = Town("policies: open\n")
    publisher, subscriber = town.come(client="p"), town.come(client="s")
    assert subscriber.subscribe("#", where=where) == GRANTED
    for number, (kind, place) in enumerate((("fire", "north-1"), ("rain", "north-2"), ("fire", "south-1"))):
        publisher.publish("event", {"number": number, "kind": kind, "place": place})
    assert [message["number"] for message in subscriber.contents()] == expected


# -- chapter 2: secure connections -----------------------------------------------------------------------------------


def test_sec_reds_figure_2_1_a_malicious_publisher_in_the_wood() -> None:
    """Sensors measure the temperature of a wood. Whoever is none cannot make the average wrong."""
    town = Town(
        """
directory: {users: {s1: {roles: [sensor]}, s2: {roles: [sensor]}, computer: {}, mallory: {}}}
policies:
  - {id: sensors, subject: "role:sensor", topic: "wood/{s.user}", action: write}
  - {id: computer, subject: "user:computer", topic: wood/+, action: read}
"""
    )
    s1, s2, computer, mallory = (town.come(name) for name in ("s1", "s2", "computer", "mallory"))
    computer.subscribe("wood/+")
    assert (s1.publish("wood/s1", 20), s2.publish("wood/s2", 22)) == (OK, OK)
    assert mallory.publish("wood/s1", 900) == DENIED
    assert s2.publish("wood/s1", 900) == DENIED  # a sensor speaks for itself
    assert computer.contents() == [20, 22]
    assert mallory.subscribe("wood/+") == DENIED


def trusting(otherwise: str, accept: str, by: str = "subject", rest: str = "policies: open\n") -> str:
    return f"trust: {{by: {by}, accept: [{accept}], otherwise: {otherwise}}}\nlevels: {{}}\n{rest}"


async def level(visitor: Visitor) -> str:
    """The level of a connection: the floor of what it publishes to itself."""
    await visitor.subscribe("self/test")
    await visitor.client.publish("self/test")
    (floor,) = await visitor.floors()
    await visitor.client.unsubscribe("self/test")
    return floor


async def test_sec_reds_figure_2_2_a_secure_connection_passes_authentication_and_authorization(certs: Path) -> None:
    async with mixed(certs, trusting("degrade", f"'CN={JOHN}'")) as node:
        assert await level(await node.come(JOHN)) == "trusted"
        assert await level(await node.come(MALLORY)) == "tls"  # a valid certificate, and not on the list
        assert await level(await node.come("tls")) == "tls"
        assert await level(await node.come("plain")) == "plain"


async def test_sec_reds_section_2_2_the_bank_a_certificate_of_the_authority_is_not_enough(certs: Path) -> None:
    """Mallory's is signed by a good authority, but it is not on the bank's list."""
    bank = trusting("degrade", f"'CN={JOHN}', 'CN={ANDREW}'")
    async with mixed(certs, bank) as node:
        john, andrew, mallory = [await node.come(name) for name in (JOHN, ANDREW, MALLORY)]
        for client in (andrew, mallory):
            await client.subscribe("accounts")
        await john.publish("accounts", says={"require": "trusted"})
        assert (len(await andrew.got()), len(await mallory.got())) == (1, 0)


async def test_sec_reds_figure_2_3_a_secure_path_is_a_chain_of_secure_connections(certs: Path) -> None:
    """The publisher knows that no untrusted third party receives it, the subscriber that none has sent it."""
    async with mixed(certs, trusting("degrade", f"'CN={JOHN}', 'CN={ANDREW}'")) as node:
        john, andrew, mallory = [await node.come(name, says={"require": "trusted"}) for name in (JOHN, ANDREW, MALLORY)]
        for client in (andrew, mallory):
            await client.subscribe("t")
        await john.publish("t", b"good")
        await mallory.publish("t", b"bogus")
        assert [message.payload for message in await andrew.got()] == [b"good"]
        assert await mallory.got() == []


async def test_sec_reds_section_2_7_trusted_and_untrusted_clients_do_not_hear_of_each_other(certs: Path) -> None:
    """Confidentiality of subscriptions and publications, for clients that say nothing."""
    text = trusting("degrade", f"'CN={JOHN}', 'CN={ANDREW}'").replace("levels: {}", "levels: {implied: true}")
    async with mixed(certs, text) as node:
        people = {how: await node.come(how) for how in (JOHN, ANDREW, MALLORY, "plain")}
        john, mallory = await node.come(JOHN), await node.come(MALLORY)
        for client in people.values():
            await client.subscribe("t")
        await john.publish("t", b"of the trusted")
        await mallory.publish("t", b"of the untrusted")
        seen = {how: [message.payload for message in await one.got()] for how, one in people.items()}
        trusted, untrusted = [b"of the trusted"], [b"of the untrusted"]
        assert seen == {JOHN: trusted, ANDREW: trusted, MALLORY: untrusted, "plain": []}


async def test_sec_reds_section_2_6_2_subject_based_trust(certs: Path, tmp_path: Path) -> None:
    """There is a match if the subject is on the list, whatever certificate it stands in."""
    async with mixed(certs, trusting("degrade", f"'CN={JOHN}'")) as node:
        assert await level(await node.come(JOHN)) == "trusted"
        _reissue(certs, tmp_path, JOHN)
        node.folder = tmp_path
        assert await level(await node.come(JOHN)) == "trusted"


async def test_sec_reds_section_2_6_2_certificate_based_trust(certs: Path, tmp_path: Path) -> None:
    """There is a match if this very certificate is on the list."""
    listed = fingerprint(_der(certs / f"{JOHN}.pem"))
    async with mixed(certs, trusting("degrade", listed, by="certificate")) as node:
        assert await level(await node.come(JOHN)) == "trusted"
        assert await level(await node.come(ANDREW)) == "tls"
        _reissue(certs, tmp_path, JOHN)
        node.folder = tmp_path
        assert await level(await node.come(JOHN)) == "tls"  # the same subject, another certificate


def _der(pem: Path) -> bytes:
    import ssl

    return ssl.PEM_cert_to_DER_cert(pem.read_text())


def _reissue(certs: Path, folder: Path, name: str) -> None:
    """Another certificate for somebody who has one."""
    from tidegate.cli import certificates

    certificates.issue(certs, name, [], client=True, days=2, out=folder)
    (folder / "ca.pem").write_bytes((certs / "ca.pem").read_bytes())


async def test_sec_reds_section_2_6_3_brutal_close(certs: Path) -> None:
    async with mixed(certs, trusting("close", f"'CN={JOHN}'")) as node:
        assert await level(await node.come(JOHN)) == "trusted"
        await node.come(MALLORY, expect=DENIED)
        await node.come("tls", expect=DENIED)
        assert await level(await node.come("plain")) == "plain"  # it asked for no secure connection


async def test_sec_reds_section_2_6_3_and_appendix_c_degrade(certs: Path) -> None:
    """The broker of appendix C trusts the subject John Patient, and degrades everybody else."""
    async with mixed(certs, trusting("degrade", f"'CN={JOHN}'")) as node:
        john, mallory = await node.come(JOHN), await node.come(MALLORY)
        assert (await level(john), await level(mallory)) == ("trusted", "tls")
        await mallory.subscribe("t")
        await john.publish("t", b"for anybody")
        await john.publish("t", b"for the trusted", says={"require": "trusted"})
        assert [message.payload for message in await mallory.got()] == [b"for anybody"]


# -- chapter 2: access control ---------------------------------------------------------------------------------------

ONLY_A = """
directory:
  users: {a: {password: "plain:secret-a"}, b: {password: "plain:secret-b"}, p: {password: "plain:secret-p"}}
  clients: {node-a: {user: a, attributes: {right: messages-of-p}}}
policies:
  - {id: w, subject: "user:p", topic: messages-of-p, action: write}
  - {id: only-a, subject: "user:a", topic: messages-of-p, action: read}
"""


async def test_sec_reds_figure_2_10_a_bogus_subscriber_cannot_pass_for_another(certs: Path) -> None:
    """Only A may receive the publications of P, and B says that it is A."""
    async with mixed(certs, ONLY_A) as node:
        p = await node.come("plain", username="p", password=b"secret-p")
        a = await node.come("plain", username="a", password=b"secret-a", client_id="node-a")
        assert await a.subscribe("messages-of-p") == 0
        await node.come("plain", username="a", password=b"secret-b", expect=0x86)  # B's word is not enough
        b = await node.come("plain", username="b", password=b"secret-b", client_id="node-a")  # nor is A's identifier
        assert await b.subscribe("messages-of-p") == DENIED
        assert await p.publish("messages-of-p") == 0
        assert (len(await a.got()), len(await b.got())) == (1, 0)


def test_sec_reds_figure_2_11_rights_belong_to_the_node_at_the_other_end_of_a_connection() -> None:
    """A table of connections and a table of rights: what is known of a client counts for that client alone."""
    town = Town(ONLY_A.replace('"user:a", topic: messages-of-p, action: read', '"*", topic: "{s.right}", action: read'))
    p, node_a = town.come("p"), town.come("a", "node-a")
    another_of_a, claims = town.come("a", "other"), town.come("b", "node-a")
    assert [one.subscribe("messages-of-p") for one in (node_a, another_of_a, claims)] == [GRANTED, DENIED, DENIED]
    p.publish("messages-of-p")
    assert len(node_a.got()) == 1


def test_sec_reds_section_2_5_a_local_policy_of_two_rules() -> None:
    """All clients may subscribe to XXXX; no publisher may publish YYYY."""
    town = Town(
        """
policies:
  - {id: publish, subject: "*", topic: "#", action: write}
  - {id: xxxx, subject: "*", topic: XXXX, action: read}
  - {id: yyyy, subject: "*", topic: YYYY, action: write, effect: deny}
"""
    )
    one, other = town.come(client="one"), town.come(client="other")
    assert (other.subscribe("XXXX"), other.subscribe("YYYY")) == (GRANTED, DENIED)
    assert (one.publish("XXXX"), one.publish("YYYY")) == (OK, DENIED)
    assert other.topics() == ["XXXX"]


@pytest.mark.parametrize("first", ["allow", "deny"])
@pytest.mark.parametrize("combining", ["first-applicable", "permit-overrides", "deny-overrides"])
def test_sec_reds_section_2_5_and_appendix_a_1_combining_algorithms(first: str, combining: str) -> None:
    """Two rules that apply and say the opposite."""
    second = "deny" if first == "allow" else "allow"
    town = Town(
        f"""
combining: {combining}
policies:
  - {{id: first, subject: "*", topic: a/#, action: write, effect: {first}}}
  - {{id: second, subject: "*", topic: a/b, action: write, effect: {second}}}
"""
    )
    allowed = {"first-applicable": first == "allow", "permit-overrides": True, "deny-overrides": False}[combining]
    assert town.come(client="c").publish("a/b") == (NOBODY if allowed else DENIED)
    assert town.come(client="d").publish("b") == DENIED  # not applicable is not permitted


def test_sec_reds_section_2_5_a_subscription_without_a_rule_waits_until_there_is_one() -> None:
    """The temporary queue. In the seed a publisher's rule wakes it, here a policy."""
    text = 'subscribe: hold\npolicies:\n  - {id: w, subject: "*", topic: A, action: write}\n'
    town = Town(text)
    publisher, subscriber = town.come(client="p"), town.come(client="s")
    assert subscriber.subscribe("A") == GRANTED
    publisher.publish("A", "too early")
    assert subscriber.contents() == []
    town.change(text + '  - {id: r, subject: "*", topic: A, action: read}\n')
    publisher.publish("A", "now")
    assert subscriber.contents() == ["now"]
    town.change(text)
    publisher.publish("A", "no longer")
    assert subscriber.contents() == []


# -- chapter 2: views ------------------------------------------------------------------------------------------------

SCHOOL = """
directory:
  users:
    teacher: {}
    one: {groups: [I]}
    two: {groups: [II]}
    three: {groups: [III]}
    both: {groups: [I, II]}
    none: {}
    stranger: {}
policies:
  - {id: w, subject: "user:teacher", topic: philosophy, action: write}
  - {id: r, subject: ["group:I", "group:II", "group:III", "user:none"], topic: philosophy, action: read}
"""
LESSON = {"Socrates": "469 BC", "Immanuel Kant": "1724", "Ludwig Wittgenstein": "1889"}
FIGURE_2_15 = {"group:I": ["/Socrates"], "group:II": ["/Socrates", "/Immanuel Kant"], "group:III": "all"}


@pytest.mark.parametrize(
    ("student", "sees"),
    [
        ("one", ["Socrates"]),
        ("two", ["Socrates", "Immanuel Kant"]),
        ("three", list(LESSON)),
        ("both", ["Socrates", "Immanuel Kant"]),
        ("none", None),
    ],
)
def test_sec_reds_figures_2_14_and_2_15_the_teacher_and_the_students(student: str, sees: list[str] | None) -> None:
    town = Town(SCHOOL)
    teacher, pupil, stranger = town.come("teacher"), town.come(student), town.come("stranger")
    assert (pupil.subscribe("philosophy"), stranger.subscribe("philosophy")) == (GRANTED, DENIED)
    assert teacher.publish("philosophy", LESSON, view=json.dumps(FIGURE_2_15)) in (OK, NOBODY)
    assert pupil.contents() == ([] if sees is None else [{name: LESSON[name] for name in sees}])


def test_sec_reds_figure_2_16_the_last_broker_removes_what_is_not_for_the_client() -> None:
    """The table of visibility and the other parts do not reach the student."""
    town = Town(SCHOOL)
    teacher, pupil = town.come("teacher"), town.come("one")
    pupil.subscribe("philosophy")
    teacher.publish("philosophy", LESSON, view=json.dumps(FIGURE_2_15), room="12")
    (message,) = pupil.got()
    assert json.loads(message.payload) == {"Socrates": "469 BC"}
    assert b"Kant" not in message.payload
    # properties are content, too, and no row is about them
    assert message.properties.user_properties == ()


def test_sec_reds_section_2_5_1_the_topic_is_the_heading_and_the_content_its_value() -> None:
    """Who may not subscribe to the topic sees nothing of it, whatever the table says."""
    town = Town(SCHOOL + '  - {id: news, subject: "*", topic: news, action: read}\n')
    teacher, pupil, stranger = town.come("teacher"), town.come("one"), town.come("stranger")
    assert [one.subscribe("#") for one in (pupil, stranger)] == [GRANTED, GRANTED]  # some of it is for everybody
    teacher.publish("philosophy", LESSON, view=json.dumps({"*": "all"}))
    assert (pupil.contents(), stranger.contents()) == ([LESSON], [])


# -- appendix A ------------------------------------------------------------------------------------------------------


def test_sec_reds_appendix_a_2_the_policy_of_the_sample_server() -> None:
    """First applicable: who wants to log in may, everything else is denied."""
    town = Town(
        """
combining: first-applicable
policies:
  - {id: LoginRule, subject: "*", topic: SampleServer/login, action: write}
  - {id: FinalRule, subject: "*", topic: SampleServer/#, action: [read, write], effect: deny}
"""
    )
    client = town.come(client="client")
    assert client.publish("SampleServer/login") == NOBODY
    assert client.publish("SampleServer/logout") == DENIED
    assert client.subscribe("SampleServer/login") == DENIED
    assert client.publish("OtherServer/login") == DENIED  # no target matches: not applicable


# -- appendix B ------------------------------------------------------------------------------------------------------

CLINIC = f"""
directory:
  users:
    {JOHN}: {{}}
    {ANDREW}: {{groups: [cardiologists]}}
    {MARK}: {{groups: [cardiologists]}}
    {MALLORY}: {{}}
policies:
  - {{id: patient, subject: "user:{JOHN}", topic: angina pectoris, action: write}}
  - {{id: AllowAllCardiologists, subject: "group:cardiologists", topic: angina pectoris, action: read}}
"""
REPORT = {
    "person": {"name": "John", "surname": "Patient", "born": "4/2/1948", "country": "Italy"},
    "illness": "steady angina",
    "therapy": {"pills a day": "if needed", "pill": "Carvasin 10mg"},
}
CONDITIONS = {name: REPORT[name] for name in ("illness", "therapy")}
VISIBILITY = {f"user:{ANDREW}": "all", "group:cardiologists": ["/illness", "/therapy"]}


def test_sec_reds_appendix_b_the_patients_own_table() -> None:
    """His physician receives all of it, any other cardiologist his conditions without his identity."""
    town = Town(CLINIC)
    john, andrew, mark, mallory = (town.come(name) for name in (JOHN, ANDREW, MARK, MALLORY))
    assert [one.subscribe("angina pectoris") for one in (andrew, mark, mallory)] == [GRANTED, GRANTED, DENIED]
    assert john.publish("angina pectoris", REPORT, view=json.dumps(VISIBILITY)) == OK
    assert mallory.publish("angina pectoris", REPORT) == DENIED
    assert (andrew.contents(), mark.contents()) == ([REPORT], [CONDITIONS])


def test_sec_reds_appendix_b_numbered_parts() -> None:
    """As the seed writes the content: a list of three texts.

    Its listing gives cardiologists part 0, which holds the name; its text says that they do not learn it.
    """
    data = ["Name:John", "type of illness:steady angina", "type of pill:Carvasin 10mg"]
    town = Town(CLINIC)
    john, andrew, mark = (town.come(name) for name in (JOHN, ANDREW, MARK))
    for one in (andrew, mark):
        one.subscribe("angina pectoris")
    table = {f"user:{ANDREW}": "all", "group:cardiologists": ["/1", "/2"]}
    john.publish("angina pectoris", data, view=json.dumps(table))
    assert (andrew.contents(), mark.contents()) == ([data], [[None, *data[1:]]])


def test_sec_reds_appendix_b_the_same_table_from_the_administrator() -> None:
    views = f"""
views:
  - {{id: all, topic: angina pectoris, for: "user:{ANDREW}", keep: all}}
  - {{id: part, topic: angina pectoris, for: "group:cardiologists", keep: [/illness, /therapy]}}
"""
    town = Town(CLINIC + views)
    john, andrew, mark = (town.come(name) for name in (JOHN, ANDREW, MARK))
    for one in (andrew, mark):
        one.subscribe("angina pectoris")
    john.publish("angina pectoris", REPORT)
    assert (andrew.contents(), mark.contents()) == ([REPORT], [CONDITIONS])
    # both tables: what both show
    john.publish("angina pectoris", REPORT, view=json.dumps({"group:cardiologists": ["/illness", "/person/country"]}))
    shown = {"person": {"country": "Italy"}, "illness": "steady angina"}
    assert (andrew.contents(), mark.contents()) == ([shown], [{"illness": "steady angina"}])


async def test_sec_reds_appendix_b_over_ssl_with_certificates(certs: Path) -> None:
    """Everybody is whom the certificate names; a name nobody knows reads nothing."""
    accept = ", ".join(f"'CN={name}'" for name in (JOHN, ANDREW, MARK))
    text = trusting("degrade", accept, rest=CLINIC.replace(f"    {MALLORY}: {{}}\n", ""))
    async with mixed(certs, text) as node:
        john, andrew, mark, mallory = [await node.come(name) for name in (JOHN, ANDREW, MARK, MALLORY)]
        codes = [await one.subscribe("angina pectoris") for one in (andrew, mark, mallory)]
        assert codes == [0, 0, DENIED]
        says = {"view": json.dumps(VISIBILITY), "require": "trusted"}
        assert await john.publish("angina pectoris", json.dumps(REPORT).encode(), says=says) == 0
        seen = [json.loads(message.payload) for one in (andrew, mark) for message in await one.got()]
        assert seen == [REPORT, CONDITIONS]
