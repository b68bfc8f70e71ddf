"""What a subscriber has done so far, in numbers."""

import attrs


@attrs.frozen
class SubscriberMetrics:
    """Counted since the subscriber was made; messages once their transaction ended."""

    fetched: int = 0
    """Messages that were polled, again for each further try."""
    processed: int = 0
    """Messages whose handler's transaction committed."""
    skipped: int = 0
    """Messages that were given up, or not decoded, and are kept nowhere else."""
    dead_lettered: int = 0
    """Messages that were given up, or not decoded, and went to the other topic."""
    failures: int = 0
    """Transactions that failed, conflicts left out."""
    conflicts: int = 0
    """Transactions that met a conflict."""
    batches: int = 0
    """Transactions that committed and went past at least one message."""
    processing_s: float = 0
    """Time spent in handlers."""
    delay_s: float = 0
    """From the publishing of the last message to the end of its transaction."""

    def plus(self, **numbers: float) -> "SubscriberMetrics":
        """With these numbers added."""
        return attrs.evolve(
            self, **{name: getattr(self, name) + n for name, n in numbers.items()}
        )
