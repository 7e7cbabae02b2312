"""What it costs a node that each message is proven to come from who holds a capability, without sockets.

No proof counts twice, so every message that is timed has one of its own, signed before. They come in turns of `TURN`:
more proofs than a node verifies in one turn would have to wait for the next. What is compared are the very same
packets, where nobody has a capability, where it was proven when connecting, and where each message has to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench.gate import rulebook
from bench.gate.in_process import NOBODY, World
from bench.gate.steps import REPEATS, Cost, Pace, found_in, spent
from bench.load import frames
from tidegate.policy import Action
from tidegate.policy.capability import Capability, PrivateKey, Proof
from tidegate.policy.capability.capability import Right
from tidegate.policy.capability.proof import PROOF, WRITE, Asked, objection, proof
from tidegate.policy.capability.proof_replay import Shown

TURN = 8
RATE = 5000  # messages to sign for each second of measuring: as many as a node takes at most
FIRST = 10**9  # counters have one length
NEVER = 10.0**11
USER = "p00001"
SUBJECT = f"user:{USER}"
TOPIC = "bench/k01"
KEYS: dict[str, Callable[[], PrivateKey]] = {
    "Ed25519": Ed25519PrivateKey.generate,
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
}
WAYS = {Proof.NONE: "no capability", Proof.CONNECT: "proven when connecting", Proof.PER_MESSAGE: "proven each"}

PLAIN = Asked(qos=(0,), retain=False)  # what the packets ask for


def measure(pace: Pace, before: Callable[[str], None]) -> list[Cost]:
    """By key and by what is demanded: the whole way of a message, and verifying alone."""
    found: list[Cost] = []
    for name, generate in KEYS.items():
        before(f"proof: {name}")
        found += _measured(name, generate(), pace)
    return found


def _measured(name: str, key: PrivateKey, pace: Pace) -> Iterator[Cost]:
    count = max(1, int(pace.seconds * RATE / REPEATS / TURN)) * TURN
    payload = rulebook.content().encode()
    texts = [
        proof(key, USER, SUBJECT, WRITE, TOPIC, payload, FIRST + number, PLAIN)
        for number in range(TURN + count * REPEATS)
    ]
    packets = [frames.publish(TOPIC, payload, qos=0, packet_id=0, version=5, pairs=[(PROOF, text)]) for text in texts]
    for demanded, way in WAYS.items():
        yield Cost(group=f"proof {way}", name=name, nanos=found_in(_ways(key, demanded, packets, count)))
    held = _capability(key, Proof.PER_MESSAGE)
    shown = [Shown((text,)) for text in texts]

    def verify(those: Sequence[Shown]) -> None:
        for one in those:
            if objection(held, one, WRITE, TOPIC, payload, PLAIN):
                raise AssertionError("a proof that is timed was refused")

    alone = [
        spent(partial(verify, shown[first : first + count]), 1) / count for first in range(TURN, len(shown), count)
    ]
    yield Cost(group="proof alone", name=name, nanos=found_in(alone))


def _ways(key: PrivateKey, demanded: Proof, packets: Sequence[bytes], count: int) -> Iterator[float]:
    """Nanoseconds for each message, from its bytes to those for its subscriber; one turn comes before."""
    held = _capability(key, demanded)
    world = World(rulebook.alone(2), version=5, holders=NOBODY if demanded is Proof.NONE else {USER: held})
    reader, writer = world.subscriber("s00001", TOPIC), world.end(USER)

    def play(those: Sequence[bytes]) -> None:
        for first in range(0, len(those), TURN):
            world.site.open()
            for packet in those[first : first + TURN]:
                writer.connection.reader.receive(packet)
            world.site.close()
            world.rest()

    play(packets[:TURN])
    each, rest = divmod(reader.written, TURN)
    if rest or not each:
        raise AssertionError("a message that is timed was not delivered")
    for first in range(TURN, len(packets), count):
        before = reader.written
        yield spent(partial(play, packets[first : first + count]), 1) / count
        if reader.written - before != each * count:
            raise AssertionError("a message that was timed was not delivered")
    if held.ledger.verified != (len(packets) if demanded is Proof.PER_MESSAGE else 0):
        raise AssertionError(f"{held.ledger.verified} proofs were verified")


def _capability(key: PrivateKey, demanded: Proof) -> Capability:
    return Capability(
        id=USER,
        issuer="bench",
        signer="bench",
        subject=SUBJECT,
        user=USER,
        key=key.public_key(),
        rights=(Right(action=frozenset({Action.WRITE}), topic="bench/#"),),
        expires=NEVER,
        proof=demanded,
        proven=True,
    )
