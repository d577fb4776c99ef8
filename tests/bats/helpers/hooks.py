"""Compares where look-ups lead: hooks.py HOOKS.DEF LIBCUPLUG.SO BARE SHIM [exact]

BARE and SHIM are what tests/programs/hook_ways printed without and with the shim. Where a way leads to a function of the driver that the table has, it must
lead to the shim's stand-in for exactly that function; every other line must be the same. "exact": without the shim, every way but the one that
names no version led to the row's own function, so that every row was tried.
"""
import collections
import re
import subprocess
import sys


def table(path):
    """Export -> wrapper."""
    with open(path, encoding="utf-8") as file:
        return dict(re.findall(r"^(?:RUNTIME_)?HOOK\((\w+),.*?(\w+)\)$", file.read(), re.MULTILINE))


def symbols(library):
    """Offset -> names."""
    found = collections.defaultdict(set)
    for line in subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout.splitlines():
        address, _, name = line.rpartition(" ")[0].partition(" ")[0], None, line.rpartition(" ")[2]
        if re.fullmatch("[0-9a-f]+", address):
            found[int(address, 16)].add(name)
    return found


def lines(path):
    with open(path, encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(": ", 1) for line in file)


def main():
    wrappers, names = table(sys.argv[1]), symbols(sys.argv[2])
    bare, shim = lines(sys.argv[3]), lines(sys.argv[4])
    exact = sys.argv[5:] == ["exact"]
    wrong = [f"{key}: in one of the two runs only" for key in bare.keys() ^ shim.keys()]
    tried = set()
    for key, there in bare.items():
        way, export = key.split(" ")
        function = there.split(" ")[-1]
        here = shim.get(key, "")
        if function in wrappers:
            tried.add(function)
            offset = int(here.split(" ")[1], 16) if here.startswith("shim ") else None
            if offset is None or not names[offset] & {function, wrappers[function]}:
                wrong.append(f"{key}: {here} ({' '.join(names.get(offset, []))}) instead of the stand-in for {function}")
        elif there in ("nowhere", "driver ?") and way in ("linked", "dlsym-default") and here.startswith("shim "):
            pass  # our export is there, whatever the driver has (an older simulated one hides what it lacks)
        elif here != there:
            wrong.append(f"{key}: {here} instead of {there}")
        if exact and function != export and way != "cudaGetDriverEntryPoint":
            wrong.append(f"{key}: the driver has {there}")
    wrong += [f"{export}: never tried" for export in wrappers.keys() - tried if exact]
    print("\n".join(wrong), end="\n" if wrong else "")
    return bool(wrong)


sys.exit(main())
