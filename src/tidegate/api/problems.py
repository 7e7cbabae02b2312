"""What goes wrong, as RFC 9457 has it: a type, a title, what happened, and what to do about it.

No answer tells where in the program something failed, nor what runs it. A failure that nobody foresaw has a
reference; the log of the process has the same one and says the rest.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import orjson
import structlog
from pydantic import BaseModel, Field
from starlette.responses import Response

MEDIA_TYPE: Final = "application/problem+json"
_NAMESPACE: Final = "urn:tidegate:problem:"
_ERRORS: Final = 100  # more would not be read

log = structlog.get_logger("tidegate.api")


class Kind(Enum):
    MALFORMED = ("malformed", 400, "The request cannot be read")
    UNAUTHENTICATED = ("unauthenticated", 401, "A valid token is needed")
    FORBIDDEN = ("forbidden", 403, "This token may not do that")
    DENIED = ("denied", 403, "The rules in force do not allow it")
    READONLY = ("readonly", 403, "This stands in the configuration file")
    UNKNOWN = ("unknown", 404, "There is no such thing")
    METHOD = ("method", 405, "This cannot be done here")
    TIMEOUT = ("timeout", 408, "The request took too long to arrive")
    CONFLICT = ("conflict", 409, "It is not what you took it for")
    CHANGED = ("changed", 412, "It was changed in the meantime")
    TOO_LARGE = ("too-large", 413, "The request is too large")
    MEDIA = ("media-type", 415, "This media type is not understood")
    INVALID = ("invalid", 422, "What was sent is wrong")
    PRECONDITION = ("precondition", 428, "Say which version you mean")
    TOO_MANY = ("too-many", 429, "Too many requests")
    FAILED = ("failed", 500, "Something failed here")
    UNSUPPORTED = ("unsupported", 501, "This node cannot do that")
    UNAVAILABLE = ("unavailable", 503, "The node cannot answer now")
    UNCERTAIN = ("uncertain", 504, "It is not known whether it was done")
    FULL = ("full", 507, "There is no room for more")

    def __init__(self, word: str, status: int, title: str) -> None:
        self.word = word
        self.status = status
        self.title = title


class Problem(Exception):
    """Ends a request with an answer that says what to do."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        remedy: str = "",
        *,
        errors: Sequence[Any] = (),
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.remedy = remedy
        self.errors = list(errors)[:_ERRORS]
        self.headers = dict(headers or {})
        self.members = dict(members or {})
        """What only problems of this kind tell."""

    def body(self) -> bytes:
        said: dict[str, Any] = {
            "type": _NAMESPACE + self.kind.word,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
        }
        if self.remedy:
            said["remedy"] = self.remedy
        if self.errors:
            said["errors"] = self.errors
        said |= self.members
        return orjson.dumps(said, default=str)

    def response(self) -> Response:
        return Response(self.body(), self.kind.status, headers=self.headers, media_type=MEDIA_TYPE)


def failed(method: str) -> Problem:
    """For a failure that is being handled and that nobody foresaw: logged here, and told by its reference."""
    reference = secrets.token_hex(4)
    log.exception("request failed", reference=reference, method=method)
    remedy = f"tell the administrator the reference {reference}; the log says more"
    return Problem(Kind.FAILED, "the request failed", remedy)


class ProblemAnswer(BaseModel):
    """Why a request was not fulfilled (RFC 9457)."""

    type: str = Field(description="The kind of problem; always the same text for the same kind.")
    title: str = Field(description="The kind of problem, for people.")
    status: int = Field(description="The status code.")
    detail: str = Field(description="What is wrong with this very request.")
    remedy: str | None = Field(None, description="What to do about it.")
    errors: list[Any] | None = Field(None, description="Each thing that is wrong, if there are several.")
    rule: str | None = Field(None, description="What the rules in force deny: the id of the one that does.")
    stage: str | None = Field(None, description="And the stage of the decision that it belongs to.")
