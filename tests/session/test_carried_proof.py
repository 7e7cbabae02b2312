"""The proof that a message has brought, as it stands in an envelope."""

from __future__ import annotations

import orjson
import pytest

from tidegate.errors import MalformedPacket
from tidegate.session.carried_proof import CarriedProof


@pytest.mark.parametrize("expiry", [None, 0, 60, (1 << 32) - 1])
def test_there_and_back(expiry: int | None) -> None:
    proof = CarriedProof(text="proof", qos=1, retain=True, expiry=expiry, asked=(("name", "value"),))
    assert CarriedProof.decode(proof.encode().encode()) == proof


@pytest.mark.parametrize(
    "wrong",
    [
        ["proof", 1, True, "60", []],
        ["proof", 1, True, 1.5, []],
        ["proof", 1, True, -1, []],
        ["proof", 1, True, 1 << 32, []],
        ["proof", 3, True, None, []],
        ["proof", 1, 0, None, []],
        [1, 1, True, None, []],
        ["proof", 1, True, None, [["alone"]]],
        ["proof", 1, True, None, {}],
        ["proof", 1, True, None],
        {},
    ],
    ids=str,
)
def test_what_is_no_proof(wrong: object) -> None:
    with pytest.raises(MalformedPacket):
        CarriedProof.decode(orjson.dumps(wrong))
