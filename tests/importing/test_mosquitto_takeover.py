"""A `mosquitto.conf` is taken over: the node decides as Mosquitto does, for random clients and topics."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.driving import mosquitto_program
from generated import examples
from harness import free_port
from importing.takeover import (
    Outcome,
    Shape,
    Side,
    Visitor,
    cloud,
    imported,
    lay_out,
    node,
    play,
    real,
    topics,
    visitors,
)
from processes import on_uvloop
from tidegate.cli.certificates import issue, make_ca
from tidegate.errors import ConfigError
from tidegate.importing import mosquitto_takeover

SHAPES = (
    Shape(
        name="debian", users=("homeassistant", "zigbee2mqtt", "old"), topics=("a", "homeassistant/x", "zigbee2mqtt/{u}")
    ),
    Shape(name="docker", users=("mary",), topics=("a/b", "c"), believes=("PORT",)),
    Shape(
        name="home",
        users=("homeassistant", "zigbee2mqtt", "tasmota", "guest"),
        topics=(
            *("zigbee2mqtt/lamp", "zigbee2mqtt/lamp/set", "homeassistant/sensor/a/config", "homeassistant/switch/b"),
            *("tele/plug/STATE", "stat/plug/POWER", "stat/plug/SECRET", "stat/SECRET", "cmnd/plug/POWER", "other"),
        ),
    ),
    Shape(
        name="patterns",
        users=("mary", "bob", "carol"),
        topics=(
            *("public/a", "public/{u}/private", "devices/{u}", "devices/{u}/x", "devices/{c}/x"),
            *("sensors/{c}/state", "sensors/{c}/cmd", "sensors/{u}/state", "other"),
        ),
    ),
    Shape(
        name="listeners",
        users=("mary", "bob", "root"),
        listeners=("INSIDE_PORT", "OUTSIDE_PORT", "SERVICE_PORT"),
        believes=("INSIDE_PORT",),
        topics=("house/a", "house/kitchen/temperature", "house", "bob/{u}/{c}", "other"),
    ),
    Shape(
        name="certificates",
        users=("operator", "pump"),
        listeners=("TLS_PORT", "PORT", "SUBJECT_PORT"),
        certificates={
            "TLS_PORT": ("pump", "valve", "unlisted", ""),
            "SUBJECT_PORT": ("pump", "unlisted", ""),
        },
        topics=(
            *("anybody/a", "plant/pump/x", "plant/valve/x", "plant/commands/pump", "plant/commands/all"),
            *("plant/names/{u}", "plant/subjects/pump", "other"),
        ),
    ),
    Shape(
        name="cloud",
        users=("mary", "sensor"),
        topics=("plant/telemetry/t1", "plant/telemetry/a/b", "plant/commands/c", "plant/alarm", "both/a", "other"),
        crossing=("both/last", "sites/7/both/last"),
    ),
    Shape(
        name="dynsec",
        users=("admin", "mary", "bob", "ted"),
        topics=("gym/notes", "gym/a/speed", "gym/a/heart", "gym/x", "other"),
        refuses_subscriptions=True,
    ),
    Shape(
        name="dashboard",
        users=("writer",),
        listeners=("PORT", "WS_PORT"),
        topics=("dashboard/a", "dashboard/b/c", "other"),
    ),
    Shape(name="odd", users=("mary",), topics=("a", "a/b"), believes=("PORT",)),
)
CLOUD_TOPICS = ("sites/7/telemetry/t1", "sites/7/commands/c", "sites/7/both/b", "sites/7/alarm", "commands/c", "x")
COUNT = 12


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that Mosquitto can read after it has given up root; those of pytest are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def certificates() -> Iterator[Path]:
    mosquitto_program()
    with tempfile.TemporaryDirectory() as name:
        yield _certificates(Path(name))


def _certificates(folder: Path) -> Path:
    folder.chmod(0o755)
    make_ca(folder, "test", 10)
    issue(folder, "broker", ["127.0.0.1", "localhost"], False, 10)
    for name in ("pump", "valve", "unlisted"):
        issue(folder, name, [], True, 10)
    for file in folder.iterdir():
        file.chmod(0o644)
    return folder


@contextlib.contextmanager
def side(shape: Shape, folder: Path, certificates: Path) -> Iterator[Side]:
    """The files of a shape, and the broker behind its bridge if it has one."""
    if shape.crossing is None:
        yield lay_out(shape, folder, certificates, None)
        return
    with cloud(folder.with_name(f"{folder.name}-cloud")) as port:
        yield lay_out(shape, folder, certificates, port)


def cast(shape: Shape, dice: random.Random) -> tuple[list[Visitor], dict[str, list[str]]]:
    """Who comes, and what each publishes."""
    people = visitors(shape, dice, COUNT)
    if shape.crossing is not None:  # two who can tell that the bridge carries
        for user in ("mary", "sensor"):
            password = f"{user}-secret".encode()
            name = "near" if user == "sensor" else "near-reader"
            people.append(
                Visitor(client=name, listener="PORT", user=user, password=password, certificate=None, filters=("#",))
            )
    pool = topics(shape, [person.client for person in people])
    published = {person.client: dice.sample(pool, min(len(pool), 12)) for person in people}
    return people, {**published, "cloud": list(CLOUD_TOPICS)}


def as_granted(shape: Shape, people: list[Visitor], there: Outcome) -> list[Visitor]:
    """With the subscriptions that were granted there, if any can be refused. Here all are: what they cannot deliver is
    held, and a filter is judged by the topics that it can deliver."""
    if not shape.refuses_subscriptions:
        return people
    kept = [(each, tuple(one for one in each.filters if (each.client, one) in there.granted)) for each in people]
    return [replace(person, filters=filters or ("nothing",)) for person, filters in kept]


def compared(shape: Shape, people: list[Visitor], there: Outcome, here: Outcome) -> None:
    """Here is as there, but for what the page lists as different."""
    believed = {person.client for person in people if person.listener in shape.believes and person.user is not None}
    assert here.let_in - believed == there.let_in - believed
    assert here.let_in <= there.let_in
    if not shape.refuses_subscriptions:
        assert {pair for pair in there.granted if pair[0] in here.let_in} == here.granted
    assert here.received <= there.received, sorted(here.received - there.received)[:10]
    both = (here.let_in - believed) | {"cloud"}
    missing = {each for each in there.received - here.received if each[0] in both and each[1] in both}
    assert not missing, sorted(missing)[:10]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@on_uvloop
async def test_the_node_decides_as_mosquitto_did(shape: Shape, place: Path, certificates: Path) -> None:
    for number in range(examples(1, 25)):
        dice = random.Random(f"{shape.name}-{number}")
        people, published = cast(shape, dice)
        with side(shape, place / f"there-{number}", certificates) as theirs, real(theirs):
            there = await play(shape, theirs, people, published, certificates)
        with side(shape, place / f"here-{number}", certificates) as ours:
            async with node(ours, imported(ours)):
                here = await play(shape, ours, as_granted(shape, people, there), published, certificates)
        compared(shape, people, there, here)
        assert there.received


GUARDED = [shape for shape in SHAPES if shape.crossing is None]


@pytest.mark.parametrize("shape", GUARDED, ids=lambda shape: shape.name)
@on_uvloop
async def test_the_guard_decides_as_mosquitto_did(shape: Shape, place: Path, certificates: Path) -> None:
    dice = random.Random(f"guarded {shape.name}")
    people, published = cast(shape, dice)
    theirs = lay_out(shape, place / "there", certificates, None)
    with real(theirs):
        there = await play(shape, theirs, people, published, certificates)
    ours = lay_out(shape, place / "here", certificates, None)
    port = free_port()
    taken = imported(ours, behind=port)
    assert taken.behind is not None
    for name, content in taken.behind.files.items():
        (ours.folder / name).write_text(content)
        (ours.folder / name).chmod(0o644)
    with real(ours, ours.folder / "mosquitto-behind.conf", port):
        async with node(ours, taken):
            here = await play(shape, ours, as_granted(shape, people, there), published, certificates)
    compared(shape, people, there, here)


# -- what is listed --------------------------------------------------------------------------------------------------


class Texts:
    """Files that are only names and contents."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    def text(self, path: str) -> str:
        return self.texts[path]

    def names(self, folder: str) -> list[str]:
        return [path for path in self.texts if path.startswith(f"{folder}/")]

    def absolute(self, path: str) -> str:
        return f"/etc/{path}"


def left(conf: str, **texts: str) -> list[tuple[str, str]]:
    """What has no equivalent: place and line."""
    taken = mosquitto_takeover.read(conf, "m.conf", Texts(**texts), name="x")
    return [(each.place, each.what) for each in taken.imported.left]


def test_every_line_is_taken_over_or_listed() -> None:
    conf = [
        ("listener 1882", False),
        ("bind_interface eth0", True),
        ("listener 1883", False),
        ("max_connections -1", False),
        ("use_username_as_clientid true", True),
        ("http_dir /srv", True),
        ("listener 0 /run/m.sock", True),
        ("listener 8884", False),
        ("psk_hint x", True),
        ("listener 1890", False),
        ("mount_point a/", True),
        ("allow_anonymous true", False),
        ("auto_id_prefix x-", True),
        ("allow_zero_length_clientid false", True),
        ("log_type all", True),
        ("pid_file /run/m.pid", True),
        ("set_tcp_nodelay true", False),
        ("set_tcp_nodelay false", True),
        ("max_inflight_bytes 100", True),
        ("max_inflight_messages 0", False),
        ("persistent_client_expiration 14d", False),
        ("persistence true", True),
        ("persistence_location /x", False),
        ("autosave_interval 60", True),
        ("memory_limit 1000", True),
        ("no_such_option", True),
        ("connection up", False),
        ("address broker.example [::1]:1884", False),
        ("topic a/# both 2", False),
        ('topic "" in 0 home/t cloud/t', False),
        ('topic "" in 0 home/t cloud/u', True),
        ("topic $SYS/# out", True),
        ("notifications true", True),
        ("round_robin false", False),
        ("bridge_alpn x", True),
        ("start_type lazy", True),
        ("remote_password secret", False),
        ("local_password secret", True),
    ]
    found = left("\n".join(line for line, _ in conf))
    listed = {int(place.partition(":")[2]) for place, _ in found}
    wanted = {number for number, (_, is_listed) in enumerate(conf, 1) if is_listed}
    assert listed - {12} == wanted  # 12: names are believed there
    assert all("secret" not in what for _, what in found)


def test_a_listener_of_one_interface_is_not_opened_to_all() -> None:
    conf = "listener 1882\nbind_interface eth0\nlistener 1883 10.0.0.1\nbind_interface eth0\n"
    taken = mosquitto_takeover.read(conf, "m.conf", Texts(), name="x")
    assert [entry.value["url"] for entry in taken.imported.settings["listeners"]] == ["mqtt://10.0.0.1:1883"]
    assert [each.place for each in taken.imported.left] == ["m.conf:2", "m.conf:4"]


def test_tls_and_names_from_certificates() -> None:
    tls = "listener 8883\ncafile ca\ncertfile c\nkeyfile k\nrequire_certificate true\n"
    for extra, user in (("", "none"), ("use_identity_as_username true", "common_name")):
        taken = mosquitto_takeover.read(f"{tls}{extra}\n", "m.conf", Texts(), name="x")
        first, second = [entry.value for entry in taken.imported.settings["listeners"]]
        assert first == {
            "url": "mqtts://0.0.0.0:8883",
            "cert": "/etc/c",
            "key": "/etc/k",
            "client_cert": "required",
            "certificate_user": user,
            "client_ca": "/etc/ca",
        }
        assert second["url"] == "mqtts://[::]:8883"


def test_a_bridge_with_certificates() -> None:
    conf = (
        "listener 1883\nconnection aws iot\naddress x.iot.example:8883\nbridge_cafile root.pem\nbridge_certfile c.pem\n"
        "bridge_keyfile k.pem\nremote_clientid core\ncleansession false\ntopic # out 1 a/ b/\n"
    )
    taken = mosquitto_takeover.read(conf, "m.conf", Texts(), name="x")
    assert taken.imported.settings["node"] == {"name": "x", "cert": "/etc/c.pem", "key": "/etc/k.pem"}
    taken_with_rules = mosquitto_takeover.read(f"{conf}acl_file acl\n", "m.conf", Texts(acl="topic a\n"), name="x")
    assert [policy.subject for policy in taken_with_rules.imported.policies] == ["link:main->aws-iot", "*"]
    [link] = [entry.value for entry in taken.imported.settings["links"]]
    assert link == {
        "from": "main",
        "to": "aws-iot",
        "via": ["mqtts://x.iot.example:8883"],
        "broker": {"version": "3.1.1", "client": "core", "ca": "/etc/root.pem"},
        "share": [{"topic": "#", "direction": "out", "qos": 1, "local_prefix": "a/", "remote_prefix": "b/"}],
    }


@pytest.mark.parametrize(
    "conf", ["listener 1883\nauth_plugin /x.so", "listener 1883\nplugin /mosquitto_go_auth.so\nplugin_opt_x y"]
)
def test_what_an_unknown_plugin_decides_is_denied(conf: str) -> None:
    taken = mosquitto_takeover.read(conf, "m.conf", Texts(), name="x")
    assert not taken.imported.open
    assert taken.imported.policies == ()
    assert taken.imported.left[0].place == "m.conf:2"


@pytest.mark.parametrize(
    ("conf", "told"),
    [
        ("listener x", "m.conf:1: no port; "),
        ("listener 1883\nallow_anonymous maybe", "m.conf:2: `allow_anonymous` is neither true nor false; "),
        ("listener 1883\nmax_keepalive x", "m.conf:2: `max_keepalive` is no number; "),
        ("listener 1883\ntopic a", "m.conf:2: `topic` before any `connection`; "),
        ("listener 1883\nconnection a\ntopic a", "m.conf:2: a bridge without `address`; "),
        ("listener 1883\nconnection a\naddress b\ntopic a around", "m.conf:4: `topic` of a bridge: "),
        ("listener 0 /run/x", "m.conf: no listener of it can be taken over; "),
    ],
)
def test_what_cannot_be_read_tells_its_place(conf: str, told: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        left(conf)
    assert str(wrong.value).startswith(told)
