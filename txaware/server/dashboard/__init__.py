"""The pages for people: static files, and the headers they are served with.

`/` is the page for operators, whose views have addresses (`views.js` lists them), and
`/docs` the reference of the HTTP interface, made from `/openapi.json`. Plain modules of
JavaScript, without a build step:

| file | what it is for |
|---|---|
| `dashboard.js` | opens the view of the address, and has it look again and again |
| `views.js` | the addresses |
| `overview.js` | the first view: `glance.js`, `tables.js`; `model.js` adds it up |
| `messages.js`, `queue.js`, `group.js`, `rows.js` | a topic, queue, group, table |
| `asking.js`, `endings.js` | what is asked once more before anything changes |
| `payloads.js`, `charts.js`, `table.js`, `words.js` | how things are shown |
| `server.js` | asks the server, with a token where there is one |

What each view asks: the overview and a group `GET /v1/overview`; a queue its settings,
`stats` and `items`; a topic `bounds`, `peek` and `search`; a table `scan`; and all
`GET /v1/rights`, as what a token may not do is not offered.
"""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# The pages, by their files; what they are made of is below /dashboard/.
_PAGES = {"index.html": "/", "docs.html": "/docs"}
PAGES = frozenset(_PAGES.values())


def _read() -> dict[str, tuple[str, bytes]]:
    found = {}
    for file in files(__name__).iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = _PAGES.get(file.name, f"/dashboard/{file.name}")
            found[path] = (kind, file.read_bytes())
    return found


# What is at each path: its content type and its bytes.
FILES: Mapping[str, tuple[str, bytes]] = MappingProxyType(_read())

# For every one of them. Nothing from elsewhere runs in the page, nothing of it goes
# elsewhere, and no other page shows it in a frame. Names and payloads that others
# wrote are only ever set as text, which `trusted-types` enforces.
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; "
            "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'; require-trusted-types-for 'script'; "
            "trusted-types 'none'"
        ),
        "Cache-Control": "no-cache",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
)
