"""A worker of tests/gpu/bench for CuPy's memory pool, spoken to like tests/bench/worker.

What it measures includes Python's part of each call, which a CuPy program pays as well: CuPy's pool has no other way in.
"""

import math
import random
import sys
import time

import cupy

LEAST_SECONDS = 0.002
POOL = cupy.get_default_memory_pool()


def pairs(size, count):
    malloc = POOL.malloc
    start = time.perf_counter()
    for _ in range(count):
        block = malloc(size)
        del block
    return time.perf_counter() - start


def pair(size):
    count = 1
    while (taken := pairs(size, count)) < LEAST_SECONDS:
        count *= 2
    return sorted((taken, *(pairs(size, count) for _ in range(4))))[2] / count


def random_set(live, least, most):
    numbers = random.Random(1)
    steps = [(numbers.randrange(live), int(least * math.pow(most / least, numbers.random()))) for _ in range(20000)]
    malloc, slots = POOL.malloc, [POOL.malloc(size) for _, size in steps[:live]]
    start = time.perf_counter()
    for slot, size in steps:
        slots[slot] = None
        slots[slot] = malloc(size)
    return (time.perf_counter() - start) / len(steps)


def main():
    cupy.cuda.Device(0).use()
    POOL.malloc(512)
    print("ready cupy", flush=True)
    for line in sys.stdin:
        pattern, _, *numbers = line.split()
        measured = {"pair": pair, "random": random_set}.get(pattern)
        try:
            print(f"ns={measured(*map(int, numbers)) * 1e9:.2f}" if measured else "error: no such pattern", flush=True)
        except Exception as error:
            print(f"error: {error!r}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
