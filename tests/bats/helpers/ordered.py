"""Whether the writes in a simulated driver's log are ordered: ordered.py LOG

Of two writes (cuMemsetD8Async) of different streams to the same bytes, the later one must be known to come after the earlier:
by an event, of the stream or the whole context, that was recorded behind the one and waited for (by a stream, the context or
the host) or found done before the other; or because the host waited for a stream or the context. The log is of one thread and
one context, its streams are non-blocking. Prints how many such pairs there are, and how many of them nothing orders.
"""
import re
import sys

everything = set()  # writes so far
on_stream = {}  # stream -> writes that its next one comes after
by_all = set()  # writes that every new one comes after
covered = {}  # event -> writes that it comes after
writes = []  # (stream, first byte, byte after the last, writes that it comes after)

for line in open(sys.argv[1], encoding="utf-8"):
    name, *rest = line.split()
    at = rest.index("->")
    if rest[at + 1] != "0":
        continue
    arguments = dict(item.split("=", 1) for item in rest[:at])
    stream, event = arguments.get("stream"), arguments.get("event")
    if name == "cuMemsetD8Async":
        start = int(arguments["dst"], 0)
        size = int(arguments["n"], 0)
        after = on_stream.setdefault(stream, set()) | by_all
        writes.append((stream, start, start + size, after))
        on_stream[stream] = after | {len(writes) - 1}
        everything.add(len(writes) - 1)
    elif name == "cuCtxRecordEvent":
        covered[event] = set(everything)
    elif name == "cuEventRecord":
        covered[event] = on_stream.get(stream, set()) | by_all
    elif name in ("cuCtxWaitEvent", "cuEventQuery", "cuEventSynchronize"):
        by_all |= covered.get(event, set())
    elif name == "cuStreamWaitEvent":
        on_stream[stream] = on_stream.get(stream, set()) | covered.get(event, set())
    elif name == "cuStreamSynchronize":
        by_all |= on_stream.get(stream, set())
    elif name in ("cuCtxSynchronize", "cuMemFree_v2"):
        by_all |= everything

pairs = [
    index in after
    for later, (stream, start, end, after) in enumerate(writes)
    for index, (other, low, high, _) in enumerate(writes[:later])
    if other != stream and low < end and start < high
]
print(f"pairs: {len(pairs)}, not ordered: {pairs.count(False)}")
