"""Runs a program without the shim and under its backends and compares what it printed and how it ended.

The run without the shim is the oracle, unless the case states the output itself. A run under the shim also has to
show, by the shim's own statistics, that the shim was there, and the shim must have kept silent.
"""
import difflib
import json
import pathlib
import re
import tempfile
import time
from dataclasses import dataclass, field

from harness.process import run
from harness.report import FAILED, OK, SKIPPED

NATIVE = "native"
# What CUPLUG_BACKEND is for each. Several programs run side by side, so the arena must leave room for others, and managed
# memory stays far below the card's.
SPECS = {"direct": "direct", "pool": "pool", "arena": "arena:size=8G", "managed": "managed:max=2G"}
BACKENDS = tuple(SPECS)
SPECS |= {"async": "async", "vmm": "pool:source=vmm"}
# Allocator libraries: the example plugin, the smallest pair of functions, and RMM's (see tests/gpu/prepare).
ROOT = pathlib.Path(__file__).resolve().parents[3]
SPECS |= {name: str(ROOT / path) for name, path in {
    "example": "build/programs-gpu/allocators/example.so",
    "pair": "build/programs-gpu/allocators/plain.so",
    "RMM": ".gpu/rmm/_torch_allocator.so",
}.items()}


@dataclass(frozen=True)
class Case:
    name: str
    argv: tuple
    env: dict = field(default_factory=dict)
    env_under: dict = field(default_factory=dict)  # backend -> what differs there
    timeout: int = 60
    expected: str = None  # stdout, where the program states what is right
    runs: tuple = (NATIVE, *BACKENDS)


class Section:
    """A part of the run with a time limit of its own: whatever it starts ends by then."""

    def __init__(self, name, seconds, build, report):
        self.name, self.build, self.report = name, build, report
        self.deadline = time.monotonic() + seconds

    def ok(self, name, figure=""):
        self.report.add(self.name, name, OK, figure)

    def failed(self, name, why, detail=""):
        self.report.add(self.name, name, FAILED, why, detail)

    def skipped(self, name, why):
        self.report.add(self.name, name, SKIPPED, why)

    def run(self, argv, env, timeout):
        return run(argv, env, min(timeout, self.deadline - time.monotonic()))

    def preload(self, backend, library="libcuplug.so", behind=()):
        libraries = [str(self.build / library), *map(str, behind)]
        return {"LD_PRELOAD": " ".join(libraries), "CUPLUG_BACKEND": SPECS[backend]}

    def run_with_stats(self, argv, env, timeout):
        """Returns the outcome and the shim's totals over all processes of the run (empty: none wrote any)."""
        with tempfile.TemporaryDirectory() as folder:
            outcome = self.run(argv, {**env, "CUPLUG_STATS": f"{folder}/%p.json"}, timeout)
            return outcome, sum_json(pathlib.Path(folder).iterdir(), lambda document: document.get("totals", {}))


def sum_json(paths, pick):
    sums = {}
    for path in paths:
        try:
            document = json.loads(path.read_text())
        except ValueError:
            return {"unreadable": 1}
        for key, value in pick(document).items():
            if isinstance(value, int):
                sums[key] = sums.get(key, 0) + value
    return sums


def difference(expected, actual):
    diff = difflib.unified_diff(expected.splitlines(), actual.splitlines(), "expected", "actual", lineterm="", n=1)
    return "\n".join(list(diff)[:25])


def shim_problem(outcome, totals):
    spoken = [line for line in outcome.stderr.splitlines() if line.startswith("cuplug")]
    if spoken:
        return f"the shim was not silent: {spoken[0][:200]}"
    if "unreadable" in totals:
        return "the statistics are not JSON"
    if not totals.get("allocations") and not totals.get("vmm_allocs"):
        return "the shim saw no allocation"
    return None


def figures(outcome, backend, totals):
    parts = []
    pace = re.search(r"ms_per_step ([\d.]+)", outcome.stderr)
    if pace:
        parts.append(f"{pace[1]} ms/step")
    if backend not in (NATIVE, "direct"):
        parts.append(
            f"{totals.get('driver_allocs')} driver allocations for {totals.get('allocations')}, "
            f"{totals.get('fences')} fences, peak live {mib(totals, 'peak_live_bytes')}, "
            f"reserved {mib(totals, 'peak_reserved_bytes')}"
        )
    return ", ".join(parts) or f"{outcome.seconds:.1f} s"


def mib(totals, key):
    return f"{totals.get(key, 0) / 2**20:.0f} MiB"


def native(section, case):
    """Returns the oracle's outcome, or None when it failed."""
    outcome = section.run(case.argv, case.env, case.timeout)
    name = f"{case.name}, {NATIVE}"
    if outcome.status != 0:
        section.failed(name, outcome.how_it_ended(), outcome.describe())
    elif not outcome.stdout:
        section.failed(name, "printed nothing", outcome.describe())
    elif case.expected not in (None, outcome.stdout):
        section.failed(name, "wrong output", difference(case.expected, outcome.stdout) + "\n" + outcome.describe())
    else:
        section.ok(name, figures(outcome, NATIVE, {}))
        return outcome
    return None


def under_backend(section, case, backend, expected):
    outcome, totals = section.run_with_stats(case.argv, {**case.env, **section.preload(backend), **case.env_under.get(backend, {})}, case.timeout)
    judge(section, f"{case.name}, {backend}", outcome, expected, totals, backend)


def judge(section, name, outcome, expected, totals, backend):
    """Reports whether a run behind the shim printed what is expected, was served, and heard nothing from the shim."""
    problem = shim_problem(outcome, totals)
    if outcome.status != 0:
        section.failed(name, outcome.how_it_ended(), outcome.describe())
    elif outcome.stdout != expected:
        section.failed(name, "different output", difference(expected, outcome.stdout) + "\n" + outcome.describe())
    elif problem:
        section.failed(name, problem, outcome.describe())
    else:
        section.ok(name, figures(outcome, backend, totals))


def compare(section, case):
    expected = case.expected
    if NATIVE in case.runs:
        oracle = native(section, case)
        if oracle is None:
            section.skipped(f"{case.name}, under the shim", "the run without the shim failed")
            return
        expected = oracle.stdout
    for backend in case.runs:
        if backend != NATIVE:
            under_backend(section, case, backend, expected)
