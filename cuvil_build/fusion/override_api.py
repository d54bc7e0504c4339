"""What the page of `explain fusion` and programs exchange with its server: bodies, and their description."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import models_json_schema

from cuvil_build.errors import CuvilError
from cuvil_build.fusion.drawing import Drawing
from cuvil_build.fusion.explain import Explanation

ROOT = "/api/v1"
DECISIONS = f"{ROOT}/fusion/decisions"
OVERRIDE = f"{ROOT}/fusion/override"
OPENAPI = f"{ROOT}/openapi.json"

MAX_BODY = 256 << 10
MAX_NODES = 4096
Name = Annotated[str, Field(min_length=1, max_length=4096)]


class MalformedBody(CuvilError):
    """The body of a request that is not JSON."""


class InvalidRequest(CuvilError):
    """The body of a request that is JSON and not what it should be."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OverrideRequest(_Body):
    """One decision of a person about a region: a rule and the nodes that it would make one."""

    action: Literal["accept", "deny", "pin", "clear"] = Field(
        description="`accept` writes an entry of `force`, `deny` and `pin` one of their own name; `clear` "
        "removes what was said of these nodes."
    )
    rule: Name
    nodes: list[Name] = Field(min_length=1, max_length=MAX_NODES)

    @property
    def key(self) -> str:
        """In the override file."""
        return "force" if self.action == "accept" else self.action


class OverrideResponse(_Body):
    """What became of the override file."""

    file: str
    changed: bool
    diff: str = Field(description="A unified diff of the file.")
    text: str = Field(description="The file as it is now.")
    entries: list[str] = Field(
        description="Entries, each with its line, that are about the region now; wide patterns stay."
    )


class StepView(_Body):
    """One run of the rules: its decisions, and the graph that they were made on."""

    explanation: Explanation
    drawing: Drawing
    stale: bool = Field(
        description="Rules, overrides or the model changed since: the next build decides anew."
    )


class DecisionsResponse(_Body):
    """All that the page shows."""

    file: str = Field(description="The override file; empty where cuvil.yaml names none.")
    text: str = Field(description="What the override file says.")
    warnings: list[str] = Field(description="Of entries that decided nothing.")
    steps: list[StepView]


class Problem(_Body):
    """Why a request was refused."""

    error: str
    hint: str = ""


BODIES = (DecisionsResponse, OverrideRequest, OverrideResponse, Problem)

_REFUSALS = {
    "401": "No token was given.",
    "403": "The token is wrong, or the request came from another page or under another name of this machine.",
}
_POST_REFUSALS = {
    "400": "The body is not JSON.",
    "409": "The override file can't be changed: it has mistakes, or cuvil.yaml names none.",
    "411": "The length of the body was not given.",
    "413": f"The body is larger than {MAX_BODY} bytes.",
    "415": "The body is not `application/json`.",
    "422": "The body is not as described, or names a rule or nodes that are not known.",
}


def openapi(version: str) -> dict[str, Any]:
    """An OpenAPI 3.1 description, from the bodies' own models."""
    _, schemas = models_json_schema(
        [(body, "validation") for body in BODIES], ref_template="#/components/schemas/{model}"
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Decisions of fusion", "version": version},
        "security": [{"token": []}],
        "paths": {
            DECISIONS: {
                "get": {
                    "operationId": "readDecisions",
                    "summary": "Decisions of the last build, and the graph that they were made on.",
                    "responses": {"200": _answer("Decisions.", DecisionsResponse), **_refused(_REFUSALS)},
                }
            },
            OVERRIDE: {
                "post": {
                    "operationId": "writeOverride",
                    "summary": "Write one decision to the override file.",
                    "requestBody": {"required": True, "content": _content(OverrideRequest)},
                    "responses": {
                        "200": _answer("The file was changed, or said so already.", OverrideResponse),
                        **_refused(_REFUSALS | _POST_REFUSALS),
                    },
                }
            },
            OPENAPI: {
                "get": {
                    "operationId": "describe",
                    "summary": "This description.",
                    "responses": {
                        "200": {
                            "description": "OpenAPI 3.1.",
                            "content": {"application/json": {"schema": {"type": "object"}}},
                        },
                        **_refused(_REFUSALS),
                    },
                }
            },
        },
        "components": {
            "schemas": dict(sorted(schemas["$defs"].items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _content(body: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}}


def _answer(description: str, body: type[BaseModel]) -> dict[str, Any]:
    return {"description": description, "content": _content(body)}


def _refused(reasons: dict[str, str]) -> dict[str, Any]:
    return {status: _answer(text, Problem) for status, text in sorted(reasons.items())}


def read_request(raw: bytes) -> OverrideRequest:
    """The body of a request, checked; keys that come twice are refused as those that nobody knows."""
    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        raise MalformedBody("the body is not JSON") from None
    try:
        return OverrideRequest.model_validate(data)
    except ValidationError as error:
        told = [_told(dict(found)) for found in error.errors()]
        raise InvalidRequest("; ".join(told[:3])) from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidRequest("a key comes twice")
    return found


def _told(found: dict[str, Any]) -> str:
    place = ".".join(str(part) for part in found["loc"])[:80]
    message = str(found["msg"]).removeprefix("Value error, ")
    return f"'{place}': {message[:1].lower()}{message[1:]}" if place else message
