"""The placed step as one SVG page: streams and host over time, what bounds the work, and what costs most."""

import html
import os

import measures
from report import duration, share, size

WIDTH, LEFT, RIGHT, ROW, GAP = 1160, 110, 20, 22, 6
COLOURS = {"product": "#4e79a7", "attention": "#59a14f", "convolution": "#76b7b2", "cudnn": "#9c755f",
           "kernel": "#f28e2b", "copy": "#edc948", "memset": "#bab0ac", "collective": "#b07aa1",
           "host": "#8c8c8c", "waits": "#e15759"}
NAMES = {"product": "products", "attention": "attention", "convolution": "convolutions", "cudnn": "norms of cuDNN",
         "kernel": "own kernels", "copy": "copies", "memset": "memsets", "collective": "collectives",
         "host": "calls of the host", "waits": "the host waits, or a rank for others"}
# Work shorter than so many pixels is drawn together with what is beside it.
LEAST_PIXELS = 1.0
MOST_COSTLY = 14
MOST_LETTERS = 54
MOST_RANKS = 8


def text(x, y, words, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{html.escape(words)}</text>'


def rectangle(x, y, width, height, colour, title=""):
    inside = f"<title>{html.escape(title)}</title>" if title else ""
    return f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" fill="{colour}">{inside}</rect>'


class Axis:
    """Microseconds to pixels."""

    def __init__(self, begin, end):
        self.begin, self.scale = begin, (WIDTH - LEFT - RIGHT) / max(end - begin, 1e-9)

    def x(self, moment):
        return LEFT + (moment - self.begin) * self.scale

    def clipped(self, begin, end):
        return max(self.x(begin), LEFT), min(self.x(end), WIDTH - RIGHT)


def merged(bars):
    """Bars [(left, right, kind, title, number)]: of small ones in a pixel one, of the kind that takes most of it."""
    large = [(left, right, kind, title, 1) for left, right, kind, title in bars if right - left >= LEAST_PIXELS]
    pixels = {}
    for bar in bars:
        if bar[1] - bar[0] < LEAST_PIXELS:
            pixels.setdefault(int(bar[0]), []).append(bar)
    return sorted(large + [one_bar(small) for small in pixels.values()])


def one_bar(bars):
    """Several small bars as one."""
    lengths = {}
    for left, right, kind, _ in bars:
        lengths[kind] = lengths.get(kind, 0.0) + right - left
    kind = max(lengths, key=lengths.get)
    left, right = min(bar[0] for bar in bars), max(bar[1] for bar in bars)
    title = bars[0][3] if len(bars) == 1 else f"{len(bars)} calls, most time in {NAMES[kind]}"
    return left, max(right, left + 0.3), kind, title, len(bars)


def lanes_of(step, axis):
    """{name of the row: bars} of a rank: a row a stream and a row a host thread."""
    lanes = {}
    for work in step.work:
        left, right = axis.clipped(work.begin, work.end)
        title = f"{measures.label(work.record)}: {duration(work.duration)}, {work.prediction.bound}"
        lane = lanes.setdefault((0, f"stream {work.record['stream']}"), [])
        if work.waited > 0:
            middle = axis.clipped(work.begin, work.begin + work.waited)[1]
            lane.append((left, middle, "waits", f"waits for other ranks: {duration(work.waited)}"))
            left = middle
        lane.append((left, right, work.record["kind"], title))
    for entry in step.calls:
        if entry.end > entry.begin:
            left, right = axis.clipped(entry.begin, entry.end)
            kind = "waits" if entry.waited > 0 else "host"
            record = entry.node.record
            title = f"{record['name']}: {duration(entry.end - entry.begin)} {record.get('site', '')}"
            lanes.setdefault((1, f"host {record['thread']}"), []).append((left, right, kind, title))
    return {name: merged(bars) for (_, name), bars in sorted(lanes.items())}


def draw_rank(step, axis, y, several):
    """(elements, y below them) of a rank's rows."""
    out = []
    if several:
        out.append(text(8, y + 14, f"rank {step.rank}", ' font-weight="bold"'))
        y += 20
    for name, bars in lanes_of(step, axis).items():
        out.append(text(8, y + 15, name))
        out += [rectangle(left, y, right - left, ROW, COLOURS[kind], title) for left, right, kind, title, _ in bars
                if right > left]
        for left, right, kind, title, number in bars:
            words = title.split(":")[0]
            if number == 1 and right - left > 6.2 * len(words) + 8:
                out.append(text(left + 4, y + 15, words, ' fill="white"'))
        y += ROW + GAP
    return out, y


def draw_axis(axis, begin, end, y):
    out = []
    for tick in range(7):
        moment = begin + (end - begin) * tick / 6
        anchor = ("start", "middle", "end")[(tick > 0) + (tick == 6)]
        out.append(f'<line x1="{axis.x(moment):.1f}" x2="{axis.x(moment):.1f}" y1="{y}" y2="{y + 5}" stroke="#888"/>')
        words = duration(moment - begin) if tick else "0"
        out.append(text(axis.x(moment), y + 18, words, f' text-anchor="{anchor}" fill="#555"'))
    return out


def draw_legend(kinds, y):
    out, x = [], LEFT
    for kind in (kind for kind in COLOURS if kind in kinds):
        out += [rectangle(x, y, 12, 12, COLOURS[kind]), text(x + 17, y + 10, NAMES[kind])]
        x += 34 + 7 * len(NAMES[kind])
    return out


def label(name, names):
    """A name that fits, with the part in which it differs from the others."""
    if len(name) <= MOST_LETTERS:
        return name
    alike = max((len(os.path.commonprefix([name, other])) for other in names if other != name), default=0)
    if alike < MOST_LETTERS - 12:
        return name[:MOST_LETTERS - 3] + "..."
    begin, end = name[:MOST_LETTERS // 3] + "...", name[alike - 6:]
    room = MOST_LETTERS - len(begin)
    return begin + (end if len(end) <= room else end[:room - 3] + "...")


def draw_costs(step, y):
    """Bars of what costs most, with what bounds it."""
    rows = measures.costs(step)
    whole = sum(row[4] for row in rows)
    out = [text(8, y + 12, "What costs most", ' font-size="14"')]
    y += 24
    widest, room = (rows[0][4] if rows else 1.0), 300
    for name, kind, bound, times, microseconds, moved in rows[:MOST_COSTLY]:
        length = max(1.0, room * microseconds / widest)
        out += [text(8, y + 13, label(name, [row[0] for row in rows])),
                rectangle(390, y, length, 16, COLOURS[kind]),
                text(390 + length + 6, y + 13, f"{duration(microseconds)}, {share(microseconds, whole)}"),
                text(830, y + 13, f"{times} x"), text(890, y + 13, size(moved)), text(980, y + 13, f"by {bound}")]
        y += 21
    return out, y


def title_lines(result):
    """Two lines at the top."""
    step, (low, high) = result.slowest(), result.limits()
    mfu = 100 * step.utilisation(result.device.peak(step.rate))
    return (f"{result.title} on {result.device.name}, predicted: {duration(step.time)} "
            f"({duration(low)} to {duration(high)}), MFU {mfu:.0f} % in {step.rate}",
            f"{step.launches} launches, {size(step.bytes)} moved, exposed exchange {share(step.exposed, step.time)}, "
            f"waiting for launches {share(step.launch_bound, step.time)}, "
            f"{sum(times for times, _ in step.waits.values())} waits of the host")


def page(result):
    """The SVG document."""
    steps = result.steps["expected"][:MOST_RANKS]
    begin, end = min(step.begin for step in steps), max(step.end for step in steps)
    axis = Axis(begin, end)
    first, second = title_lines(result)
    body, y = [text(8, 22, first, ' font-size="15"'), text(8, 42, second, ' fill="#444"')], 58
    kinds = {work.record["kind"] for step in steps for work in step.work} | {"host", "waits"}
    body += draw_legend(kinds, y)
    y += 24
    for step in steps:
        rows, y = draw_rank(step, axis, y, len(steps) > 1)
        body += rows
    body += draw_axis(axis, begin, end, y)
    costs, y = draw_costs(result.slowest(), y + 36)
    body += costs
    height = y + 12
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
                      'font-family="sans-serif" font-size="12">',
                      f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *body, "</svg>"]) + "\n"
