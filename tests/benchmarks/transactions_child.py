"""Transactions of one message by our client of any checkout, in threads of a process.

Its arguments are the address of a server, how many threads, and for how many seconds
they work after each line of its input. So a process that `started.workers` starts
behaves. It imports nothing of the tests, which an older checkout may not have.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import txaware

PAYLOAD = b"p" * 100


def main(url: str, threads: int, for_s: float) -> None:
    """Works in each turn, and prints how many transactions that were, and its time."""
    with txaware.connect(url) as messaging, ThreadPoolExecutor(threads) as pool:
        publisher, begins = messaging.publisher("t"), threading.Barrier(threads)

        def work(_: int) -> int:
            begins.wait()
            done, until_s = 0, time.perf_counter() + for_s
            while not done or time.perf_counter() < until_s:
                with messaging.transaction():
                    publisher.publish(PAYLOAD)
                done += 1
            return done

        print("ready", flush=True)
        while sys.stdin.readline():
            began_s = time.process_time()
            done = sum(pool.map(work, range(threads)))
            print(done, time.process_time() - began_s, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
