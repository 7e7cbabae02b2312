"""What every page has in common: who may see it, how it looks, and what it says when something goes wrong.

- A page is shown to whoever has signed in with a role that `access` lists; who has not is led to the sign-in.
- Nothing on a page runs but scripts of this origin: no inline script, no inline style. What comes from messages and
  rules is text, escaped by the templates.
- What changes something comes as a form from a page of this origin, and says so (`Origin`, or `Sec-Fetch-Site`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tidegate.admin.roles import Role
from tidegate.api.callers import Caller, Callers
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Route, places

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin", "X-Frame-Options": "DENY"}
FORM: Final = "application/x-www-form-urlencoded"
_LONGEST: Final = 1 << 20  # bytes of a form
NONE: Final = "\u2013"  # what stands where there is nothing to show
SCREENS: Final = (
    ("now", "Now"),
    ("denials", "Denials"),
    ("clients", "Clients"),
    ("topics", "Topics"),
    ("flows", "Flows"),
    ("rules", "Rules"),
    ("monitors", "Monitors"),
    ("quality", "Quality"),
)
OWN_SCREENS: Final = (("my-data", "My data"),)


class Page(Route):
    """A route whose problems are pages too."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        checked = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                if request.method not in ("GET", "HEAD"):
                    _check_origin(request)
                return await checked(request)
            except RequestValidationError as error:
                where = ", ".join(f"{each['at']}: {each['error']}" for each in places(error.errors()))
                return _refused(request, Problem(Kind.INVALID, f"the address is wrong: {where}"))
            except HTTPException as error:
                return _refused(request, Problem(Kind.UNKNOWN, str(error.detail)))
            except Problem as problem:
                return _refused(request, problem)

        return shown


def _check_origin(request: Request) -> None:
    """Problem unless it says that a page of this origin has sent it. Which origin that is, `SessionCookies` knows."""
    if "origin" not in request.headers and request.headers.get("sec-fetch-site") != "same-origin":
        raise Problem(Kind.FORBIDDEN, "it does not say which page has sent this", "do it from a page of this node")
    sessions: Callers = request.app.state.callers
    sessions.sessions.check(request)


def _refused(request: Request, problem: Problem) -> Response:
    if problem.kind is Kind.UNAUTHENTICATED:
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        there = "/ui/login" if request.method != "GET" else f"/ui/login?{urlencode({'next': target})}"
        if "hx-request" in request.headers:
            return Response(status_code=204, headers={"HX-Redirect": "/ui/login"})
        return RedirectResponse(there, 303)
    return render(request, "problem.html", code=problem.kind.status, problem=problem, headers=problem.headers)


def render(
    request: Request,
    template: str,
    /,
    *,
    code: int = 200,
    headers: Mapping[str, str] | None = None,
    **context: Any,
) -> Response:
    who: Caller | None = getattr(request.state, "caller", None)
    role = None if who is None else who.role
    screens = OWN_SCREENS if role is Role.USER else () if role in (None, Role.SOURCE) else SCREENS
    html = (
        _environment()
        .get_template(template)
        .render(
            who=who,
            role=role,
            screens=screens,
            here=request.url.path,
            admin=role is Role.ADMIN,
            running=role in (Role.ADMIN, Role.OPERATOR),
            **context,
        )
    )
    return HTMLResponse(html, code, headers={**_HEADERS, **(headers or {})})


def drawing_of(svg: str) -> Response:
    """A picture that a page shows as an image: it has styles of its own, and runs nothing."""
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(svg, media_type="image/svg+xml", headers=headers)


def to(path: str, **query: str | None) -> Response:
    """Leads to another page, after a form."""
    given = {name: value for name, value in query.items() if value is not None}
    return RedirectResponse(path + (f"?{urlencode(given)}" if given else ""), 303)


async def form(request: Request) -> dict[str, str]:
    """What was filled in; of a field that was given twice the last."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise Problem(Kind.MEDIA, "this is not a form", "send it from its page")
    body = await request.body()
    if len(body) > _LONGEST:
        raise Problem(Kind.TOO_LARGE, "the form is too large", "send less at a time")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=200))
    except (UnicodeDecodeError, ValueError):
        raise Problem(Kind.MALFORMED, "the form cannot be read", "send it from its page") from None


def segment(text: object) -> str:
    """As one part of a path, whatever is in it."""
    return quote(str(text), safe="")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("tidegate.console"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {"segment": segment, "number": number, "ago": ago, "clock": clock, "day": day, "size": size}
    return made


def number(value: float | None) -> str:
    """A number as people read it: `12,345`, `3.4`, `0`."""
    if value is None:
        return NONE
    if value == 0 or abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError


def _moment(value: float | str) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)


def clock(value: float | str | None) -> str:
    return NONE if value is None else f"{_moment(value):%H:%M:%S}"


def day(value: float | str | None) -> str:
    return NONE if value is None else f"{_moment(value):%Y-%m-%d %H:%M}"


def ago(value: float | str | None) -> str:
    """How long ago something was, roughly; or how long it is until then."""
    if value is None:
        return NONE
    seconds = (datetime.now(UTC) - _moment(value)).total_seconds()
    words = duration(abs(seconds))
    return "now" if abs(seconds) < 1 else f"in {words}" if seconds < 0 else f"{words} ago"


def duration(seconds: float) -> str:
    for most, unit, name in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h"), (float("inf"), 86_400, "days")):
        if seconds < most:
            return f"{seconds / unit:.0f} {name}"
    raise AssertionError
