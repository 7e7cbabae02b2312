"""Reading requests and writing answers: JSON bodies, ids in paths, versions in headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final, TypedDict, TypeVar, cast
from urllib.parse import unquote_to_bytes

import orjson
from fastapi import Depends, FastAPI, Path, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, StringConstraints, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from tidegate.admin.roles import Role
from tidegate.api.callers import Caller, Callers
from tidegate.api.channel import Channel
from tidegate.api.limits import CHANGES, OWN_CHANGES, Turns
from tidegate.api.problems import Kind, Problem, failed

JSON: Final = "application/json"
LONGEST_ID: Final = 1024
Shape = TypeVar("Shape", bound=BaseModel)
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
_MANY: Final = frozenset(("kind",))
"""Parameters that may be repeated."""
_TAG: Final = re.compile(r'(?:W/)?"(\d{1,18})"')


def _decoded(written: object) -> object:
    """As it was meant: `%2F` is part of an id and no separator."""
    if not isinstance(written, str):
        return written
    try:
        return unquote_to_bytes(written).decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8; encode it with percent signs") from None


Id = Annotated[
    str,
    BeforeValidator(_decoded),
    StringConstraints(min_length=1, max_length=LONGEST_ID, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$"),
    Path(description="Its id; a `/` in it is written `%2F`."),
]
DryRun = Annotated[
    bool, Query(description="Try it only: check it, and tell what would be decided differently. Nothing is changed.")
]
Why = Annotated[
    str, Query(max_length=500, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$", description="Why, for the history and the audit.")
]


def _check_query(request: Request, known: frozenset[str]) -> None:
    """A `dryrun` or a second `dry_run` that is passed over would change what was only to be tried."""
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise Problem(Kind.INVALID, f"there is no parameter `{name[:100]}` here", f"those there are: {there}")
        if name not in _MANY and names.count(name) > 1:
            raise Problem(Kind.INVALID, f"`{name}` is there more than once", "say it once")


def address(request: Request) -> str:
    return request.client.host if request.client else ""


def channel(request: Request) -> Channel:
    return cast(Channel, request.app.state.channel)


class Route(APIRoute):
    """A route that nobody passes without the one check of who may (see `access`), before anything else is looked at."""

    checked: Handler
    tolerant = False
    """Whether others may add parameters to its address."""

    def handler(self) -> tuple[Handler, Iterable[str]]:
        """The function that answers, and the query parameters that it accepts."""
        dependants = (self.dependant, *self.dependant.dependencies)
        return super().get_route_handler(), (each.alias for part in dependants for each in part.query_params)

    def get_route_handler(self) -> Handler:
        handle, parameters = self.handler()
        known = frozenset(parameters)

        async def checked(request: Request) -> Response:
            callers: Callers = request.app.state.callers
            try:
                request.state.caller = await callers.authorise(request, self.path)
                if request.scope["query_string"] and not self.tolerant:
                    _check_query(request, known)
                return await handle(request)
            except (Problem, HTTPException, RequestValidationError, ClientDisconnect):
                raise
            except Exception as error:
                raise failed(request.method) from error

        self.checked = checked
        return checked


class Direct(Route):
    """A route whose function reads the request itself: for what is asked thousands of times a second.

    The query parameters it accepts are those of its OpenAPI text. `DirectRouter` calls it without the framework.
    """

    def handler(self) -> tuple[Handler, Iterable[str]]:
        parameters = (self.openapi_extra or {}).get("parameters", ())
        return self.endpoint, (each["name"] for each in parameters if each["in"] == "query")


class DirectRouter:
    """Answers direct routes without asking the framework, which takes longer than all the rest of such a request.

    Of their paths only the last part may vary. What is raised is a Problem, and the shell around it tells that.
    """

    def __init__(self, app: FastAPI, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._fixed: dict[tuple[str, str], Direct] = {}
        self._open: dict[tuple[str, str], tuple[Direct, str]] = {}
        for route in routes:
            assert isinstance(route, Direct)
            above, _, last = route.path.rpartition("/")
            for method in route.methods or ():
                if last.startswith("{"):
                    self._open[method, above] = route, last.strip("{}")
                else:
                    self._fixed[method, route.path] = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, parameters = self._find(scope) if scope["type"] == "http" else (None, {})
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["app"], scope["route"], scope["path_params"] = self._app, route, parameters
        answered = await route.checked(Request(scope, receive))
        await answered(scope, receive, send)

    def _find(self, scope: Scope) -> tuple[Direct | None, dict[str, str]]:
        method, path = scope["method"], scope["path"]
        fixed = self._fixed.get((method, path))
        if fixed is not None:
            return fixed, {}
        above, _, last = path.rpartition("/")
        route, name = self._open.get((method, above), (None, ""))
        return (route, {name: last}) if last else (None, {})


def caller(request: Request) -> Caller:
    """Whoever passed the check."""
    who: Caller | None = request.state.caller
    assert who is not None
    return who


def user(request: Request) -> str:
    """Whom the caller acts for."""
    name = caller(request).user
    if name is None:
        raise Problem(Kind.FORBIDDEN, "this token is for no user", "have one made for a user")
    return name


class Signed(TypedDict):
    """What every command that changes something says: who asks for it, why, and whether it is only tried.

    Who acts for themselves only is not told what would be decided differently: that names readers, and a condition
    tells of their attributes.
    """

    by: str
    why: str
    dry_run: bool
    compared: bool


async def _signed(request: Request, dry_run: DryRun = False, why: Why = "") -> Signed:
    return signed(request, dry_run=dry_run, why=why)


def signed(request: Request, *, dry_run: bool, why: str) -> Signed:
    who = caller(request)
    return {"by": who.by, "why": why, "dry_run": dry_run, "compared": who.role not in (Role.USER, Role.SOURCE)}


Signature = Annotated[Signed, Depends(_signed)]


def turn(request: Request) -> AbstractAsyncContextManager[None]:
    """Around a change: it waits until the node can be asked for it."""
    turns: Turns = request.app.state.turns
    who: Caller | None = request.state.caller
    if who is None:
        return turns.turn("nobody", CHANGES)
    own = who.role in (Role.USER, Role.SOURCE)
    urgent = who.role is Role.ADMIN
    return turns.turn(f"user:{who.user}" if own else who.by, OWN_CHANGES if own else CHANGES, urgent=urgent)


async def json_object(request: Request) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise Problem(Kind.MEDIA, f"the body is `{kind[:100] or 'of no type'}`", f"send `Content-Type: {JSON}`")
    body = await request.body()
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Problem(Kind.MALFORMED, f"the body is not JSON: {error}", "send one JSON object in UTF-8") from None
    if not isinstance(value, dict):
        raise Problem(Kind.INVALID, "the body is not a JSON object", "send `{…}`")
    return value


async def read(request: Request, shape: type[Shape]) -> Shape:
    """The body, which is a JSON object of that shape. A Problem does not repeat what was sent."""
    try:
        return shape.model_validate(await json_object(request))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        text = "the body is not what is needed here"
        raise Problem(Kind.INVALID, text, "mend what `errors` names", errors=places(errors)) from None


def places(errors: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [{"at": ".".join(map(str, each["loc"])), "error": each["msg"]} for each in errors]


def answer(value: Any, status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value, default=str), status, headers=dict(headers or {}), media_type=JSON)


def etag(version: int | None) -> dict[str, str]:
    """The header that names a version; what stands in the file has none."""
    return {} if version is None else {"ETag": f'"{version}"'}


def if_match(request: Request) -> int | str | None:
    """The version that the caller saw; `*`: any; None: it did not say."""
    written = request.headers.get("if-match")
    if written is None:
        return None
    written = written.strip()
    if written == "*":
        return "*"
    tag = _TAG.fullmatch(written)
    if tag is None:
        raise Problem(Kind.MALFORMED, "the header If-Match is no version", 'send the ETag of an answer, such as `"17"`')
    return int(tag[1])


def if_none_match(request: Request) -> bool:
    written = request.headers.get("if-none-match")
    if written is None:
        return False
    if written.strip() != "*":
        raise Problem(Kind.MALFORMED, "only `If-None-Match: *` is understood", "send that, or leave it out")
    return True
