"""The page for operators: static files, and the headers they are served with."""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_PAGE = "index.html"


def _read() -> dict[str, tuple[str, bytes]]:
    found = {}
    for file in files(__name__).iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == _PAGE else f"/dashboard/{file.name}"
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
