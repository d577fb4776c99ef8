"""Runs the conformance program, one process for each group, and compares its lines with the oracle's.

A group that crashes or hangs is a line that says so and takes nothing else along. The differences that are meant are in the
file `differences`; whatever else differs is a fault, and so is an entry there that makes no difference.
"""
import os
import pathlib
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
ORACLE = pathlib.Path(os.environ.get("CONFORMANCE_ORACLE", HERE / "oracle.txt"))
DIFFERENCES = HERE / "differences"
SHOWN = 40


def ending(status):
    return "timed out" if status is None else signal.Signals(-status).name if status < 0 else f"status {status}"


def run_once(argv, env, timeout):
    """Standard output and how it ended. The whole process group is gone afterwards."""
    with subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=timeout)
            return out, err, process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            return out, err, None


def run_group(program, env, group, independent, timeout, said):
    """The group's lines. What it wrote to stderr is added to `said`."""
    lines = []
    while True:
        out, err, status = run_once([program, group, *([str(len(lines))] if lines else [])], env, timeout)
        lines += out.splitlines()
        said += err.splitlines()
        if status == 0:
            return lines
        # A line that was begun and not ended is the one that did it.
        if out and not out.endswith("\n"):
            lines[-1] += f" {ending(status)}"
        else:
            lines.append(f"{group}/ended: {ending(status)}")
            return lines
        if not independent:
            return lines


def groups_of(program, env):
    out, err, status = run_once([program, "list"], env, 30)
    if status != 0:
        raise RuntimeError(f"{program} list: {ending(status)}: {err}")
    return [line.split(maxsplit=1) for line in out.splitlines()]


def all_lines(program, env, timeout=40, jobs=4):
    """(lines, stderr): all groups side by side, but for those that look at what the device has free."""
    said = []
    groups = [(group[0], group[1:] == ["cases"], group[1:] == ["alone"]) for group in groups_of(program, env)]
    found = {}

    def one(group):
        found[group[0]] = run_group(program, env, group[0], group[1], timeout, said)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, [group for group in groups if not group[2]]))
    for group in groups:
        if group[2]:
            one(group)
    return [line for group in groups for line in found[group[0]]], said


def by_name(lines):
    """name -> outcome. A name that comes again is numbered, so that none hides another."""
    outcomes = {}
    for line in lines:
        name, _, outcome = line.partition(": ")
        number = 2
        unique = name
        while unique in outcomes:
            unique = f"{name} ({number})"
            number += 1
        outcomes[unique] = outcome
    return outcomes


class Difference:
    """backends | lines (a regular expression) | the oracle's words => ours | why"""

    def __init__(self, text):
        self.text = text
        backends, pattern, change, self.why = (part.strip() for part in text.split(" | "))
        self.pattern = re.compile(pattern)
        self.backends = backends.split()
        self.old, self.new = (part.strip() for part in change.split("=>"))

    def applies(self, backend, name, outcome):
        return backend in self.backends and self.pattern.fullmatch(name) and self.old in outcome


def differences():
    if not DIFFERENCES.exists():
        return []
    lines = DIFFERENCES.read_text().splitlines()
    return [Difference(line) for line in lines if line.strip() and not line.startswith("#")]


def compare(backend, oracle, lines):
    """What is wrong with the lines of a run under this backend (None: without the shim), in words; nothing if they are right."""
    expected, actual, listed = by_name(oracle), by_name(lines), differences()
    used, wrong = set(), []
    for name, outcome in expected.items():
        for number, entry in enumerate(listed):
            if entry.applies(backend, name, outcome):
                outcome = outcome.replace(entry.old, entry.new)
                used.add(number)
        if name not in actual:
            wrong.append(f"{name}: missing, expected: {outcome}")
        elif actual[name] != outcome:
            wrong.append(f"{name}:\n  expected {outcome}\n  got      {actual[name]}")
    wrong += [f"{name}: not in the oracle: {outcome}" for name, outcome in actual.items() if name not in expected]
    wrong += [f"differences: nothing differs: {entry.text}" for number, entry in enumerate(listed)
              if backend in entry.backends and number not in used]
    return wrong


def read_oracle():
    return ORACLE.read_text().splitlines()


def sanitizer_of(library):
    """gcc's sanitizers refuse to start behind another preload, so they come first."""
    out = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=False).stdout
    return re.findall(r"=> (\S*lib[at]san\S*)", out)[:1]


def environment(build, driver_path, backend=None):
    """Nothing of the caller's settings reaches the program."""
    env = {k: v for k, v in os.environ.items() if not re.match(r"LD_PRELOAD$|CUPLUG_|SIMCUDA_", k)}
    if driver_path:
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, (str(driver_path), os.environ.get("LD_LIBRARY_PATH"))))
    library = (pathlib.Path(build) / "libcuplug.so").resolve()
    preload = sanitizer_of(library)
    if preload:
        env.setdefault("ASAN_OPTIONS", "detect_leaks=0")
    if backend:
        preload.append(str(library))
        env["CUPLUG_BACKEND"] = backend
    if preload:
        env["LD_PRELOAD"] = " ".join(preload)
    return env
