"""The metrics of all servers of a cluster as those of one, in Prometheus's text."""

from collections.abc import Callable, Iterable

# Gauges that each server has a part of; of all others the greatest counts, as most of
# them are home's, and a server that knows nothing of them says 0.
SUMMED = frozenset(
    (
        *("txaware_cache_bytes", "txaware_live_producers"),
        *("txaware_http_requests_in_flight", "txaware_http_body_bytes"),
        *("txaware_topic_rows", "txaware_retention_topics", "txaware_blocked_topics"),
        *("process_virtual_memory_bytes", "process_resident_memory_bytes"),
        *("process_open_fds", "process_cpu_seconds_total"),
    )
)
# A part that is down at one server is down.
_LEAST = frozenset(("txaware_up",))
_COUNTED = frozenset(("counter", "histogram", "summary"))


class _Family:
    """The lines about one name: what it is, and its samples in their order."""

    def __init__(self) -> None:
        self.about: list[str] = []
        self.kind = ""
        self.samples: dict[str, float] = {}

    def add(self, name: str, sample: str, value: float) -> None:
        """Counts a sample of one more server."""
        known = self.samples.get(sample)
        self.samples[sample] = (
            value if known is None else self._together(name)(known, value)
        )

    def _together(self, name: str) -> Callable[[float, float], float]:
        if name in _LEAST:
            return min
        if self.kind in _COUNTED or name in SUMMED:
            return float.__add__
        return max


def together(texts: Iterable[str]) -> str:
    """Returns the text of all servers' metrics, of the texts of each."""
    families: dict[str, _Family] = {}
    for text in texts:
        name = ""
        for line in text.splitlines():
            if line.startswith("#"):
                _, what, name, *rest = line.split(" ", 3)
                family = families.setdefault(name, _Family())
                if what == "TYPE":
                    family.kind = rest[0]
                if line not in family.about:
                    family.about.append(line)
            elif line:
                sample, _, value = line.rpartition(" ")
                families.setdefault(name, _Family()).add(name, sample, float(value))
    written: list[str] = []
    for family in families.values():
        written += family.about
        written += [
            f"{sample} {_shown(value)}" for sample, value in family.samples.items()
        ]
    return "\n".join([*written, ""])


def _shown(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return "NaN" if value != value else repr(value)
