"""The bogus subscriber: it has a name, a token and proofs of somebody else, and no key.

    python examples/bogus-subscriber/run.py

Makes keys and capabilities, starts the node, plays SEC-REDS' figure 2.10, and shows what came of it and what the audit
says. Exit code 0: all as it should be.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import ALL, Play, Player, TurnedAway, denials, node, perform, players  # noqa: E402

from tidegate.cli import tokens  # noqa: E402
from tidegate.cli.tokens import load_key  # noqa: E402
from tidegate.client.capability_holder import CapabilityHolder  # noqa: E402
from tidegate.policy.capability.jwk import decoded, encoded  # noqa: E402
from tidegate.policy.capability.proof import Asked  # noqa: E402

PORT = 1883
CONFIG = HERE / "tidegate.yaml"
KEYS = HERE / "var/keys"
TOPIC = "news/p"
RIGHTS = {"P": "write:news/#", "A": "read:news/#", "B": "read:news/#"}  # the policy does not let B, all the same
REFUSED = "refused (0x87)"

Properties = dict[str, str]


def main() -> int:
    for name in ("issuer", "forger", *RIGHTS):
        tokens.make_keys(KEYS, name, p256=False, force=True)  # `tidegate capability key`
    p, a, b = [issued(name) for name in RIGHTS]
    with node(CONFIG):
        play = Play()
        play.heading("Everybody as themselves")
        as_a, asks = connecting(a, "A"), subscribing(a)
        reader, publisher, bogus = comes(as_a, "A"), comes(connecting(p, "P"), "P"), comes(connecting(b, "B"), "B")
        with players(reader, publisher, bogus):
            play.expect("A subscribes to what P publishes", subscribe(reader, asks), "granted")
            play.expect("B does, and the policy says: only A", subscribe(bogus, subscribing(b)), REFUSED)

            play.heading("B says that it is A")
            attempts: list[tuple[str, Properties]] = [
                ("by name alone", {}),
                ("with a capability that B wrote itself", connecting(issued("B", subject="A", by="forger"), "A")),
                ("with B's capability, and A's name in it", connecting(renamed(b), "A")),
                ("with A's capability, overheard", {"capability": a.token}),
                ("the same, proven by B's key", connecting(CapabilityHolder(a.token, load_key(KEYS / "B.key")), "A")),
                ("with A's whole CONNECT, overheard", as_a),
            ]
            for how, says in attempts:
                play.expect(how, attempt(says), REFUSED)

            play.heading("On connections that are there already")
            play.expect("B subscribes with the proof of A", subscribe(bogus, asks), REFUSED)
            play.expect("A's SUBSCRIBE a second time", subscribe(reader, asks), REFUSED)
            scene = play.scene("Messages in the name of P", reader, bogus)
            proven = {"proof": p.proof("write", TOPIC, b"scoop", Asked(qos=(1,), retain=False))}
            other = {"proof": p.proof("write", TOPIC, b"scoop", Asked(qos=(1,), retain=False))}
            scene.publishes(publisher, TOPIC, "scoop", {"A": ALL}, says=proven, called="its news")
            scene.publishes(publisher, TOPIC, "scoop", {}, says=proven, refused=True, called="the same again")
            scene.publishes(publisher, "news/p/2", "hoax", {}, says=other, refused=True, called="the proof of others")
            scene.publishes(publisher, "news/p/3", "hoax", {}, refused=True, called="no proof")
            scene.show()

        play.heading("What the audit says")
        reasons = {(row["stage"], row["rule"], row["detail"] or "no policy allows it"): None for row in denials(CONFIG)}
        for stage, rule, detail in reasons:
            print(f"  {stage:8} {rule:13} {detail.removeprefix('the capability is not accepted: ')}")
        return play.over()


# -- who has what --------------------------------------------------------------------------------------------------


def issued(name: str, *, subject: str | None = None, by: str = "issuer") -> CapabilityHolder:
    """A capability for somebody's key, with the key."""
    _, token = tokens.issue(  # `tidegate capability issue`
        issuer="office",
        key=KEYS / f"{by}.key",
        subject=f"user:{subject or name}",
        confirm=KEYS / f"{name}.pub",
        rights=[RIGHTS[name]],
        attributes=[],
        valid="5m",
        proof="none",  # the node demands it of everybody
        id=subject or name,
    )
    return CapabilityHolder(token, load_key(KEYS / f"{name}.key"))


def renamed(b: CapabilityHolder) -> CapabilityHolder:
    """B's capability with another subject, under the signature that was there."""
    header, claims, signature = b.token.split(".")
    text = (decoded(claims) or b"").replace(b'"user:B"', b'"user:A"')
    return CapabilityHolder(f"{header}.{encoded(text)}.{signature}", load_key(KEYS / "B.key"))


# -- what they say -------------------------------------------------------------------------------------------------


def connecting(holder: CapabilityHolder, client: str) -> Properties:
    """User properties of a CONNECT."""
    return {"capability": holder.token, "proof": holder.proof("connect", client)}


def subscribing(holder: CapabilityHolder) -> Properties:
    """User properties of a SUBSCRIBE."""
    return {"proof": holder.proof("read", TOPIC, asked=Asked(qos=(1,)))}


# -- what they do --------------------------------------------------------------------------------------------------


def comes(says: Properties, name: str) -> Player:
    return Player(name, port=PORT, says=says)


def attempt(says: Properties) -> str:
    """B connects under A's client identifier."""
    try:
        comes(says, "A").leave()
    except TurnedAway as refused:
        return f"refused (0x{refused.code:02X})"
    return "connected"


def subscribe(who: Player, says: Properties) -> str:
    code = who.subscribe(TOPIC, says)
    return "granted" if code < 0x80 else f"refused (0x{code:02X})"


if __name__ == "__main__":
    perform(main)
