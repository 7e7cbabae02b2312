"""A hospital: three wards that trust each other, one that stands alone, and a reception that nobody trusts.

    python examples/hospital/run.py

Makes certificates and capabilities, starts five nodes, plays SEC-REDS' figures 2.3 to 2.16 and its appendix B, and
shows what came of it. Exit code 0: all as it should be.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import (  # noqa: E402
    ALL,
    Play,
    Player,
    TurnedAway,
    ask,
    node,
    node_certificates,
    parts,
    perform,
    players,
    tidegate,
    until_linked,
)

from tidegate.cli import tokens  # noqa: E402
from tidegate.cli.tokens import load_key  # noqa: E402
from tidegate.client.capability_holder import CapabilityHolder  # noqa: E402
from tidegate.policy.capability.proof import Asked  # noqa: E402

CERTS, KEYS = HERE / "var/certs", HERE / "var/keys"
PLAIN = {"emergency": 1883, "cardiology": 1884, "oncology": 1885, "reception": 1886}
TLS = {"emergency": 8883, "cardiology": 8884, "radiology": 8885}
WARDS = ("emergency", "cardiology", "radiology")

TOPIC, RULES = "angina/pectoris", "$tidegate/rules"
REPORT = {
    "person": {"name": "John", "surname": "Patient", "born": "4/2/1948", "country": "Italy"},
    "illness": "steady angina",
    "therapy": {"pills a day": "if needed", "pill": "Carvasin 10mg"},
}
TABLE = json.dumps({"group:cardiologists@cardiology": ["/illness", "/therapy"], "user:andrew@cardiology": "all"})
SECURE = {"require": "trusted"}
OPEN = {"id": "AllowAllCardiologists", "topic": TOPIC, "subject": "group:cardiologists@cardiology"}


def main() -> int:
    shutil.rmtree(HERE / "var", ignore_errors=True)  # what waited the last time
    node_certificates(CERTS, *WARDS)
    for person in ("anna", "john", "andrew", "mark", "nina", "carol", "eve"):
        tidegate("cert", "issue", person, "--client", "-f", str(CERTS))
    for name in ("issuer", "john", "mark"):
        tokens.make_keys(KEYS, name, p256=False, force=True)  # `tidegate capability key`
    play = Play()
    with contextlib.ExitStack() as running:
        for name in ("cardiology", "emergency", "oncology", "reception", "radiology"):
            running.enter_context(node(config(name)))
        until_linked(config("cardiology"), "cardiology->emergency", "cardiology->radiology")
        until_linked(config("reception"), "reception->emergency", "reception->oncology")
        groups(play)
        reports(play)
        mobile(play)
        appendix_b(play)
    return play.over()


def config(name: str) -> Path:
    return HERE / f"{name}.yaml"


def staff(name: str, ward: str, says: dict[str, str] | None = None) -> Player:
    """Somebody with a certificate."""
    return Player(name, port=TLS[ward], certs=CERTS, certificate=name, says=says)


def groups(play: Play) -> None:
    play.heading("Groups (figures 2.4 and 2.5)")
    for ward in ("emergency", "oncology", "reception"):
        found = [
            ", ".join(name.partition("@")[0] for name in group) for group in ask(config(ward), "link_list")["groups"]
        ]
        expected = ["cardiology, emergency, radiology"] if ward in WARDS else [ward]
        play.expect(f"{ward} is in one with", " | ".join(found), " | ".join(expected))


def reports(play: Play) -> None:
    """Figures 2.3 and 2.6."""
    anna, nina = staff("anna", "emergency"), staff("nina", "cardiology")
    visitor = Player("visitor", port=PLAIN["emergency"], password="visitor")
    otto, rita = Player("otto", port=PLAIN["oncology"]), Player("rita", port=PLAIN["reception"])
    with players(anna, nina, visitor, otto, rita):
        for reader in (anna, nina, visitor, otto):
            reader.subscribe("info/#")
        for reader in (anna, nina, visitor, otto, rita):
            reader.subscribe("ward/#")
        scene = play.scene(
            "What is for everybody, and what is for a group (figures 2.3 and 2.6)", anna, nina, visitor, otto
        )
        everybody = {"anna": ALL, "nina": ALL, "visitor": ALL, "otto": ALL}
        scene.crosses(anna, "ward/bed-4", {"pulse": 71}, {"anna": ALL, "nina": ALL})
        scene.crosses(rita, "info/menu", {"today": "soup"}, everybody)
        scene.arrived()


def mobile(play: Play) -> None:
    """Figures 2.7 to 2.9."""
    play.heading("A nurse of radiology comes to the emergency ward (figures 2.7 to 2.9)")
    carol, anna = staff("carol", "emergency"), staff("anna", "emergency")
    with players(carol, anna):
        play.expect("carol may connect, and subscribes", carol.subscribe("ward/#") < 0x80, True)
        anna.publish("ward/bed-5", b'{"pulse": 64}', SECURE)
        play.expect("what anna says to trusted people only, she gets", carol.next().payload.decode(), '{"pulse": 64}')
    try:
        staff("eve", "emergency").leave()
        came = "connected"
    except TurnedAway as refused:
        came = f"refused (0x{refused.code:02X})"
    play.expect("eve, whom no ward knows", came, "refused (0x87)")


def appendix_b(play: Play) -> None:
    """John reports in the emergency ward; the cardiologists are in cardiology (figures 2.10 to 2.16)."""
    john_may, mark_may = (
        issued("john", "write:angina/#", proof="per-message"),
        issued("mark", "read:angina/#", "cardiologists"),
    )
    john = staff("john", "emergency", {"capability": john_may.token, "proof": john_may.proof("connect", "john")})
    mark = staff("mark", "cardiology", {"capability": mark_may.token})
    andrew, nina = staff("andrew", "cardiology"), staff("nina", "cardiology")
    with players(john, andrew, mark, nina):
        play.heading("Appendix B: the patient, his physician and all cardiologists")
        for reader in (andrew, mark, nina):
            whole = reader is andrew  # a part of a message is not what John has signed
            code = reader.subscribe(TOPIC, {"require": "trusted,signed" if whole else "trusted"})
            granted = "refused" if code >= 0x80 else "granted, and held" if reader.held else "granted"
            play.expect(f"{reader.name} subscribes", granted, "granted" if whole else "granted, and held")

        payload = json.dumps(REPORT).encode()
        john.publish(TOPIC, payload, proven(john_may, payload), retain=False)
        play.expect("his physician gets", parts(andrew.next(), payload), ALL)
        rules = json.dumps([OPEN]).encode()
        says = {"proof": john_may.proof("write", RULES, rules, Asked(qos=(1,), retain=False))}
        play.expect("john lets all cardiologists in, at his own node", john.publish(RULES, rules, says), 0)
        payload = json.dumps({**REPORT, "illness": "angina pectoris"}).encode()
        john.publish(TOPIC, payload, proven(john_may, payload))
        play.expect("his physician gets", parts(andrew.next(), payload), ALL)
        got = mark.next()
        play.expect("a cardiologist gets", parts(got, payload), "illness, therapy")
        play.expect("and of proofs and tables", [name for name, _ in got.properties if name != "floor"], [])
        play.expect("a nurse gets", [parts(each, payload) for each in nina.received()], [])
        play.expect("without a proof john may say", john.publish(TOPIC, payload, {"view": TABLE}), 0x87)


def proven(holder: CapabilityHolder, payload: bytes) -> dict[str, str]:
    """User properties of John's reports: the table of visibility, the demand, and the proof of all of it."""
    said = {"view": TABLE, **SECURE}
    asked = Asked(qos=(1,), retain=False, properties=tuple(said.items()))
    return {**said, "proof": holder.proof("write", TOPIC, payload, asked)}


def issued(name: str, right: str, *groups: str, proof: str = "none") -> CapabilityHolder:
    """What the ministry signs for somebody."""
    _, token = tokens.issue(  # `tidegate capability issue`
        issuer="ministry",
        key=KEYS / "issuer.key",
        subject=f"user:{name}",
        confirm=KEYS / f"{name}.pub",
        rights=[right, "write:$tidegate/rules"],
        groups=groups,
        attributes=[],
        valid="5m",
        proof=proof,
        id=name,
    )
    return CapabilityHolder(token, load_key(KEYS / f"{name}.key"))


if __name__ == "__main__":
    perform(main)
