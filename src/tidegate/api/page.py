"""The page at `/docs`: every route, what it takes and who may use it, as plain HTML.

It is made from the OpenAPI document and the table of roles, and needs no script and no other server: it works where
there is no internet. Programs read `/openapi.json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any, Final

from tidegate.api.access import ALLOWED, PUBLIC

_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b2430;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #ccd3da;text-transform:capitalize}
details{border:1px solid #dde3e8;border-radius:6px;margin:.4rem 0;padding:.4rem .8rem}
summary{cursor:pointer}code{font-family:ui-monospace,monospace}
.method{display:inline-block;width:4.5rem;font-weight:700}.roles{float:right;color:#5a6875;font-size:.85rem}
table{border-collapse:collapse;width:100%}td{padding:.2rem .8rem .2rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#dfe6ec;background:#12181f}details{border-color:#33404c}.roles{color:#93a2b0}}
"""


def page(document: dict[str, Any]) -> str:
    """The OpenAPI document for people."""
    return "".join(_parts(document))


def _parts(document: dict[str, Any]) -> Iterator[str]:
    title = escape(document["info"]["title"])
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
    yield f"<h1>{title}</h1><p>{escape(document['info'].get('description', ''))}</p>"
    yield "<p>For programs: <a href=/openapi.json>/openapi.json</a></p>"
    tagged: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tagged.setdefault(operation.get("tags", ["other"])[0], []).append((method.upper(), path, operation))
    for tag, operations in tagged.items():
        yield f"<h2>{escape(tag)}</h2>"
        for method, path, operation in operations:
            yield from _operation(method, path, operation)


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    roles = ALLOWED[method, path]
    who = "everybody" if roles is PUBLIC else ", ".join(sorted(roles))
    yield f"<details><summary><span class=roles>{who}</span><span class=method>{method}</span>"
    yield f"<code>{escape(path)}</code> {escape(operation.get('summary', ''))}</summary>"
    yield f"<p>{escape(operation.get('description', ''))}</p><table>"
    for each in operation.get("parameters", ()):
        said = escape(each.get("description") or each["schema"].get("description", ""))
        yield f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{said}"
    body = operation.get("requestBody", {}).get("content", {})
    for media, content in body.items():
        shape = content["schema"].get("$ref", "").rpartition("/")[2] or content["schema"].get("title", "object")
        yield f"<tr><td>body<td>{escape(media)}<td>{escape(shape)}"
    yield f"<tr><td>answers<td colspan=2>{', '.join(sorted(operation['responses']))}</table></details>"
