"""Runs schemathesis against a server, and says where it is not as it is described."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import attrs
import schemathesis
from schemathesis.config import (
    GenerationConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from schemathesis.engine import from_schema
from schemathesis.engine.events import FatalError, NonFatalError, ScenarioFinished
from schemathesis.engine.recorder import Interaction, ScenarioRecorder
from schemathesis.generation.meta import CoverageScenario

CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_headers_conformance", "response_schema_conformance"),
    *("negative_data_rejection", "positive_data_acceptance", "missing_required_header"),
    *("unsupported_method", "allow_header_conformance", "ignored_auth"),
)
# What no schema says: whether bytes are a transaction, what belongs to which.
MAY_BE_REFUSED = (
    *("/publish", "/store", "/rollback", "/poll", "/wait", "/peek", "/first-undecided"),
    "/latest",
    *("/shards", "/shards/give"),
    *(
        "/positions/{topic}",
        "/{member}/positions",
        "/admin/backup",
        "/{table}/get",
        "/{table}/scan",
    ),
    *("/{transactional_id}/enter", "/{transactional_id}/commits"),
)

OF_DATA = ("data_rejection", "data_acceptance")


@attrs.frozen(kw_only=True)
class Run:
    """How much is tried, with which names in paths where they are not chosen freely."""

    examples: int
    phases: tuple[str, ...]
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    seed: int = 1
    without: tuple[str, ...] = ()
    wrong_types: int = 1  # of so many one is sent
    checks: tuple[str, ...] = CHECKS


@attrs.define
class Outcome:
    """How many requests were sent, and what was wrong; each kind of it once."""

    requests: int = 0
    problems: dict[tuple[str, ...], str] = attrs.field(factory=dict)


def outcome(url: str, token: str, document: dict[str, Any], run: Run) -> Outcome:
    """Sends requests that fit the description, and such that do not."""
    schema: Any = schemathesis.openapi.from_dict(
        document, config=_config(url, token, run)
    )
    for method in run.without:
        schema = schema.exclude(method=method)
    if run.wrong_types > 1:
        schema.hook("filter_case")(_some_wrong_types(run.wrong_types))
    found = Outcome()
    for event in from_schema(schema).execute():
        if isinstance(event, FatalError | NonFatalError):
            found.problems["schemathesis", str(event)[:2000]] = ""
        elif isinstance(event, ScenarioFinished):
            found.requests += len(event.recorder.interactions)
            found.problems |= dict(_problems(event.recorder, run.checks))
    return found


def _config(url: str, token: str, run: Run) -> SchemathesisConfig:
    project = ProjectConfig(
        base_url=url,
        continue_on_failure=True,
        request_timeout=60,
        headers={"Authorization": f"Bearer {token}"},
        parameters=dict(run.parameters),
        generation=GenerationConfig(
            max_examples=run.examples,
            deterministic=True,
            no_shrink=True,
            database="none",
        ),
    )
    project.phases.update(phases=list(run.phases))
    return SchemathesisConfig(seed=run.seed, projects=ProjectsConfig(default=project))


def _some_wrong_types(of: int) -> Callable[[object, Any], bool]:
    """Leaves out most of what is two in five of all requests: a value of another type.

    `tests/http/test_verbs.py` sends each of these to each verb.
    """
    numbers = count()

    def is_sent(context: object, case: Any) -> bool:
        of_phase = getattr(case.meta.phase, "data", None)
        scenario = getattr(of_phase, "scenario", None)
        return scenario != CoverageScenario.INCORRECT_TYPE or next(numbers) % of == 0

    is_sent.__name__ = "filter_case"
    return is_sent


def _problems(
    recorder: ScenarioRecorder, checks: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    for case_id, nodes in recorder.checks.items():
        sent = recorder.interactions.get(case_id)
        for node in nodes:
            info = node.failure_info
            if info is None or node.name not in checks:
                continue
            if not _is_meant(node.name, recorder.label, sent):
                message = info.failure.message
                yield (recorder.label, node.name, message[:200]), _shown(sent)


def _is_meant(check: str, label: str, sent: Interaction | None) -> bool:
    if sent is None or sent.response is None:
        return False
    status, body = sent.response.status_code, sent.response.content
    if status == 426:  # of what is no other request than that for an upgrade
        return True
    if status == 503:
        return b"TransactionOutcomeUnknown" in body or (
            sent.response.headers.get("txaware-outcome") == ["unknown"]
        )
    if "Idempotency-Key" in sent.request.headers and check.endswith(OF_DATA):
        return True  # the answer is that of another request, with the same key
    if status == 200 and not body:  # who accepts no JSON, or stores in Avro
        return label.endswith(("/publish", "/store")) and check != "ignored_auth"
    return check == "positive_data_acceptance" and label.endswith(MAY_BE_REFUSED)


def _shown(sent: Interaction | None) -> str:
    if sent is None:
        return "not sent"
    asked, answered = sent.request, sent.response
    answer = "no answer" if answered is None else f"{answered.content[:300]!r}"
    status = "" if answered is None else answered.status_code
    return (
        f"{asked.method} {asked.uri} {(asked.body or b'')[:300]!r}: {status} {answer}"
    )
