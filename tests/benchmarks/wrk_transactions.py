"""Transactions over HTTP/1.1 by wrk: an older checkout beside this one, in turns."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import txaware
from tests.benchmarks.before import NOW
from tests.benchmarks.started import busy_s, served
from txaware.bench.load import WRK, by_wrk
from txaware.bench.measure import Figure
from txaware.bench.trial import Trial

CONNECTIONS = 16
REQUESTS = 3  # of a transaction
AT_LEAST, AIM = 1.4, 2.0
# A script of wrk has the state of a thread: each has one connection.
SCRIPT = """\
local headers = {["Content-Type"] = "application/json", ["Accept"] = "application/json"}
local step, pointer = 0, nil
function request()
  if step == 0 then
    return wrk.format("POST", "/v1/transactions", headers, '{"timeoutS": 60}')
  elseif step == 1 then
    return wrk.format("POST", "/v1/namespaces/default/topics/t/publish", headers,
      '{"messages": [{"utf8": "ann paid 5"}], "transactionWritePointer": '
      .. pointer .. '}')
  end
  return wrk.format("POST", "/v1/transactions/" .. pointer .. "/commit", headers,
    '{"check": true}')
end
function response(status, _, body)
  if step == 0 then pointer = string.match(body, '"writePointer": ?(%d+)') end
  step = (step + 1) % 3
end
"""


def figures(trial: Trial, checkout: Path) -> Iterator[Figure]:
    """Yields how many transactions of one message are done, and what each takes."""
    before, now = list[tuple[float, float]](), list[tuple[float, float]]()
    for number in range(1, trial.rounds + 1):
        trial.tell(f"turn {number} of {trial.rounds}")
        before.append(_measure(trial, checkout))
        now.append(_measure(trial, NOW))
    what = f"begin, publish one and commit over HTTP/1.1, {CONNECTIONS} connections"
    yield Figure(
        what,
        "transactions/s",
        [rate for rate, _ in now],
        [rate for rate, _ in before],
        "before",
        at_least=AT_LEAST,
        aim=AIM,
    )
    yield Figure(
        f"{what}: processor of the server",
        "us each",
        [us for _, us in now],
        [us for _, us in before],
        "before",
    )


def _measure(trial: Trial, checkout: Path) -> tuple[float, float]:
    """Returns transactions a second, and the microseconds of the server for each."""
    if WRK is None:
        raise RuntimeError("this benchmark needs wrk: apt-get install wrk")
    send = partial(by_wrk, SCRIPT, connections=CONNECTIONS, threads=CONNECTIONS)
    with (
        tempfile.TemporaryDirectory(dir=trial.directory) as data,
        served(Path(data), checkout) as (url, server),
    ):
        with txaware.connect(url) as messaging:
            messaging.create_topic("t")
        send(url, for_s=1)
        began_s = busy_s(server)
        done = send(url, for_s=round(trial.for_s))
        took_s = busy_s(server) - began_s
    return done.per_second / REQUESTS, took_s / done.count * REQUESTS * 1e6
