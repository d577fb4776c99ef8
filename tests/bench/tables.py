"""Makes text of the results: Markdown tables, and the plot of the pairs as SVG."""

import html
import math

import plan


def quantity(value):
    """Nanoseconds, in three digits."""
    for unit, factor in (("ms", 1e6), ("µs", 1e3)):
        if value >= 10 * factor:
            return f"{value / factor:.0f} {unit}" if value >= 100 * factor else f"{value / factor:.1f} {unit}"
    return f"{value:.0f} ns"


def ratio(value):
    return f"{value:.0f} ×" if value >= 10 else f"{value:.2f} ×"


def cell(results, key, label, reference, figure="ns"):
    value = results.median(key, label, figure)
    if value is None:
        return results.errors[key].get(label, "")
    text = f"{quantity(value)} ±{100 * results.spread(key, label, figure):.0f} %"
    base = results.median(key, reference, figure)
    return f"{text} ({ratio(value / base)})" if base and label != reference else text


def table(head, rows):
    rows = [[str(text).replace("|", "/") for text in row] for row in rows]
    return [
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def section(title, words, results, measurements, reference=plan.DRIVER):
    """A row for each allocator, a column for each measurement: median, half the spread, and the ratio to ours."""
    keys = [m.key for m in measurements]
    labels = [
        label
        for label in dict.fromkeys(label for m in measurements for label in m.labels)
        if any(label in results.labels(key) or label in results.errors[key] for key in keys)
    ]
    if not labels:
        return []
    common = " ".join(keys[0].split(" ")[:1])
    head = ["allocator", *(key.removeprefix(common).strip(" ,") or key for key in keys)]
    return [
        f"## {title}",
        "",
        words,
        "",
        *table(head, [[label, *(cell(results, key, label, reference) for key in keys)] for label in labels]),
    ]


def stream_count(count):
    return f"{count} stream{'s' if int(count) > 1 else ''}"


def kernels_section(results, measurements):
    rows = []
    for label in dict.fromkeys(label for m in measurements for label in m.labels):
        cells = []
        for m in measurements:
            both, alone, host = (results.median(m.key, label, figure) for figure in ("ns", "alone", "host"))
            cells.append(
                f"{quantity(both)} for {quantity(alone)} (+{(both / alone - 1) * 100:.0f} %), {quantity(host)} in calls"
                if both and alone
                else results.errors[m.key].get(label, "")
            )
        if any(cells):
            rows.append([label, *cells])
    if not rows:
        return []
    words = (
        "Kernels of about 5 µs, each with an allocation of 64 KiB before and its free behind it: time for each, against the same "
        "kernels alone in the "
        "same process, and what the host spent in the two calls. “async” is in the order of the kernel's stream."
    )
    return [
        "## Around kernels",
        "",
        words,
        "",
        *table(["allocator", *(stream_count(m.key.split()[1]) for m in measurements)], rows),
    ]


def footprint_section(results, measurements):
    rows = []
    for label in dict.fromkeys(label for m in measurements for label in m.labels):
        cells = []
        for m in measurements:
            reserved, live = results.median(m.key, label, "reserved"), results.median(m.key, label, "live")
            cells.append(
                f"{reserved / 2**20:.0f} MiB for {live / 2**20:.0f} ({reserved / live:.2f} ×)"
                if live
                else results.errors[m.key].get(label, "")
            )
        if any(cells):
            rows.append([label, *cells])
    if not rows:
        return []
    words = (
        "The most that was held of the driver for the most that was in use, replayed without the program's own kernels; "
        f"“behind”: with a host function of {plan.BEHIND} µs behind each allocation, for the kernels that the host runs ahead of."
    )
    return ["## Memory for the traces", "", words, "", *table(["allocator", *(m.key.removeprefix("footprint ") for m in measurements)], rows)]


def training_section(results):
    rows = []
    for label in results.labels(plan.TRAINING):
        values = results.values(plan.TRAINING, label, "ms")
        rows.append(
            [label, f"{results.median(plan.TRAINING, label, 'ms'):.2f}", f"{min(values):.2f}–{max(values):.2f}", len(values)]
        )
    rows += [[label, why, "", ""] for label, why in results.errors[plan.TRAINING].items()]
    if not rows:
        return []
    words = "tests/gpu/python/torch_train.py: rounds of training in processes that take turns; ms per step."
    return ["## PyTorch training", "", words, "", *table(["memory", "median ms per step", "least–most", "rounds"], rows)]


def wanted_section(results):
    rows = [
        [what, target, found or "not measured", "yes" if met else "**no**" if found else ""]
        for what, target, found, met in plan.wanted(results)
    ]
    return ["## Wanted", "", "Ratios of medians within this run.", "", *table(["what", "wanted", "found", "met"], rows)]


def whole(results, facts, traces):
    replays = plan.replays(traces)
    lines = [
        "# Speed",
        "",
        "Written by `tests/gpu/bench`. Medians, ± half of the distance from the least to the most; in parentheses how many times "
        f"the time of “{plan.DRIVER}” that is. The allocators live in several processes, which take turns within each repetition.",
        "",
    ]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", *wanted_section(results)]
    lines += section(
        "Pairs by size",
        "One block is allocated and freed at once, by one thread, the device idle.\n\n![The same as a plot](pairs.svg)",
        results,
        plan.pairs(),
    )
    lines += section(
        "Random live set",
        "1000 live blocks of 512 B to 2 MiB; a step frees one and allocates another.",
        results,
        plan.random_sets(),
    )
    lines += section("Threads", "Pairs of 64 KiB in so many threads; time per pair of all together.", results, plan.threads())
    lines += section("Producer and consumer", "One thread allocates, another frees; time per block.", results, plan.handoffs())
    lines += section(
        "Streams", "Pairs in the order of streams, of so many in turn.", results, plan.streams(), plan.ASYNC[plan.DRIVER]
    )
    lines += section(
        "New memory",
        "The first allocations of a new process, none freed: time for each of 64 blocks of 32 MiB.",
        results,
        [type(replays[0])(plan.GROWTH, "", plan.GROWTH_LABELS)] if replays else [],
        plan.NATIVE,
    )
    lines += kernels_section(results, plan.kernels())
    lines += section(
        "Traces",
        "Programs' allocations and frees replayed as fast as they go (slow allocators: the first 0.3 s); time per allocation with its "
        "free.",
        results,
        [m for m in replays if "streams" not in m.key],
    )
    lines += section(
        "Traces of streams",
        "The same of a program that allocates in the order of five streams.",
        results,
        [m for m in replays if "streams" in m.key],
        plan.ASYNC[plan.DRIVER],
    )
    lines += footprint_section(results, plan.footprints(traces))
    lines += training_section(results)
    return "\n".join(lines)


# Of the plot: a colour and a dash for each allocator, told apart in light and dark mode, and without colours.
STYLES = {
    plan.NATIVE: ("#8a8f98", ""),
    plan.NATIVE_ASYNC: ("#8a8f98", "6 4"),
    plan.TORCH: ("#e8762c", ""),
    plan.RMM[0]: ("#3f8fd2", ""),
    plan.RMM[1]: ("#3f8fd2", "6 4"),
    plan.RMM[2]: ("#3f8fd2", "2 3"),
    plan.CUPY: ("#b45fc4", ""),
    plan.DRIVER: ("#1fa35c", ""),
    plan.SHARED: ("#1fa35c", "6 4"),
    plan.STATIC: ("#1fa35c", "2 3"),
    plan.ARENA: ("#c9a227", ""),
}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 480, 70, 40, 250, 50
STYLE = """<style>
.text{font:13px system-ui,sans-serif;fill:#24292f}.small{font-size:12px}.grid{stroke:#24292f;stroke-opacity:.15}.page{fill:#fff}
@media (prefers-color-scheme: dark){.text{fill:#e6edf3}.grid{stroke:#e6edf3;stroke-opacity:.2}.page{fill:#0d1117}}
</style>"""


def svg(results, sizes=plan.SIZES):
    """Latency of a pair by its size, both on logarithmic axes; empty without results."""
    curves = {}
    for label in STYLES:
        points = [(size, results.median(f"pair {plan.size_name(size)}", label)) for size in sizes]
        if points := [(size, value) for size, value in points if value]:
            curves[label] = points
    values = [value for points in curves.values() for _, value in points]
    if not values:
        return ""
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values) * 1.001))

    def x(size):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(size / sizes[0]) / math.log2(sizes[-1] / sizes[0])

    def y(value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log10(value / low) / math.log10(high / low)

    def text(at_x, at_y, words, anchor="start", small=" small"):
        return f'<text class="text{small}" x="{at_x:.0f}" y="{at_y:.0f}" text-anchor="{anchor}">{html.escape(words)}</text>'

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Time of a pair by size">',
        STYLE,
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        text(LEFT, 22, "Time to allocate and free one block, by its size (medians)", small=""),
    ]
    value = low
    while value <= high:
        out += [
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>',
            text(LEFT - 8, y(value) + 4, axis_time(value), "end"),
        ]
        value *= 10
    for size in sizes:
        out += [
            f'<line class="grid" x1="{x(size):.1f}" x2="{x(size):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>',
            text(x(size), HEIGHT - BOTTOM + 18, plan.size_name(size), "middle"),
        ]
    for number, (label, points) in enumerate(curves.items()):
        colour, dash = STYLES[label]
        stroke = f'stroke="{colour}" stroke-width="2" fill="none"' + (f' stroke-dasharray="{dash}"' if dash else "")
        path = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in points)
        at = TOP + 12 + 22 * number
        out += [
            f'<polyline points="{path}" {stroke}/>',
            *(f'<circle cx="{x(s):.1f}" cy="{y(v):.1f}" r="2.5" fill="{colour}"/>' for s, v in points),
            f'<line x1="{WIDTH - RIGHT + 16}" x2="{WIDTH - RIGHT + 44}" y1="{at}" y2="{at}" {stroke}/>',
            text(WIDTH - RIGHT + 50, at + 4, label),
        ]
    return "\n".join([*out, "</svg>", ""])


def axis_time(value):
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if value >= factor:
            return f"{value / factor:.0f} {unit}"
    return f"{value:.0f} ns"
