"""The benchmark's workers: processes that measure when they are asked to, and the order in which they are asked.

Every allocator lives in a process of its own kind (with or without cuplug preloaded, with PyTorch's, RMM's or CuPy's libraries), all
are started before anything is measured, and they take turns: what drifts during a run hits them alike.
"""

import collections
import csv
import io
import lzma
import os
import pathlib
import re
import select
import signal
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

TRACES = pathlib.Path(__file__).with_name("traces")
OURS = re.compile(r"LD_PRELOAD$|CUPLUG_|SIMCUDA_|PYTORCH_|MAKEFLAGS$|MAKELEVEL$")


class Worker:
    """A process that answers each line with a line; "error: …" once it has died or was silent for too long."""

    def __init__(self, argv, env):
        kept = {key: value for key, value in os.environ.items() if not OURS.match(key)}
        self.said = tempfile.TemporaryFile()
        self.unread = b""
        self.broken = None
        try:
            self.process = subprocess.Popen(
                argv,
                env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.said,
                start_new_session=True,
            )
        except OSError as error:
            self.process, self.broken = None, f"error: {error}"

    def read_line(self, timeout):
        if self.broken:
            return self.broken
        deadline = time.monotonic() + timeout
        while b"\n" not in self.unread:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not piece:
                self.broken = f"error: {'ended' if ready else f'silent for {timeout} s'}: {self.last_words()}"
                self.end()
                return self.broken
            self.unread += piece
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode(errors="replace")

    def ask(self, line, timeout=60):
        if not self.broken:
            try:
                self.process.stdin.write(f"{line}\n".encode())
                self.process.stdin.flush()
            except OSError:
                pass  # it has ended, which reading tells
        return self.read_line(timeout)

    def last_words(self):
        self.said.seek(0)
        return " / ".join(self.said.read().decode(errors="replace").splitlines()[-3:])[:300]

    def end(self):
        if self.process and self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait(timeout=10)


@dataclass(frozen=True)
class Allocator:
    label: str
    worker: str  # the key of the worker it lives in
    name: str  # what that worker calls it


@dataclass
class Measurement:
    """One row of the results: a command, of which {} is the allocator's name."""

    key: str
    command: str
    labels: tuple
    repetitions: int = 5


@dataclass
class Results:
    """key -> label -> figure -> values, one of each repetition; or why there are none."""

    found: dict = field(default_factory=dict)
    errors: dict = field(default_factory=lambda: collections.defaultdict(dict))

    def add(self, key, label, answer):
        if answer.startswith("error: "):
            self.errors[key][label] = answer.removeprefix("error: ")
            return
        for pair in answer.split():
            figure, _, value = pair.partition("=")
            self.found.setdefault(key, {}).setdefault(label, {}).setdefault(figure, []).append(float(value))

    def labels(self, key):
        return self.found.get(key, {})

    def values(self, key, label, figure="ns"):
        return self.labels(key).get(label, {}).get(figure, [])

    def median(self, key, label, figure="ns"):
        values = self.values(key, label, figure)
        return statistics.median(values) if values else None

    def spread(self, key, label, figure="ns"):
        """Half of the distance from the least to the most, as a share of the median."""
        values = self.values(key, label, figure)
        return (max(values) - min(values)) / 2 / statistics.median(values) if values and statistics.median(values) else 0

    def brief(self, key, label):
        return self.errors[key].get(label) or " ".join(
            f"{figure} {statistics.median(values):.0f}" for figure, values in self.labels(key).get(label, {}).items()
        )

    def lines(self):
        """For other programs: key, allocator, figure, median, least, most, repetitions; separated by tabs."""
        for key, labels in self.found.items():
            for label, figures in labels.items():
                for figure, values in figures.items():
                    yield "\t".join(
                        (
                            key,
                            label,
                            figure,
                            f"{statistics.median(values):.2f}",
                            f"{min(values):.2f}",
                            f"{max(values):.2f}",
                            str(len(values)),
                        )
                    )


def measure(measurements, allocators, workers, results, deadline):
    """What does not begin before the deadline is left out."""
    by_label = {allocator.label: allocator for allocator in allocators}
    for m in measurements:
        present = [by_label[label] for label in m.labels if label in by_label]
        for repetition in range(m.repetitions):
            turn = repetition % max(len(present), 1)
            for allocator in present[turn:] + present[:turn]:
                if time.monotonic() > deadline:
                    return
                if allocator.label not in results.errors[m.key]:
                    results.add(m.key, allocator.label, workers[allocator.worker].ask(m.command.format(allocator.name)))
        print(m.key, *(f"[{a.label} {results.brief(m.key, a.label)}]" for a in present), flush=True)


def write_traces(folder):
    """The traces as the worker reads them, "slot size stream" a line; returns name -> path. The files' pointers are slots already."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for packed in sorted(TRACES.glob("*.csv.xz")):
        name = packed.name.removesuffix(".csv.xz")
        path = paths[name] = folder / f"{name}.trace"
        if path.exists() and path.stat().st_mtime >= packed.stat().st_mtime:
            continue
        with lzma.open(packed, "rt") as file:
            rows = list(csv.DictReader(file))
        text = io.StringIO()
        for row in rows:
            stream = 0 if row["Stream"] == "(nil)" else int(row["Stream"], 16)
            text.write(f"{int(row['Pointer'], 16)} {row['Size'] if row['Action'] == 'allocate' else 0} {stream}\n")
        path.write_text(text.getvalue())
    return paths
