"""Refused requests of each route, a line each, and who may ask what."""

import re
from collections.abc import Container, Iterator
from functools import cache
from hashlib import sha256

import attrs

from tests.golden.good_requests import GOOD, Good, Prepared
from tests.golden.mutants import JSON_TYPE, Operation, Sent, derived, operations
from tests.golden.site import Site
from tests.golden.talk import Talk, sent_by
from tests.golden.texts import one_line
from tests.support.http_raw import Response

LONGEST = 400
PAGE = "/dashboard"
# Durations that a machine has are in these.
NOT_RECORDED = frozenset({("GET", "/metrics"), ("GET", "/v1/metrics")})
# What depends on how many requests came before: a field more must not change all lines.
_COUNTED = [
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"(?<!\d)1700\d{15}(?!\d)", "POINTER"),
        (r"(?<!\d)1700\d{9}(?!\d)", "TIME"),
        (r'("producerId": ?)\d+', r"\1ID"),
        (r"(producer )\d+", r"\1ID"),
        (r'("epoch": ?)\d+', r"\1EPOCH"),
        (r"(epoch (?:is )?|of this one is )\d+", r"\1EPOCH"),
        (r'("(?:start|end)SequenceId": ?)\d+', r"\1SEQUENCE"),
        (r"\b0000018[bc][0-9a-f]{32}\b", "MESSAGE"),
        (r"\b[0-9a-f]{64}\b", "ITEM"),
        (r"(\.mail\.\d+\.)\d{16}", r"\1PIPE"),
        (r'("(?:lease|life|plan|id)": ?)"[0-9a-f]{16,}"', r'\1"ID"'),
        (r'("transaction": ?)"[A-Za-z0-9+/=]{80,}"', r'\1"TRANSACTION"'),
        (r"\bnew\d+\b", "NEW"),
        (r'("version": ?)"[^"]+"', r'\1"VERSION"'),
    )
]


# Pages that people see are no part of what programs speak.
_PAGES = frozenset({("GET", "/"), ("GET", "/docs")})


@cache
def routes() -> tuple[tuple[str, str], ...]:
    """Returns all routes: those with a good request of their own, and the others."""
    others = operations().keys() - GOOD.keys() - _PAGES
    return (*GOOD, *sorted(one for one in others if not one[1].startswith(PAGE)))


def good_of(route: tuple[str, str], at: Prepared) -> Good:
    """Makes the good request of a route: its own, or that of its declared example."""
    if route in GOOD:
        return GOOD[route](at)
    body = operations()[route].described.get("requestBody", {})
    return Good(body=body.get("content", {}).get(JSON_TYPE, {}).get("example"))


def other(talk: Talk, asked: Container[tuple[str, str]]) -> None:
    """Each route that no other conversation asks, by its good request."""
    at = Prepared(talk.site)
    for route in routes():
        if route not in asked:
            sent = operations()[route].sent(good_of(route, at))
            talk.ask(sent.method, sent.path, sent.body, headers=sent.headers)


def refused(site: Site, route: tuple[str, str]) -> Iterator[str]:
    """Yields what a route answers to a good request, and to those derived from it."""
    operation, at = operations()[route], Prepared(site)
    yield f"# {' '.join(route)}"
    good = good_of(route, at)
    yield from ["", _asked(operation, good)]
    answer = _answer(site, operation.sent(good))
    yield f"-> {answer.status if route in NOT_RECORDED else _brief(answer)}"
    for title, derive in derived(operation):
        yield from ["", f"## {title}"]
        for change in derive(operation, good):
            if answer.status < 400 or answer.status == 409:
                good = good_of(route, at)  # what there was is used up
            sent = change(good)
            answer = _answer(site, sent)
            if answer.status == 200 and route in NOT_RECORDED:
                answer = attrs.evolve(answer, body=b"(not recorded)")
            yield f"{sent.what} -> {_brief(answer)}"


def permitted(site: Site) -> Iterator[str]:
    """Yields for each route who may ask: nobody, a stranger, one without a right."""
    yield "# Each route without a token, with one that nobody has, with one of no right"
    at, known = Prepared(site, token="operator"), operations()
    for route in routes():
        good = good_of(route, at)
        yield from ["", " ".join(route)]
        for token in (None, "stranger", "nobody"):
            also = {} if token is None else {"Authorization": f"Bearer {token}"}
            answer = _answer(site, known[route].sent(good, also=also))
            yield f"{token or 'no token'} -> {_brief(answer)}"


def _asked(operation: Operation, good: Good) -> str:
    sent = operation.sent(good)
    body = "" if sent.body is None else " " + sent.body.decode()
    return f"{sent.method} {sent.path}{body}"


def _answer(site: Site, sent: Sent) -> Response:
    answer = sent_by(site, sent.method, sent.path, sent.body, sent.headers)
    if "Content-Length" in sent.headers:  # of a body that does not follow
        site.begin_anew()
    return answer


def _brief(answer: Response) -> str:
    text = one_line(answer)
    for pattern, instead in _COUNTED:
        text = pattern.sub(instead, text)
    if len(text) <= LONGEST or answer.status >= 400:
        return text
    digest = sha256(text.encode()).hexdigest()[:16]
    return f"{answer.status} ({len(text):,} characters, sha256 {digest}...)"
