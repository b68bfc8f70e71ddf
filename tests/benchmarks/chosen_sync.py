"""A disk whose sync takes a chosen time: a library that stands before the system's.

In memory a sync takes nothing, so that a benchmark there has no disk; and no machine of
tests has one whose sync takes 0.1 ms.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/prctl.h>
#include <time.h>

static void sleep_until(struct timespec *at) {
    static __thread int is_exact;
    if (!is_exact) {
        prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
        is_exact = 1;
    }
    at->tv_nsec += SYNC_US * 1000L;
    at->tv_sec += at->tv_nsec / 1000000000L;
    at->tv_nsec %= 1000000000L;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, 0);
}

#define LASTS(name)                                       \\
    int name(int fd) {                                    \\
        static int (*real)(int);                          \\
        struct timespec at;                               \\
        if (!real) real = dlsym(RTLD_NEXT, #name);        \\
        clock_gettime(CLOCK_MONOTONIC, &at);              \\
        int result = real(fd);                            \\
        sleep_until(&at);                                 \\
        return result;                                    \\
    }

LASTS(fsync)
LASTS(fdatasync)
"""


@contextmanager
def syncs_take(sync_us: int) -> Iterator[dict[str, str]]:
    """Yields the environment of a process in which each sync takes so long."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed, which is called cc")
    with tempfile.TemporaryDirectory() as made:
        library = Path(made, "sync.so")
        options = ("-O2", "-shared", "-fPIC", f"-DSYNC_US={sync_us}", "-x", "c")
        subprocess.run(
            [compiler, *options, "-", "-o", str(library), "-ldl"],
            input=SOURCE.encode(),
            check=True,
        )
        yield {**os.environ, "LD_PRELOAD": str(library)}
