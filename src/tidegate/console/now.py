"""*Now*: what the node does at this moment, what it refuses and why, how its links are, and what is about to expire."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.admin.control_commands import ListTokens
from tidegate.admin.roles import Role
from tidegate.api.requests import caller, channel
from tidegate.console import chart
from tidegate.console.numbers import numbers_of
from tidegate.console.page import Page, render

SOON: Final = 14 * 86_400.0  # seconds in which something expires that is worth a line
TOP: Final = 8

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/now")
async def now(request: Request) -> Response:
    numbers = await numbers_of(request)
    hour, status = numbers.hour(), numbers.status
    times = [at for at, _ in hour]
    names = ("received", "sent", "denied")
    denials = sorted(status["denials"], key=lambda each: -each[2])
    watch = request.app.state.watch
    return render(
        request,
        "now.html",
        rates=numbers.rates(),
        status=status,
        picture=chart.lines(
            times, [(name, [rates[name] for _, rates in hour]) for name in names], "Messages a second in the last hour"
        ),
        core=chart.lines(times, [("cpu", [rates["cpu"] * 100 for _, rates in hour])], "Load of the core, in percent"),
        steps=numbers.denied(),
        rules=denials[:TOP],
        latency=_quantiles(status["latency"]),
        expiring=await _expiring(request),
        pipeline=None if watch is None else await watch.look(),
    )


def _quantiles(latency: Mapping[str, Any]) -> dict[str, float] | None:
    """Upper bounds, in milliseconds, of how long half and 99 of 100 messages were in the node."""
    total = sum(latency["counts"])
    if not total:
        return None
    found = {}
    for name, share in (("median", 0.5), ("p99", 0.99)):
        count = 0
        for bound, many in zip((*latency["seconds"], float("inf")), latency["counts"], strict=True):
            count += many
            if count >= share * total:
                found[name] = bound * 1000
                break
    return found


async def _expiring(request: Request) -> list[dict[str, Any]]:
    """Certificates and tokens that will not count for much longer, or do not any more."""
    now = time.time()
    found = []
    for each in (await channel(request).ask("certificate_list"))["certificates"]:
        if each["trouble"] is not None:
            found.append({"what": each["file"], "whose": each["trouble"], "at": now, "late": True})
        elif each["until"] < now + SOON:
            used = f"{each['subject']}, {', '.join(each['used'][:3])}"
            found.append({"what": "certificate", "whose": used, "at": each["until"], "late": each["until"] <= now})
    if caller(request).role is Role.ADMIN:  # only administrators see tokens
        found += [
            {
                "what": f"token {each['id']}",
                "whose": each.get("user") or each["role"],
                "at": each["expires"],
                "late": False,
            }
            for each in (await channel(request).ask(ListTokens()))["tokens"]
            if each.get("expires") is not None and now < each["expires"] < now + SOON and not each.get("revoked_at")
        ]
    return sorted(found, key=lambda each: float(each["at"]))
