"""Work queues: jobs that many workers share, each done by one of them."""

from txaware.queue.job import Job
from txaware.queue.queue import Popper, Pusher, Queue

__all__ = ["Job", "Popper", "Pusher", "Queue"]
