"""Functions that damage the content of files, and limits of time and memory for reading them."""

import resource
import signal
from contextlib import contextmanager
from pathlib import Path

SECONDS = 30
# Maximum additional memory in bytes for reading a damaged file. The files have at most about 100 kB.
SPARE = 1 << 30


def random_range(data, rng):
    start = rng.randrange(len(data))
    return start, min(len(data), start + rng.choice((1, 8, 100, 5000)))


def flip_bit(data, rng):
    position = rng.randrange(len(data))
    return data[:position] + bytes([data[position] ^ (1 << rng.randrange(8))]) + data[position + 1 :]


def truncate(data, rng):
    return data[: rng.randrange(len(data))]


def overwrite_with_zeros(data, rng):
    start, end = random_range(data, rng)
    return data[:start] + bytes(end - start) + data[end:]


def swap_blocks(data, rng):
    """Swap two adjacent blocks of random size."""
    first, middle, last = sorted(rng.choices(range(len(data) + 1), k=3))
    return data[:first] + data[middle:last] + data[first:middle] + data[last:]


def insert_bytes(data, rng):
    position = rng.choice((rng.randrange(len(data)), len(data)))
    return data[:position] + rng.randbytes(rng.choice((1, 8, 100, 5000))) + data[position:]


DAMAGES = [flip_bit, truncate, overwrite_with_zeros, swap_blocks, insert_bytes]


@contextmanager
def limited_resources():
    """Limit the CPU time and the additional memory in a block."""

    def stop(*_):
        raise AssertionError("reading hangs")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    used_bytes = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + SPARE, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
