"""Runs one program with a clean environment and a time limit, and says what it did.

Nothing of the caller's LD_PRELOAD or CUPLUG_* settings reaches a test, and nothing a test starts outlives it: a run
gets a process group of its own, which is killed as a whole when the time is up.
"""
import os
import re
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

OURS = re.compile(r"LD_PRELOAD$|CUPLUG_|COUNTER_OUT$|XLA_|PYTORCH_|MAKEFLAGS$|MAKELEVEL$")


@dataclass(frozen=True)
class Outcome:
    argv: tuple
    env: dict
    status: object  # exit status, -signal, or None when the time ran out
    stdout: str
    stderr: str
    seconds: float

    def how_it_ended(self):
        if self.status is None:
            return f"killed after {self.seconds:.0f} s"
        return f"signal {-self.status}" if self.status < 0 else f"status {self.status}"

    def describe(self, lines=30):
        settings = " ".join(f"{k}='{v}'" for k, v in self.env.items())
        return (
            f"$ {settings} {' '.join(self.argv)}\n-> {self.how_it_ended()} after {self.seconds:.1f} s\n"
            f"stdout, last lines:\n{tail(self.stdout, lines)}\nstderr, last lines:\n{tail(self.stderr, lines)}"
        )


def tail(text, lines):
    kept = text.splitlines()[-lines:]
    return "\n".join("  " + line[:300] for line in kept) or "  (empty)"


def environment(extra):
    kept = {k: v for k, v in os.environ.items() if not OURS.match(k)}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **extra}


def run(argv, extra_env, timeout):
    """Output goes through files, not pipes: a background process that keeps them open cannot make us wait."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.monotonic()
        try:
            process = subprocess.Popen(
                argv, env=environment(extra_env), stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as error:
            return Outcome(tuple(argv), extra_env, 127, "", str(error), 0.0)
        try:
            status = process.wait(timeout=max(timeout, 0.1))
        except subprocess.TimeoutExpired:
            status = None
        finally:
            kill_group(process)
        seconds = time.monotonic() - started
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return Outcome(tuple(argv), extra_env, status, *texts, seconds)


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        pass  # stuck in the driver: nothing more can be done from here
