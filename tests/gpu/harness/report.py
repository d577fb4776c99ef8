"""Collects what ran and how it ended, and writes RESULTS.md.

A line is printed as soon as a result is there; a failure prints enough to be understood from afar. With $OUT set, the
results and the full text of all failures are written there too. Several sections may report at once.
"""
import datetime
import os
import pathlib
import re
import subprocess
import threading
import time
from dataclasses import dataclass

OK, FAILED, SKIPPED = "ok", "FAILED", "skipped"


def first_line(*command):
    """What a command says in one line; empty if there is no such command or it fails."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return (answer.stdout.strip().splitlines() or [""])[0]


def commit():
    described = first_line("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    described = os.environ.get("CUPLUG_COMMIT") or described or "unknown"
    if described.endswith("-dirty"):
        return described.removesuffix("-dirty") + ", with uncommitted changes"
    return described


@dataclass(frozen=True)
class Row:
    section: str
    name: str
    outcome: str
    figure: str
    commit: str

    def case(self):
        """What the runs of one case have in common: cases that run side by side report in turns."""
        return self.section, self.name.rpartition(", ")[0] or self.name


class Report:
    def __init__(self, results_path, sections):
        self.results_path = pathlib.Path(results_path)
        self.sections = list(sections)
        self.facts = {}
        self.rows = []
        self.failures = []
        self.commit = ""
        self.started = time.monotonic()
        self.lock = threading.Lock()

    def fact(self, name, value):
        self.facts[name] = value
        print(f"{name}: {value}", flush=True)

    def keep(self, commit, wanted):
        """Takes over what earlier runs found in the sections that are not run this time, each row with the commit that it is of.

        All sections together may take longer than a machine is lent for."""
        self.commit = commit
        text = self.results_path.read_text() if self.results_path.exists() else ""
        rows = re.findall(r"^\| (\w+) \| (.*) \| (ok|FAILED|skipped) \| (.*) \| (\w+) \|$", text, re.M)
        self.rows += [Row(section, *rest) for section, *rest in rows if section not in (*wanted, "build")]
        if packages := re.search(r"^- Python packages: (.*)$", text, re.M):
            self.facts["Python packages"] = packages[1]

    def add(self, section, name, outcome, figure="", detail=""):
        with self.lock:
            self.rows.append(Row(section, name, outcome, figure, self.commit[:10].partition(",")[0]))
            print(f"{outcome:8}{section}: {name}{'  ' + figure if figure else ''}", flush=True)
            if outcome == FAILED:
                self.failures.append(f"=== {section}: {name}: {figure}\n{detail}\n")
                print("\n".join("    " + line for line in detail.splitlines()[:60]), flush=True)

    def count(self, outcome):
        """Rows of this run."""
        return sum(row.outcome == outcome and self.commit.startswith(row.commit) for row in self.rows)

    def summary(self):
        return f"{self.count(OK)} passed, {self.count(FAILED)} failed"

    def text(self):
        seen = [row.case() for row in self.rows]
        rows = sorted(self.rows, key=lambda row: (self.sections.index(row.section), seen.index(row.case())))
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        lines = ["# The run on a real GPU", "", "Written by `tests/gpu/run`.", "", f"- date: {date}"]
        lines += [f"- {name}: {value}" for name, value in self.facts.items()]
        lines += [f"- took: {time.monotonic() - self.started:.0f} s", ""]
        lines += ["This run's rows and the last of every other section, each with the commit that was run.", ""]
        lines += ["| section | what | outcome | figure | commit |", "| --- | --- | --- | --- | --- |"]
        lines += [
            f"| {row.section} | {row.name} | {row.outcome} | {row.figure.replace('|', '/')} | {row.commit} |" for row in rows
        ]
        all_rows = ", ".join(f"{sum(row.outcome == outcome for row in self.rows)} {word}" for outcome, word in
                             ((OK, "passed"), (FAILED, "failed"), (SKIPPED, "skipped")))
        return "\n".join([*lines, "", f"This run: {self.summary()}. All rows: {all_rows}.", ""])

    def write(self):
        """Called after every phase: a run that is cut short leaves what it had."""
        with self.lock:
            self.results_path.write_text(self.text())
            if os.environ.get("OUT"):
                out = pathlib.Path(os.environ["OUT"])
                (out / "RESULTS.md").write_text(self.text())
                (out / "failures.log").write_text("\n".join(self.failures) or "no failures\n")
