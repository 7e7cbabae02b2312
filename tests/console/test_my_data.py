"""What *My data* says of preferences that have ended, and of readers who are nobody's user."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from console.conftest import Gym
from tidegate.console.my_data import ended, readers


@pytest.mark.parametrize(
    ("expires", "over"),
    [
        (None, False),
        ("2020-01-01T00:00:00Z", True),
        ("2020-01-01T00:00:00", True),
        ((datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="seconds"), False),
    ],
)
def test_what_has_ended(expires: str | None, over: bool) -> None:
    assert ended({"topic": "#", "effect": "deny"} | ({} if expires is None else {"expires": expires})) is over


def test_a_stop_that_has_ended_stops_nobody(gym: Gym) -> None:
    """The page says what the next message finds."""
    with gym.signed_in("mary") as client:
        for when in ("", "\nwhen: has(s.user) && s.user == 'bob'"):
            body = f'topic: "#"\neffect: deny\nexpires: "2020-01-01T00:00:00Z"{when}'
            answer = client.post("/ui/my-data/preferences", data={"body": body})
            assert answer.status_code == 303, answer.text
        told = client.get("/ui/my-data").text
        assert "Sharing is stopped" not in told
        assert "you have stopped it" not in told
        assert told.count("2020-01-01T00:00:00Z") >= 2  # they are listed still
        for id in set(_ids(told)):
            client.post(f"/ui/my-data/preferences/{id}/delete", data={})


def _ids(text: str) -> list[str]:
    mark = "/ui/my-data/preferences/"
    return [part.split("/delete")[0] for part in text.split(mark)[1:] if "/delete" in part[:80]]


def test_readers_of_every_kind() -> None:
    """Nobody who receives is left out: those without a name, clients of no user, links and people of elsewhere."""

    def answer(**more: Any) -> dict[str, Any]:
        nobody = {"users": [], "clients": [], "roles": {}, "count": 0, "anonymous": False, "others": []}
        return {"can": "yes", "when": None, "parts": None, **nobody, **more}

    found = readers(
        [
            ("gym/power", [answer(users=["mary", "alice"], clients=["kiosk"], anonymous=True)]),
            (
                "gym/speed",
                [answer(users=None, clients=None, roles={"coach": 2}, count=2, others=["link:gym->analyzer"])],
            ),
        ],
        "mary",
    )
    assert {(one.kind, one.label): one.sees for one in found.values()} == {
        ("user", "alice"): ["gym/power"],
        ("client", "the client kiosk"): ["gym/power"],
        ("anonymous", "anybody without a name"): ["gym/power"],
        ("role", "coach"): ["gym/speed"],
        ("other", "link:gym->analyzer"): ["gym/speed"],
    }
