"""What sources do: register, and send data (AUPS, section 5).

Records are checked here, so that the node does not spend its time on what is wrong; it decides about them, keeps them,
and then they are acknowledged. Sealed bodies are opened by the node: no key of a source is in this process, but for the
moment in which it is told to the source.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, Literal, cast

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from tidegate.admin.control_commands import AddData, OpenSealed, PutData, RegisterSource, RemoveSource
from tidegate.admin.ingest import MARK
from tidegate.api.callers import Caller
from tidegate.api.documents import After, Limit, ask, changed, hashed, iso, page
from tidegate.api.keys import CAPABILITY
from tidegate.api.limits import Rates
from tidegate.api.problems import Kind, Problem
from tidegate.api.records import JSON, NDJSON, records
from tidegate.api.requests import DryRun, Id, Route, Signature, Why, address, answer, channel, read
from tidegate.api.schemas import BODY, CHANGE, Changed, Page, problems, returns
from tidegate.errors import KeysError
from tidegate.keys.source import SCHEME, SealedBody

SEALED: Final = "application/tidegate+sealed"
PIECE: Final = 192 << 10  # bytes of records that the node is told at a time
LARGE: Final = 64 << 10  # bytes of a body that is not taken apart on the loop
PLACES: Final = 4  # requests with data that are with the node at a time; others have things to ask, too
PATIENCE: Final = 30.0  # seconds for the node to write data
REGISTRATION: Final = ("POST", "/registration")
DATA: Final = ("POST", "/data")
_parsing = ThreadPoolExecutor(1, thread_name_prefix="parsing")

router = APIRouter(route_class=Route, tags=["sources"])


@dataclass(frozen=True, slots=True)
class SourceSettings:
    rates: Rates
    registration_open: bool = False
    unregistered: bool = False
    max_records: int = 10_000
    max_expanded: int = 8 << 20
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PLACES))

    @property
    def free(self) -> frozenset[tuple[str, str]]:
        """Routes that need no token. Whoever sends one all the same must have a good one."""
        routes = {REGISTRATION: self.registration_open, DATA: self.unregistered}
        return frozenset(route for route, said in routes.items() if said)


_Words = Annotated[
    str,
    Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f-\x9f/+#$][^\x00-\x1f\x7f-\x9f/+#]*$"),
]


class NewSource(BaseModel):
    """A source that registers."""

    model_config = ConfigDict(extra="forbid", strict=True)

    NodeId: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$", description="Its name, which is its user name over MQTT."
    )
    NodeType: _Words = Field(description="What it is: `sensor`.")
    CommunicationMode: _Words = Field(description="How its data comes: `discrete`, `streaming`.")
    EncryptionScheme: Literal["AES-256-GCM"] | None = Field(
        None, description="With it everything that the source sends here is sealed."
    )
    Owner: str | None = Field(
        None, min_length=1, max_length=1000, description="The user whose it is; only an administrator says so."
    )


class SourceCredentials(BaseModel):
    """What a source logs in with, shown this once."""

    NodeId: str
    token: str | None = Field(None, description="For `Authorization: Bearer`; null: `trouble` says why there is none.")
    expires: str | None = Field(None, description="When the token does. Register again before.")
    username: str = Field(description="Over MQTT.")
    password: str = Field(description="Over MQTT.")
    audience: str = Field(description="The node that sealed bodies are for.")
    EncryptionScheme: str | None = None
    key: str | None = Field(None, description="With an encryption scheme: the key, 32 bytes as base64.")
    trouble: str | None = Field(None, description="What of it could not be done; the rest stands.")


class Range(BaseModel):
    """Ids that follow each other."""

    first: str
    last: str


class Taken(BaseModel):
    """Records that are safe."""

    accepted: int
    ids: Range


_SENT: Final = {
    "parameters": [
        {
            "name": CAPABILITY,
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": "Your capability, over TLS only. It bounds what is published.",
        }
    ],
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]}},
            NDJSON: {"schema": {"type": "string", "description": "One JSON object on each line."}},
            SEALED: {
                "schema": {
                    "type": "object",
                    "required": ["NodeId", "time", "counter", "data"],
                    "properties": {
                        "NodeId": {"type": "string"},
                        "time": {"type": "integer", "description": "Now, in milliseconds since 1970."},
                        "counter": {"type": "integer", "description": "Greater than all before it under this key."},
                        "data": {"type": "string", "description": "Base64 of nonce, ciphertext and tag."},
                        "content": {"type": "string", "enum": [JSON, NDJSON]},
                        "encoding": {"type": "string", "enum": ["gzip"]},
                    },
                    "additionalProperties": False,
                }
            },
        },
    },
}


@router.post(
    "/registration",
    summary="Register a source",
    status_code=201,
    responses=returns(Changed, 404, 507, *BODY, *CHANGE, made=SourceCredentials),
    openapi_extra={
        "requestBody": {"required": True, "content": {JSON: {"schema": NewSource.model_json_schema()}}},
    },
)
async def register(request: Request, dry_run: DryRun = False, why: Why = "") -> Response:
    """A source that registers again, with its token, gets new credentials; those before do not count then."""
    who = _anybody(request)
    if who is None:
        _settings(request).rates.registration(address(request))
    source = await read(request, NewSource)
    password = secrets.token_urlsafe(24)
    command = RegisterSource(
        id=source.NodeId,
        type=source.NodeType,
        mode=source.CommunicationMode,
        scheme=source.EncryptionScheme,
        owner=source.Owner,
        password=await hashed(password),
        role=None if who is None else who.role,
        user=None if who is None else who.user,
        by=f"address:{address(request)}" if who is None else who.by,
        why=why,
        dry_run=dry_run,
    )
    made = await ask(request, command)
    if dry_run:
        return answer(changed(source.NodeId, made, dry_run=True))
    token = made["token"]
    credentials = SourceCredentials(
        NodeId=source.NodeId,
        token=None if token is None else token["token"],
        expires=None if token is None else iso(token["expires"]),
        username=source.NodeId,
        password=password,
        audience=made["audience"],
        EncryptionScheme=source.EncryptionScheme,
        key=made["key"],
        trouble=made.get("trouble"),
    )
    return answer(credentials.model_dump(), 201)


@router.post(
    "/data",
    summary="Send data",
    description=f"Answered when it is safe. `Content-Encoding: gzip` is understood. A source with an encryption scheme "
    f"({SCHEME}) sends `{SEALED}` only, and seals what was not acknowledged again under the next counter.",
    status_code=202,
    responses={202: {"model": Taken}, **problems(*BODY, *CHANGE)},
    openapi_extra=_SENT,
)
async def send(request: Request) -> Response:
    who = _anybody(request)
    if who is not None and who.user is None:
        raise Problem(Kind.FORBIDDEN, "this token is of no source", "register a source, and use its token")
    content, encoding = _header(request, "content-type"), _header(request, "content-encoding")
    body = await request.body()
    async with _settings(request).places:
        sealed: dict[str, Any] = {}
        if content == SEALED:
            body, content, encoding, sealed = await _opened(request, who, body, encoding)
        found = await _taken_apart(request, body, content, encoding)
        taken = await _handed_over(request, found, user=None if who is None else who.user, **sealed)
    return answer(taken, 202)


@router.get("/sources", summary="List sources", responses=returns(Page))
async def list_all(request: Request, limit: Limit = 100, after: After = None) -> Response:
    return answer(await page(request, "source", limit, after))


@router.delete("/sources/{id}", summary="Remove a source", responses=returns(Changed, 404, *CHANGE))
async def remove(request: Request, id: Id, signed: Signature) -> Response:
    """Its user, its tokens and its key go with it."""
    done = await ask(request, RemoveSource(id=id, **signed))
    return answer(changed(id, done, dry_run=signed["dry_run"]))


# -- data --------------------------------------------------------------------------------------------------------------


async def _opened(
    request: Request, who: Caller | None, body: bytes, encoding: str
) -> tuple[bytes, str, str, dict[str, Any]]:
    """What is inside a sealed body, what that is, and what it was sealed with."""
    if who is None:
        raise Problem(Kind.FORBIDDEN, "only a registered source can seal what it sends", "register, and send the token")
    if encoding not in ("", "identity"):
        raise Problem(Kind.MEDIA, "a sealed body is not compressed", "compress what is inside, and say so in it")
    try:
        sealed = SealedBody.parse(body)
    except KeysError as error:
        raise Problem(Kind.MALFORMED, str(error), f"send {SEALED} as /docs says") from None
    assert who.user is not None  # `send` has refused others
    opened = await channel(request).ask(OpenSealed(user=who.user, sealed=body.decode()))
    key = {"key": opened["key"], "counter": sealed.counter}
    return b64decode(opened["body"]), sealed.content, sealed.encoding, key


async def _taken_apart(request: Request, body: bytes, content: str, encoding: str) -> list[bytes]:
    there = _settings(request)
    take = partial(
        records, body, content=content, encoding=encoding, most=there.max_records, largest=there.max_expanded
    )
    if len(body) < LARGE and not encoding:
        return take()
    return await asyncio.get_running_loop().run_in_executor(_parsing, take)


async def _handed_over(request: Request, found: list[bytes], **sealed: Any) -> Any:
    data = MARK.join(found)
    *parts, last = (b64encode(data[start : start + PIECE]).decode() for start in range(0, len(data), PIECE))
    upload = secrets.token_hex(16)
    for part in parts:
        await channel(request).ask(AddData(upload=upload, part=part))
    level = request.app.state.level
    command = PutData(
        address=address(request),
        level=level,
        part=last,
        upload=upload if parts else None,
        capability=request.headers.get(CAPABILITY),
        **sealed,
    )
    return await channel(request).ask(command, alters=True, patience=PATIENCE)


def _anybody(request: Request) -> Caller | None:
    """Whoever passed the check; None: somebody without a token, where none is needed."""
    return cast(Caller | None, request.state.caller)


def _settings(request: Request) -> SourceSettings:
    return cast(SourceSettings, request.app.state.source_settings)


def _header(request: Request, name: str) -> str:
    return request.headers.get(name, "").partition(";")[0].strip().lower()
