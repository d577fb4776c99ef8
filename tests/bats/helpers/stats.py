"""Checks the shim's statistics: stats.py FILE PATH=VALUE…

PATH is dotted (totals.allocations, backends.pool.frees, devices.0.live_blocks); members of "backends" are found by name, of "devices"
by number. Instead of "=" there may be "<=" or ">=". Prints every condition that does not hold; exit status 1 then.
"""
import json
import operator
import re
import sys

OPERATORS = {"=": operator.eq, "<=": operator.le, ">=": operator.ge}


def lookup(document, path):
    value = document
    for step in path.split("."):
        if isinstance(value, list):
            found = [item for item in value if str(item.get("name", item.get("device"))) == step]
            if len(found) != 1:
                return None
            value = found[0]
        else:
            value = value.get(step)
        if value is None:
            return None
    return value


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    wrong = 0
    for condition in sys.argv[2:]:
        path, symbol, expected = re.fullmatch(r"([^<>=]+)([<>]?=)(.*)", condition).groups()
        value = lookup(document, path)
        if value is None or not OPERATORS[symbol](value, int(expected)):
            print(f"{path} is {value}, expected {symbol} {expected}")
            wrong = 1
    return wrong


sys.exit(main())
