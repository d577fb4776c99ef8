"""What is measured, of which allocators, and what is wanted."""

from workers import Measurement

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = (512, 4 * KIB, 64 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB, 256 * MIB, GIB)
THREADS = (1, 2, 4, 8, 16)
STREAMS = (1, 4, 32)

NATIVE, NATIVE_ASYNC = "cudaMalloc", "cudaMallocAsync"
TORCH, CUPY = "PyTorch", "CuPy pool (called from Python)"
RMM = ("RMM pool", "RMM arena", "RMM async")
DRIVER, SHARED, STATIC, ARENA = (
    f"cuplug {what}" for what in ("pool, driver API", "pool, shared cudart", "pool, static cudart", "arena, driver API")
)
ASYNC = {label: f"{label}, async" for label in (DRIVER, SHARED, STATIC)}
OURS = (DRIVER, SHARED, STATIC, ARENA)
PEERS = (NATIVE, NATIVE_ASYNC, TORCH, *RMM)


def size_name(size):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def pairs(sizes=SIZES):
    return [Measurement(f"pair {size_name(size)}", f"pair {{}} {size}", (*PEERS, CUPY, *OURS)) for size in sizes]


RANDOM, RANDOM_EVEN = "random, sizes over all magnitudes", "random, sizes even over the bytes"


def random_sets():
    command = f"random {{}} 1000 512 {2 * MIB}"
    return [Measurement(RANDOM, command, (*PEERS, CUPY, *OURS)), Measurement(RANDOM_EVEN, f"{command} 1", (*PEERS, *OURS))]


def threads(counts=THREADS):
    return [Measurement(f"threads {count}", f"threads {{}} {count} {64 * KIB}", (*PEERS, *OURS)) for count in counts]


def handoffs():
    return [Measurement(f"handoff {size_name(size)}", f"handoff {{}} {size}", (*PEERS, *OURS)) for size in (4 * KIB, MIB)]


def streams(counts=STREAMS):
    labels = (NATIVE_ASYNC, TORCH, *RMM, *ASYNC.values())
    return [
        Measurement(f"streams {count}, {size_name(size)}", f"pair {{}} {size} {count}", labels)
        for size in (64 * KIB, 8 * MIB)
        for count in counts
    ]


def kernels(counts=STREAMS):
    labels = (*PEERS, *OURS, *ASYNC.values())
    return [Measurement(f"kernels {count}", f"kernels {{}} {count} {64 * KIB} 800", labels) for count in counts]


def replays(traces, most_ms=300):
    labels = (*PEERS, *OURS)
    for_streams = (NATIVE_ASYNC, TORCH, *RMM, *ASYNC.values())
    return [
        Measurement(f"replay {name}", f"replay {{}} {path} {most_ms}", for_streams if name == "streams" else labels)
        for name, path in traces.items()
    ]


BEHIND = 20  # µs: a kernel behind each allocation, so that the host runs ahead of the device


def footprints(traces):
    labels = (NATIVE_ASYNC, TORCH, DRIVER, ASYNC[DRIVER])
    return [
        Measurement(f"footprint {name}{', behind' * (kernel > 0)}", f"footprint {{}} {path}" + f" {kernel}" * (kernel > 0), labels, repetitions=1)
        for kernel in (0, BEHIND)
        for name, path in traces.items()
    ]


GROWTH = "grow 64 × 32 MiB"
GROWTH_COMMAND = f"grow {{}} 64 {32 * MIB}"
GROWTH_LABELS = (NATIVE, NATIVE_ASYNC, TORCH, RMM[0], DRIVER)

TRAINING = "training"
TRAINING_KINDS = {
    "PyTorch's cache": {},
    "PyTorch's cache, expandable segments": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "PyTorch's cudaMallocAsync backend": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
}
CACHING_OFF = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
TRAINING_OURS, TRAINING_BARE = "cuplug pool, PyTorch's cache off", "bare driver, PyTorch's cache off"


def wanted(results):
    """(what, wanted, found or None, whether that is met): the ratios are what binds; times are leads."""

    def times(key, label, ours=DRIVER, ours_key=None):
        a, b = results.median(key, label), results.median(ours_key or key, ours)
        return a / b if a and b else None

    def at_least(what, factor, found):
        return what, f"≥ {factor} ×", found and f"{found:.1f} ×", found is not None and found >= factor

    def at_most(what, factor, found, unit=" ×", digits=2):
        return what, f"≤ {factor}{unit}", found and f"{found:.{digits}f}{unit}", found is not None and found <= factor

    small = "pair 64 KiB"
    yield at_least("pair of 64 KiB, driver API: PyTorch's time to ours", 8, times(small, TORCH))
    yield at_least("pair of 64 KiB, driver API: cudaMallocAsync's time to ours", 12, times(small, NATIVE_ASYNC))
    yield at_least("pair of 64 KiB, driver API: cudaMalloc's time to ours", 500, times(small, NATIVE))
    yield at_most("pair of 64 KiB, driver API (lead)", 60, results.median(small, DRIVER), " ns", 0)
    for label, factor in ((SHARED, 1.6), (STATIC, 3.5)):
        a, b = results.median(small, label), results.median(small, DRIVER)
        yield at_most(f"pair of 64 KiB, {label.split(', ')[1]}: to our own by the driver API", factor, a and b and a / b)
    for label in (*RMM, CUPY):
        worst = min(
            ((times(f"pair {size_name(size)}", label), size) for size in SIZES if times(f"pair {size_name(size)}", label)),
            default=None,
        )
        what = f"pair of every size: {label}'s time to ours, the least" + (f" ({size_name(worst[1])})" if worst else "")
        yield what, "> 1 ×", worst and f"{worst[0]:.2f} ×", worst is not None and worst[0] > 1
    yield at_least("random live set: PyTorch's time to ours", 8, times(RANDOM, TORCH))
    yield at_most("random live set, driver API (lead)", 110, results.median(RANDOM, DRIVER), " ns", 0)
    one, many = results.median("threads 1", DRIVER), results.median("threads 16", DRIVER)
    yield at_least("16 threads, pairs in all: to our single thread", 10, one and many and one / many)
    yield at_least("16 threads, pairs in all: to PyTorch's", 100, times("threads 16", TORCH))
    for size in (256 * MIB, GIB):
        found = results.median(f"pair {size_name(size)}", DRIVER)
        yield at_most(f"pair of {size_name(size)}", 1.5, found and found / 1000, " µs")
    best = min(filter(None, (results.median(TRAINING, kind, "ms") for kind in TRAINING_KINDS)), default=None)
    found = results.median(TRAINING, TRAINING_OURS, "ms")
    yield at_most(
        "PyTorch training, its cache off under the pool: to the best of PyTorch's own", 1.0, best and found and found / best
    )
    for count in STREAMS:
        for label in (DRIVER, ASYNC[DRIVER]):
            key = f"kernels {count}"
            a, b = results.median(key, label), results.median(key, label, "alone")
            share = a and b and (a / b - 1) * 100
            yield at_most(
                f"allocation and free around each kernel, {count} stream(s){', async' * (label != DRIVER)}: time added",
                10,
                share,
                " %",
                1,
            )
