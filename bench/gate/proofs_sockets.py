"""What it costs a node that each message is proven, over sockets: CPU of its process per message.

`proofs` measures the same without sockets. Here everything is the real thing: tokens of an issuer whose key the node
has read from a file, shown in CONNECT with a proof, and counters that are kept. Every message has a proof of its own,
signed before; the same packets go to a node where nobody has a capability and nobody looks at them.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench.gate import rulebook
from bench.gate.levels import greet
from bench.gate.proofs_in_process import FIRST, KEYS, TOPIC, WAYS
from bench.gate.steps import Cost
from bench.harness import procfs
from bench.harness.figures import spread
from bench.harness.rounds import Plan
from bench.harness.servers import BenchError, Peer, Server, Setting, pinned, running
from bench.load import frames, sessions
from bench.load.job import LoadError
from tidegate.policy.capability import PROPERTY, PrivateKey, Proof, sign
from tidegate.policy.capability.jwk import jwk_of
from tidegate.policy.capability.proof import CONNECT, NOTHING_ASKED, PROOF, WRITE, Asked, proof

PUBLISHERS = 10
WINDOW = 5 * PUBLISHERS
RATE = 3000  # messages to sign for each second of measuring
YEAR = 365 * 86400.0
DEMANDS = (Proof.NONE, Proof.PER_MESSAGE)
ISSUER = "bench"


def measure(plan: Plan, before: Callable[[str], None]) -> tuple[list[Cost], list[str]]:
    """By key and by what is demanded, and in words what failed."""
    nanos: dict[tuple[Proof, str], list[float]] = {(demanded, name): [] for name in KEYS for demanded in DEMANDS}
    failures: list[str] = []
    for number in range(plan.rounds):
        for (demanded, name), values in nanos.items():
            before(f"proof over sockets, round {number + 1} of {plan.rounds}: {name}, {WAYS[demanded]}")
            try:
                values.append(_measured(KEYS[name](), demanded, plan))
            except (BenchError, LoadError) as error:
                failures.append(f"proof/{name}, {WAYS[demanded]}, round {number + 1}: {error}")
    costs = [
        Cost(group=f"proof sockets {WAYS[demanded]}", name=name, nanos=made)
        for (demanded, name), values in nanos.items()
        if (made := spread(values)) is not None
    ]
    return costs, failures


def _measured(key: PrivateKey, demanded: Proof, plan: Plan) -> float:
    """Nanoseconds of CPU of a fresh node for each message."""
    issuer = Ed25519PrivateKey.generate()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        file = Path(folder) / "issuer.pem"
        file.write_bytes(
            issuer.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        rules = rulebook.OPEN
        if demanded is not Proof.NONE:
            rules += f'\ncapabilities: {{issuers: [{{name: {ISSUER}, keys: "{file}"}}], proof: {demanded.value}}}'
        setting = Setting(rules=rules, durable=True)
        with running(Peer.TIDEGATE, setting, core=plan.server_core) as server, pinned(plan.load_core):
            return _load(server, None if demanded is Proof.NONE else issuer, key, plan)


def _load(server: Server, issuer: PrivateKey | None, key: PrivateKey, plan: Plan) -> float:
    count = max(1, int(plan.duration * RATE / WINDOW)) * WINDOW
    payload = rulebook.content().encode()
    names = [f"p{number:05d}" for number in range(PUBLISHERS)]

    def proven(name: str, action: str, topic: str, content: bytes, counter: int) -> tuple[str, str]:
        asked = Asked(qos=(0,), retain=False) if action == WRITE else NOTHING_ASKED
        return PROOF, proof(key, name, f"client:{name}", action, topic, content, FIRST + counter, asked)

    def packet(number: int) -> bytes:
        name = names[number % PUBLISHERS]
        pair = proven(name, WRITE, TOPIC, payload, number + 1)
        return frames.publish(TOPIC, payload, qos=0, packet_id=0, version=5, pairs=[pair])

    packets = [packet(number) for number in range(WINDOW + count)]
    with ExitStack() as stack:

        def session(name: str, pairs: frames.Pairs = ()) -> socket.socket:
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=sessions.PATIENCE))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            greet(sock, name, 5, pairs)
            return sock

        reader = session("s00000")
        sessions.subscribe(reader, [TOPIC], qos=0, version=5)
        writers = []
        for name in names:
            pairs = (
                [] if issuer is None else [(PROPERTY, _token(issuer, name, key)), proven(name, CONNECT, name, b"", 0)]
            )
            writers.append(session(name, pairs))

        def play(those: Sequence[bytes]) -> None:
            for first in range(0, len(those), WINDOW):
                for number, data in enumerate(those[first : first + WINDOW]):
                    writers[number % PUBLISHERS].sendall(data)
                for _ in range(WINDOW):
                    if sessions.read_packet(reader)[-len(payload) :] != payload:
                        raise LoadError("a subscriber received something else")

        play(packets[:WINDOW])
        spent = procfs.cpu_seconds(server.process.pid)
        play(packets[WINDOW:])
        return (procfs.cpu_seconds(server.process.pid) - spent) / count * 1e9


def _token(issuer: PrivateKey, name: str, key: PrivateKey) -> str:
    claims = {
        "iss": ISSUER,
        "sub": f"client:{name}",
        "jti": name,
        "exp": time.time() + YEAR,
        "cnf": {"jwk": jwk_of(key.public_key())},
        "rights": [{"action": "write", "topic": "bench/#"}],
        "proof": Proof.PER_MESSAGE.value,
    }
    return sign(claims, issuer)
