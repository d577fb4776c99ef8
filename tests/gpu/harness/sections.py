"""What the GPU run consists of: the tables of cases, and one function per section.

PHASES says what runs after what. Sections of one phase run side by side; those whose times or timing matter have a
phase to themselves.
"""
import functools
import os
import pathlib
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "conformance"))

import lines as conformance_lines  # noqa: E402
from harness.compare import NATIVE, SPECS, Case, compare, difference, judge, mib, sum_json  # noqa: E402
from harness.process import run  # noqa: E402

PYTHON = "tests/gpu/python"
GPU_PACKAGES = pathlib.Path(".gpu/root/usr")
RMM = pathlib.Path(".gpu/rmm")
WAYS = {"static": "static cudart", "shared": "shared cudart", "per_thread": "per-thread default streams"}
COMPARED = ("vector_streams", "pitched", "pool_graph")

WAITS = "old kernel done before new owner's write: yes\n"
FINISHED = "finished: yes\n"
RECYCLED = "wrong words: 0\nrecycled enough blocks: yes\n"
PEER = """allocated before peer access: written by the peer: wrong words 0, read by the peer: right
allocated after: written by the peer: wrong words 0, read by the peer: right
used again: written by the peer: wrong words 0, read by the peer: right
blocks written by the peer's old kernel and by its new one: wrong words 0
"""

# program, fault planted in the debug build, output of the sound library, what the faulty one must print
FAULTS = (
    ("free_waits_for_kernel", "nofence", WAITS, r"write: no\n"),
    ("recycled_blocks", "nofence", RECYCLED, r"wrong words: [1-9]"),
    ("persistent_kernel", "record_in_alloc", FINISHED, r"finished: no\n"),
)

CACHING_OFF = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
ALLOCATIONS = (
    "cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz", "cuMemAllocManaged", "cuMemCreate",
)


def python_case(name, script, *arguments, env=None, env_under=None, timeout=90, runs=Case.runs):
    return Case(name, ("python3", f"{PYTHON}/{script}", *arguments), env or {}, env_under or {}, timeout, runs=runs)


TORCH = (
    python_case("PyTorch, caching off", "torch_train.py", env=CACHING_OFF),
    python_case("PyTorch, caching on", "torch_train.py"),
)
# What else real programs do with memory. Shared tensors: managed memory cannot be shared, as the driver cannot; and PyTorch itself shares none with
# caching off.
ASYNC, EXPANDABLE = ({"PYTORCH_CUDA_ALLOC_CONF": value} for value in ("backend:cudaMallocAsync", "expandable_segments:True"))
SHARING = (NATIVE, "direct", "pool", "arena")
REAL = (
    python_case("PyTorch, expandable segments", "torch_train.py", env=EXPANDABLE),
    python_case("PyTorch, its cudaMallocAsync", "torch_train.py", env=ASYNC),
    python_case("PyTorch, a CUDA graph of the whole step", "torch_graphs.py"),
    python_case("PyTorch, the same with its cudaMallocAsync", "torch_graphs.py", env=ASYNC),
    python_case("PyTorch, DataLoader workers forked after CUDA started", "torch_workers.py"),
    python_case("PyTorch, CUDA tensors shared between processes", "torch_sharing.py", runs=SHARING),
)
PAIR = (
    python_case("PyTorch, copies between GPUs", "torch_pair.py", "copies"),
    python_case("PyTorch, copies between GPUs, caching off", "torch_pair.py", "copies", env=CACHING_OFF),
    python_case("NCCL beside allocating threads (C61)", "torch_pair.py", "threads"),
    python_case("NCCL beside allocating threads, caching off (C61)", "torch_pair.py", "threads", env=CACHING_OFF),
    python_case("NCCL between processes", "torch_pair.py", "processes"),
    python_case("NCCL between processes, by CUDA IPC", "torch_pair.py", "processes", env={"NCCL_CUMEM_ENABLE": "0"}, runs=SHARING),
)
# Groups of the conformance program that allocate, and neither look at what the device has free nor end their context by a fault.
SANITIZED = ("pairs", "interiors", "attributes", "ranges", "other_context", "context_destroyed", "reset", "capture_own", "graph_memory", "waits",
             "order", "streams", "pools", "own_pools", "ipc", "virtual_memory")
CUPY = (
    python_case("CuPy, its pool", "cupy_work.py", "pool"),
    python_case("CuPy, its pool of stream-ordered memory", "cupy_work.py", "async"),
    python_case("CuPy, no pool", "cupy_work.py", "raw"),
)
# JAX's default share of the card is 75 %; a tenth is taken the same way and leaves room for what runs beside it.
JAX = (
    python_case("JAX, no preallocation", "jax_work.py", env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    python_case("JAX, preallocating", "jax_work.py", env={"XLA_PYTHON_CLIENT_MEM_FRACTION": ".10"},
                env_under={"arena": {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".03"}, "managed": {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".01"}}),
)
NUMBA = (python_case("numba-cuda", "numba_work.py"),)


def compare_all(section, cases, at_once=1):
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda case: compare(section, case), cases))


@functools.cache
def gpus():
    return run(("nvidia-smi", "-L"), {}, 30).stdout.count("GPU ")


def bats_files(section, name, output, files, env, seconds):
    """Runs files of the integration tests on the real driver; the account of each test goes to $OUT/OUTPUT.tap, also if the run was cut off."""
    unpacked = GPU_PACKAGES / "bin/bats"
    env = {"CUPLUG_TEST_DRIVER": "gpu", "BACKENDS": "direct pool arena:size=4G managed:max=512M", "JOBS": "12", **env}
    if unpacked.exists():
        env["PATH"] = f"{unpacked.parent.resolve()}:{os.environ['PATH']}"
        env["BATS_LIB_PATH"] = str((GPU_PACKAGES / "lib/bats").resolve())
    elif section.run(("bats", "--version"), {}, 10).status != 0:
        section.skipped(name, "no bats here: run tests/gpu/prepare first and bring .gpu along")
        return
    results = section.build / "check" / output
    outcome = section.run(("make", "check-gpu-bats", f"BUILD={os.path.relpath(section.build)}", f"BATS_OUTPUT={os.path.relpath(results)}",
                           f"BATS_FILES={files}"), env, seconds)
    if os.environ.get("OUT"):
        taps = sorted(results.glob("*.tap"))
        pathlib.Path(os.environ["OUT"], f"{output}.tap").write_text("".join(f"# {tap.stem}\n{tap.read_text()}" for tap in taps))
    counts = re.findall(r"^.*\d+ passed, \d+ failed.*$", outcome.stdout, re.M)
    figure = counts[-1].strip() if counts else "printed no count"
    if outcome.status == 0 and re.search(r"\b[1-9]\d* passed, 0 failed", figure):
        section.ok(name, figure)
        return
    broken = "\n".join(re.findall(r"^not ok .*$(?:\n^#.*$)*", outcome.stdout, re.M))
    section.failed(name, f"{figure}, {outcome.how_it_ended()}", broken + "\n" + outcome.describe(60))


def bats(section):
    """With two GPUs, on the second one: tests/gpu/run starts this section beside all others then."""
    bats_files(section, "integration tests on the real driver", "gpu-bats", "", {"CUDA_VISIBLE_DEVICES": "1"} if gpus() > 1 else {}, 500)


def programs(section):
    cases = [
        Case(f"{program}, {words}", (f"{section.build}/gpu/{program}.{way}",))
        for program in COMPARED
        for way, words in WAYS.items()
    ]
    compare_all(section, cases, at_once=4)


def correctness(section):
    def program(name, *arguments):
        return (f"{section.build}/gpu/{name}.static", *arguments)

    compare_all(section, (
        Case("cudaFree waits for kernels (C49)", program("free_waits_for_kernel"), expected=WAITS),
        Case("allocation beside a persistent kernel", program("persistent_kernel"), expected=FINISHED),
        Case("20,000 blocks over 8 streams", program("recycled_blocks", "20000", "10000"), expected=RECYCLED,
             runs=(NATIVE, "direct", "managed", "async", "vmm")),
        Case("130,000 blocks over 8 streams", program("recycled_blocks", "130000", "100000"), expected=RECYCLED, runs=("arena",)),
        Case("1,100,000 blocks over 8 streams", program("recycled_blocks", "1100000", "1000000"), expected=RECYCLED, runs=("pool",)),
    ))


def notices(section, program, fault, good, bad):
    """A test must fail when the thing it tests is broken, and pass on the same build when it is not."""
    argv = (f"{section.build}/gpu/{program}.static",)
    preload = section.preload("pool", "debug/libcuplug.so")
    sound = section.run(argv, preload, 40)
    name = f"{program}, debug build"
    if sound.status == 0 and sound.stdout == good:
        section.ok(name, f"{sound.seconds:.1f} s")
    else:
        section.failed(name, sound.how_it_ended(), difference(good, sound.stdout) + "\n" + sound.describe())
    # What goes wrong depends on what runs beside what: a fault may need more than one run to show.
    for attempt in range(1, 6):
        faulty = section.run(argv, {**preload, "CUPLUG_DEBUG_FAULT": fault}, 40)
        noticed = faulty.status == 0 and re.search(bad, faulty.stdout)
        if noticed or faulty.status != 0:
            break
    name = f"{program} notices the fault {fault}"
    if noticed:
        section.ok(name, f"run {attempt}: {' / '.join(faulty.stdout.splitlines())}")
    else:
        section.failed(name, f"not noticed in {attempt} runs, {faulty.how_it_ended()}", faulty.describe())


def faults(section):
    for case in FAULTS:
        notices(section, *case)


def counted(section, env):
    """One PyTorch run with the counter next to the driver; returns outcome, the shim's totals, the counter's."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**CACHING_OFF, **env, "COUNTER_OUT": f"{folder}/count"}
        outcome, totals = section.run_with_stats(TORCH[0].argv, env, 120)
        return outcome, totals, sum_json(pathlib.Path(folder).iterdir(), lambda document: document)


def counter(section):
    library = (section.build / "gpu/libcounter.so").resolve()
    before, _, native_counts = counted(section, {"LD_PRELOAD": str(library)})
    after, totals, pool_counts = counted(section, section.preload("pool", behind=(library,)))
    native_total, pool_total = (sum(c.get(name, 0) for name in ALLOCATIONS) for c in (native_counts, pool_counts))

    name = "PyTorch caching off: driver allocations, pool against native (under 2 %)"
    figure = f"{pool_total} of {native_total}"
    detail = f"native: {native_counts}\npool: {pool_counts}\nshim: {totals}\n{before.describe()}\n{after.describe()}"
    # A step makes hundreds of tensors; fewer allocations than this means that the counter did not see them.
    if native_total < 10000 or not pool_total or before.status != 0 or after.status != 0:
        section.failed(name, f"{figure}: no valid measurement", detail)
    elif pool_total >= native_total * 0.02:
        section.failed(name, f"{figure}: {100 * pool_total / native_total:.2f} %", detail)
    else:
        section.ok(name, f"{figure}: {100 * pool_total / native_total:.2f} %; the shim itself says "
                   f"{totals.get('driver_allocs')} of {totals.get('allocations')}; "
                   f"{pool_counts.get('cuCtxRecordEvent')} fence records, {pool_counts.get('cuCtxWaitEvent')} waits")
    if before.status == 0 and before.stdout == after.stdout:
        section.ok("PyTorch caching off: losses behind the counter")
    else:
        section.failed("PyTorch caching off: losses behind the counter", "different output",
                       difference(before.stdout, after.stdout))


def composed(section):
    """What the pool may not have, or what is large, is managed memory: a training run that needs more than the pool gets has the losses that it has without."""
    case = python_case("PyTorch, caching off, ten times the batch", "torch_train.py", "--batches", "10", env=CACHING_OFF, timeout=100)
    oracle = section.run(case.argv, case.env, case.timeout)
    if oracle.status != 0:
        section.failed(f"{case.name}, native", oracle.how_it_ended(), oracle.describe())
        return
    section.ok(f"{case.name}, native", f"{oracle.seconds:.1f} s")
    settings = {"CUPLUG_LIMIT": "4G", "CUPLUG_FALLBACK": "managed:max=4G"}
    with tempfile.TemporaryDirectory() as folder:
        outcome = section.run(case.argv, {**case.env, **section.preload("pool"), **settings, "CUPLUG_STATS": f"{folder}/%p.json"}, case.timeout)
        read = [pathlib.Path(folder) / name for name in os.listdir(folder)]
        totals = sum_json(read, lambda document: document.get("totals", {}))
        pool, managed = (
            sum_json(read, lambda document: next((each for each in document.get("backends", []) if each["name"] == name), {}))
            for name in ("pool", "managed")
        )
    name = f"{case.name}, a pool limited to 4 GiB and managed memory for the rest"
    figure = f"peak live: pool {mib(pool, 'peak_live_bytes')}, managed {mib(managed, 'peak_live_bytes')}, {managed.get('allocations')} of {totals.get('allocations')} allocations"
    if outcome.stdout != oracle.stdout:
        judge(section, name, outcome, oracle.stdout, totals, "pool")
    elif not managed.get("allocations") or pool.get("peak_live_bytes", 0) > (4 << 30) + (64 << 20):  # a peak is exact but for 16 MiB a thread
        section.failed(name, figure, outcome.describe())
    else:
        section.ok(name, f"{figure}, {outcome.seconds:.1f} s")


def pluggable(section):
    """cuplug as the allocator that PyTorch and CuPy are told to use, without LD_PRELOAD."""
    train, graph = TORCH[1], python_case("PyTorch, a CUDA graph in a MemPool", "torch_graph.py")
    for case, arguments in ((train, None), (graph, None), (CUPY[1], ("c", "python"))):
        oracle = section.run(case.argv, case.env, case.timeout)
        if oracle.status != 0 or not oracle.stdout:
            section.failed(f"{case.name}, native", oracle.how_it_ended(), oracle.describe())
            continue
        for backend in ("pool", "arena"):
            for argument in arguments or (None,):
                argv = (*case.argv[:-1], argument) if argument else case.argv
                env = {**case.env, "ALLOCATOR_LIBRARY": str(section.build / "libcuplug.so"), "CUPLUG_BACKEND": SPECS[backend]}
                outcome, totals = section.run_with_stats(argv, env, case.timeout)
                name = f"{case.name}, cuplug as its allocator{f' ({argument})' if argument else ''}, {backend}"
                judge(section, name, outcome, oracle.stdout, totals, backend)


def plugins(section):
    """Allocator libraries serve programs that are not PyTorch. Which backend served is read off the statistics: one that
    could not be opened says so on stderr, and a run whose shim was not silent has failed."""
    build = section.run(("make", f"-j{os.cpu_count()}", "allocators", "CUPLUG_TEST_DRIVER=gpu", f"BUILD={os.path.relpath(section.build)}"), {}, 90)
    if build.status != 0:
        section.failed("the libraries of the tests", build.how_it_ended(), build.describe(60))
        return
    libraries = ["example", "pair"]
    if (RMM / "_torch_allocator.so").exists():
        libraries.append("RMM")
    else:
        section.skipped("RMM's allocator library", "not here: run tests/gpu/prepare first and bring .gpu along")
    # RMM's library needs two others, which no run path names.
    paths = ":".join(filter(None, (str(RMM.resolve()), os.environ.get("LD_LIBRARY_PATH"))))
    env_under = {"RMM": {"LD_LIBRARY_PATH": paths}}
    runs = (NATIVE, *libraries)
    cases = [
        Case(f"vector_streams, {words}", (f"{section.build}/gpu/vector_streams.{way}",), env_under=env_under, runs=runs)
        for way, words in WAYS.items()
    ]
    cases.append(Case("cudaFree waits for kernels (C49)", (f"{section.build}/gpu/free_waits_for_kernel.static",),
                      env_under=env_under, expected=WAITS, runs=runs))
    if section.run(("python3", "-c", "import cupy"), {}, 60).status == 0:
        cases += [Case(case.name, case.argv, case.env, env_under, case.timeout, runs=runs) for case in CUPY]
    else:
        section.skipped("CuPy", "Python here has no working cupy")
    compare_all(section, cases, at_once=3)


def errors(section):
    """What a program hears after a kernel's fault: the same as on the bare driver, or the same soon."""
    compare_all(section, [
        Case(f"a kernel's fault ({fault}), {way}", (f"{section.build}/gpu/kernel_fault.static", fault, way), timeout=40)
        for fault in ("wild", "assert", "trap", "misaligned") for way in ("allocations", "frees", "large", "stream", "crossed")
    ], at_once=6)


def runtimes(section):
    """Programs of older toolkits, on today's driver."""
    cases = []
    for major in ("11", "12", "13"):
        program = section.build / f"gpu/runtime_vectors.{major}"
        if program.exists():
            cases.append(Case(f"vectors with the runtime of CUDA {major}", (str(program), major)))
        else:
            section.skipped(f"the runtime of CUDA {major}", "not here: run tests/gpu/prepare first and bring .gpu along")
    compare_all(section, cases, at_once=3)


def conformance_program(section, linkage, backend):
    """The program and the environment to run it in."""
    env = conformance_lines.environment(section.build, None, backend, section.build / "programs-gpu")
    return str(section.build / f"programs-gpu/conformance.{linkage}"), env


def conformance_run(section, linkage, backend):
    """The lines of one run of the conformance program, what was said on stderr, and the groups that want more devices than there are."""
    return conformance_lines.all_lines(*conformance_program(section, linkage, backend), timeout=20, jobs=12)


def build_conformance(section):
    outcome = section.run(("make", f"-j{os.cpu_count()}", "conformance", "CUPLUG_TEST_DRIVER=gpu", f"BUILD={os.path.relpath(section.build)}"),
                          {}, 90)
    if outcome.status != 0:
        section.failed("the program", outcome.how_it_ended(), outcome.describe(60))
    return outcome.status == 0


def write_oracle(section):
    """This driver's own lines become the oracle, if they come twice, and of the static runtime too; all are left in $OUT. The lines of two
    devices stay as they are where there is one."""
    if not build_conformance(section):
        return
    committed = conformance_lines.read_oracle()
    runs = {}
    for name, linkage in (("first run", "shared"), ("second run", "shared"), ("static runtime", "static")):
        program, env = conformance_program(section, linkage, conformance_lines.BARE)
        lines, _, left_out = conformance_run(section, linkage, conformance_lines.BARE)
        runs[name] = conformance_lines.with_left_out(program, env, committed, lines, left_out)
    oracle = runs["first run"]
    if left_out:
        section.skipped("the lines of two devices", f"one device here: kept as they are: {', '.join(left_out)}")
    text = "\n".join(oracle) + "\n"
    conformance_lines.ORACLE.write_text(text)
    for name, found in runs.items():
        other = "\n".join(found) + "\n"
        if os.environ.get("OUT"):
            pathlib.Path(os.environ["OUT"], f"oracle, {name}.txt".replace(", ", "-").replace(" ", "-")).write_text(other)
        if other == text:
            section.ok(f"the oracle, {name}", f"{len(oracle)} lines")
        else:
            section.failed(f"the oracle, {name}", "other lines than in the first run", difference(text, other))


def conformance(section):
    """The real driver's lines, with and without the shim, are the committed oracle's, but for the documented differences."""
    if not build_conformance(section):
        return
    oracle = conformance_lines.read_oracle()
    for linkage in ("shared", "static"):
        for backend in conformance_lines.SPECS:
            found, said, left_out = conformance_run(section, linkage, backend)
            wrong = conformance_lines.compare(backend, oracle, found, left_out)
            name = f"{linkage} runtime, {backend or NATIVE}"
            if wrong:
                section.failed(name, f"{len(found)} lines, {len(wrong)} differ", "\n".join(wrong + ["stderr:", *said[:20]]))
            else:
                section.ok(name, f"{len(found)} lines{f', one device: without {len(left_out)} groups of two' if left_out else ''}")


def pair(section):
    """Two GPUs: peer access, copies, and collectives within and between processes."""
    if gpus() < 2:
        section.skipped("everything", "needs two GPUs")
        return
    compare(section, Case("kernels on the peer's memory (C81)", (f"{section.build}/gpu/peer_kernels.static",), expected=PEER))
    notices(section, "peer_kernels", "nofence", PEER, r"new one: wrong words [1-9]")
    bats_files(section, "integration tests of two devices", "gpu-pair", "tests/bats/devices.bats", {}, 100)
    compare_all(section, PAIR, at_once=3)


def sanitized(section, checked, group):
    """A group of the conformance program under the tool: with the pool the lines are the bare driver's there, but for the documented differences."""
    program = str(section.build / "programs-gpu/conformance.shared")
    name = f"memcheck, conformance {group}"
    bare = section.run((*checked, program, group), {}, 60)
    pool = section.run((*checked, program, group), section.preload("pool"), 60)
    lines = conformance_lines.by_name(bare.stdout.splitlines())
    wrong = conformance_lines.compare("pool", bare.stdout.splitlines(), pool.stdout.splitlines())
    wrong = [difference for difference in wrong if not difference.startswith("differences: ")]  # which are those of all groups
    if bare.status != 0 or not lines:
        section.failed(f"{name}, native", bare.how_it_ended(), bare.describe())
    elif pool.status != 0 or wrong or "ERROR SUMMARY: 0 errors" not in pool.stderr:
        section.failed(f"{name}, pool", pool.how_it_ended(), "\n".join(wrong) + "\n" + pool.describe())
    else:
        section.ok(name, f"{len(lines)} lines")


def sanitizer(section):
    """NVIDIA's compute-sanitizer finds nothing: no access beyond a block, no leak of the shim's making, and the same lines as without the shim."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(tool, os.X_OK):
        section.skipped("everything", "no compute-sanitizer here")
        return
    checked = (tool, "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "99", "--log-file", "/dev/stderr")
    programs = [Case(f"memcheck, {name}", (*checked, f"{section.build}/gpu/{name}.{way}"), timeout=60)
                for name, way in (("vector_streams", "static"), ("pitched", "shared"), ("pool_graph", "static"))]
    compare_all(section, programs, at_once=3)
    if build_conformance(section):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda group: sanitized(section, checked, group), SANITIZED))


def python_section(cases, at_once=1):
    return lambda section: compare_all(section, cases, at_once)


# name -> (function, seconds, Python module it needs)
SECTIONS = {
    "programs": (programs, 120, None),
    "correctness": (correctness, 90, None),
    "faults": (faults, 90, None),
    "errors": (errors, 120, None),
    "runtimes": (runtimes, 90, None),
    "torch": (python_section(TORCH), 300, "torch"),
    "bats": (bats, 510, None),
    "counter": (counter, 200, "torch"),
    "cupy": (python_section(CUPY), 240, "cupy"),
    "jax": (python_section(JAX), 240, "jax"),
    "numba": (python_section(NUMBA), 120, "numba.cuda"),
    "pluggable": (pluggable, 200, "torch"),
    "plugins": (plugins, 300, None),
    "conformance": (conformance, 240, None),
    "composed": (composed, 200, "torch"),
    "real": (python_section(REAL, at_once=4), 240, "torch"),
    "pair": (pair, 240, "torch"),
    "sanitizer": (sanitizer, 240, None),
}
PHASES = (("programs",), ("correctness",), ("faults",), ("conformance",), ("errors", "runtimes"), ("torch",), ("composed",), ("pair",),
          ("real", "sanitizer"), ("counter", "cupy", "jax", "numba", "pluggable", "plugins"), ("bats",))
