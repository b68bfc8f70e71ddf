"""Work queues: jobs that many workers share, each done by one of them."""

from txaware.queue.job import Job
from txaware.queue.queue import Popper, Pusher, Queue
from txaware.queue.worker import Worker
from txaware.queue.worker_options import WorkerMetrics

__all__ = ["Job", "Popper", "Pusher", "Queue", "Worker", "WorkerMetrics"]
