"""The description of all routes for /openapi.json."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from seqloom import __version__


class Described(Struct):
    """A route for /openapi.json."""

    path: str
    method: str
    summary: str
    takes: type[Struct] | None


def describe(routes: Sequence[Described]) -> dict[str, Any]:
    """OpenAPI, with the types that check what is asked."""
    kinds = list(dict.fromkeys(each.takes for each in routes if each.takes is not None))
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    by_kind = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, Any] = {}
    refusal = {"description": 'Refused: {"error": {"message", "type", "param", "code"}}'}
    for each in routes:
        about: dict[str, Any] = {
            "summary": each.summary,
            "responses": {"200": {"description": "OK"}, "4XX": refusal},
        }
        if each.takes is not None:
            content = {"application/json": {"schema": by_kind[each.takes]}}
            about["requestBody"] = {"required": True, "content": content}
        if "{" in each.path:
            about["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
        paths.setdefault(each.path, {})[each.method.lower()] = about
    info = {"title": "seqloom", "version": __version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": components}}
