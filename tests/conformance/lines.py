"""Runs the conformance program, one process for each group, and compares its lines with the oracle's.

A group that crashes or hangs is a line that says so and takes nothing else along. Groups of one device see one; those of a pair see
two, and are left out and not compared where the driver has one only. The differences that are meant are in the file `differences`;
whatever else differs is a fault, and so is an entry there that makes no difference.
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
# What is compared: the bare driver and each backend, as CUPLUG_BACKEND has it. What follows a colon bounds it and changes no rule.
BARE = None
SPECS = {BARE: None, "direct": "direct", "pool": "pool", "arena": "arena:size=1G", "managed": "managed:max=1G",
         "async": "async", "vmm": "pool:source=vmm", "plugin": "{programs}/allocators/example.so"}
MOST_DIFFERENCES = 20
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
    """name -> remarks, in the program's order."""
    out, err, status = run_once([program, "list"], with_devices(env, 2), 30)
    if status != 0:
        raise RuntimeError(f"{program} list: {ending(status)}: {err}")
    return {name: remarks for name, *remarks in map(str.split, out.splitlines())}


def with_devices(env, count):
    """So many devices: the simulated driver makes them, the real one's others are hidden."""
    if count > 1:
        return {**env, "SIMCUDA_DEVICES": str(count)}
    return {**env, "CUDA_VISIBLE_DEVICES": env.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}


def all_lines(program, env, timeout=40, jobs=4):
    """(lines, stderr, groups left out): all groups side by side, but for those that look at what the device has free."""
    said, found = [], {}
    groups = groups_of(program, env)
    left_out = [name for name, remarks in groups.items() if "lacking" in remarks]

    def one(name):
        own_env = with_devices(env, 2 if "pair" in groups[name] else 1)
        found[name] = run_group(program, own_env, name, "cases" in groups[name], timeout, said)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, [name for name in groups if name not in left_out and "alone" not in groups[name]]))
    for name, remarks in groups.items():
        if "alone" in remarks:
            one(name)
    return [line for name in groups for line in found.get(name, [])], said, left_out


def group_of(line):
    return line.partition("/")[0]


def with_left_out(program, env, oracle, lines, left_out):
    """The lines of a run, and in their place those that the oracle has of the groups that were left out of it."""
    return [line for name in groups_of(program, env) for line in (oracle if name in left_out else lines) if group_of(line) == name]


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
    """An entry: its backends and why they differ, then where: "lines", a regular expression for their names; "oracle", one for what is said
    there; "ours", what is said instead. The last three may come several times."""

    def __init__(self, text):
        head, *rest = (part.split(": ", 1) for part in text.splitlines())
        why, *rest = rest
        if head[0] != "backends" or why[0] != "why" or [field for field, _ in rest] != ["lines", "oracle", "ours"] * (len(rest) // 3):
            raise ValueError(f"{DIFFERENCES}: an entry is backends, why, and lines, oracle and ours, perhaps several times:\n{text}")
        self.backends = head[1].split()
        self.changes = [Change(*(value for _, value in rest[i:i + 3])) for i in range(0, len(rest), 3)]


class Change:
    def __init__(self, lines, oracle, ours):
        self.lines, self.oracle, self.ours = re.compile(lines), re.compile(oracle), ours

    def apply(self, name, outcome):
        return self.oracle.sub(self.ours, outcome, count=1) if self.lines.fullmatch(name) else outcome


def differences():
    if not DIFFERENCES.exists():
        return []
    text = re.sub(r"^#.*\n", "", DIFFERENCES.read_text(), flags=re.M)
    entries = [Difference(part.strip()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(entries) > MOST_DIFFERENCES:
        raise ValueError(f"{DIFFERENCES}: {len(entries)} entries, at most {MOST_DIFFERENCES} are meant")
    return entries


def expected_lines(backend, oracle):
    """The oracle's outcomes with the differences of this backend, and the changes that made none."""
    expected = by_name(oracle)
    changes = [change for entry in differences() if backend in entry.backends for change in entry.changes]
    idle = []
    for change in changes:
        changed = {name: change.apply(name, outcome) for name, outcome in expected.items()}
        if changed == expected:
            idle.append(change)
        expected = changed
    return expected, idle


def compare(backend, oracle, lines, left_out=()):
    """What is wrong with the lines of a run under this backend (None: without the shim), in words; nothing if they are right."""
    expected, idle = expected_lines(backend, oracle)
    actual, wrong = by_name(lines), []
    for name, outcome in expected.items():
        if group_of(name) in left_out:
            continue
        if name not in actual:
            wrong.append(f"{name}: missing, expected: {outcome}")
        elif actual[name] != outcome:
            wrong.append(f"{name}:\n  expected {outcome}\n  got      {actual[name]}")
    wrong += [f"{name}: not in the oracle: {outcome}" for name, outcome in actual.items() if name not in expected]
    return wrong + [f"differences: no line is changed by: {change.lines.pattern}: {change.oracle.pattern}" for change in idle]


def read_oracle():
    return ORACLE.read_text().splitlines()


def sanitizer_of(library):
    """gcc's sanitizers refuse to start behind another preload, so they come first."""
    out = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=False).stdout
    return re.findall(r"=> (\S*lib[at]san\S*)", out)[:1]


def environment(build, driver_path, backend, programs):
    """Of a run under this backend; the folder of programs has the example of a plugin, too. Nothing of the caller's settings reaches the program."""
    env = {k: v for k, v in os.environ.items() if not re.match(r"LD_PRELOAD$|CUPLUG_|SIMCUDA_", k)}
    if driver_path:
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, (str(driver_path), os.environ.get("LD_LIBRARY_PATH"))))
    library = (pathlib.Path(build) / "libcuplug.so").resolve()
    preload = sanitizer_of(library)
    if preload:
        env.setdefault("ASAN_OPTIONS", "detect_leaks=0")
        env["TSAN_OPTIONS"] = f"{env.get('TSAN_OPTIONS', '')}:suppressions={HERE / 'tsan.supp'}"
    if backend is not BARE:
        preload.append(str(library))
        env["CUPLUG_BACKEND"] = SPECS[backend].format(programs=pathlib.Path(programs).resolve())
    if preload:
        env["LD_PRELOAD"] = " ".join(preload)
    return env
