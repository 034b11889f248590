"""The result as text: the step, where its time goes, what costs most, and kernels that waste bandwidth."""

import kernels
import measures

MOST_WASTE = 1.1
LARGE_KERNEL = 0.01  # of the step: what waste in smaller ones costs is nothing
LONGEST_WORK, LARGE_PART = 5, 0.02


def duration(microseconds):
    """Microseconds as people write them."""
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.2f} s"
    return f"{microseconds / 1e3:.2f} ms" if microseconds >= 1e3 else f"{microseconds:.1f} us"


def size(count):
    """Bytes as people write them."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def share(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"


def heading(result, model_flops=None):
    """Lines about the step as a whole."""
    step = result.slowest()
    low, high = result.limits()
    peak = result.device.peak(step.rate)
    used = model_flops / (peak * step.time * 1e-6) if model_flops else step.utilisation(peak)
    ranks = len(result.steps["expected"])
    yield f"{result.title}, predicted for {result.device.name}" + (f", slowest of {ranks} ranks" if ranks > 1 else "")
    yield f"  step                   {duration(step.time)}   ({duration(low)} to {duration(high)})"
    yield f"  MFU                    {100 * used:.1f} % of {peak / 1e12:.0f} TFLOP/s in {step.rate}" + (
        "" if model_flops else ", of all FLOPs that library calls make")
    yield f"  computation            {duration(step.compute)}, {share(step.compute, step.time)}"
    yield f"  exchange               {duration(step.exchange)}, exposed {duration(step.exposed)}, " \
          f"{share(step.exposed, step.time)}; of that {duration(step.exposed_to_ranks)} waiting for later ranks"
    yield f"  idle                   {duration(step.idle)}, of it waiting for a launch " \
          f"{duration(step.launch_bound)}, {share(step.launch_bound, step.time)}"
    yield f"  launches               {step.launches}"
    yield f"  host                   {len(step.calls)} calls in {duration(step.in_calls)}, " \
          f"{duration(step.own_work)} of its own work between them"
    yield f"  bytes                  {size(step.bytes)} through memory and links, FLOPs {step.flops:.3g}"


def waits(step):
    """Where the host waits for the device."""
    total = sum(times for times, _ in step.waits.values())
    yield f"Host waits: {total}"
    for site, (times, waited) in sorted(step.waits.items(), key=lambda item: -item[1][1]):
        yield f"  {times:5} x {duration(waited):>10}  {site}"


def host_work(step):
    """What of the host's own work takes a large part of the step by itself."""
    long = [work for work in measures.longest_work(step)[:LONGEST_WORK] if work[0] > LARGE_PART * step.time]
    if long:
        yield "The host's own work, longest (as measured where the simulation ran; --host-gap puts another in its place)"
    for time, name in long:
        yield f"  {duration(time):>10} before {name}"


def most_costly(step, count):
    """The table of what costs most."""
    yield f"{'time':>10} {'share':>7} {'times':>6} {'bytes':>9}  {'bound by':14} what"
    rows = measures.costs(step)
    busy = sum(row[4] for row in rows)
    for name, _, bound, times, time, moved in rows[:count]:
        yield f"{duration(time):>10} {share(time, busy):>7} {times:>6} {size(moved):>9}  {bound:14} {name}"
    if len(rows) > count:
        rest, times = sum(row[4] for row in rows[count:]), sum(row[3] for row in rows[count:])
        yield f"{duration(rest):>10} {share(rest, busy):>7} {times:>6} {'':>9}  {'':14} {len(rows) - count} others"


def by_bound(step):
    """Work by what bounds it."""
    totals = {}
    for row in measures.costs(step):
        totals[row[2]] = totals.get(row[2], 0.0) + row[4]
    whole = sum(totals.values())
    for bound, time in sorted(totals.items(), key=lambda item: -item[1]):
        yield f"  {bound:22} {duration(time)}, {share(time, whole)}"


def ratio(record, part, whole):
    """Of two counts; 1 where they were not counted."""
    return record.get(part, 0) / record[whole] if record.get(whole) else 1.0


def wasteful(step):
    """Kernels that need more sectors than their bytes, conflict in shared memory, or spill registers."""
    found = {}
    for work in step.work:
        record = work.record
        if record["kind"] != "kernel":
            continue
        sectors = ratio(record, "sectors", "ideal_sectors")
        conflicts = ratio(record, "shared_wavefronts", "shared_requests")
        spills = record.get("spills") or 0
        if max(sectors, conflicts) > MOST_WASTE or spills:
            kept = found.get(record["name"], (1.0, 1.0, 0))
            found[record["name"]] = (max(kept[0], sectors), max(kept[1], conflicts), max(kept[2], spills))
    for name, (sectors, conflicts, spills) in sorted(found.items(), key=lambda item: -max(item[1][:2])):
        yield f"  {sectors:6.2f} {conflicts:10.2f} {spills:7}  {name}"


def resident(step, device):
    """Occupancy of the multiprocessors by kernels that take a large part of the step, and what it follows from."""
    times, records = {}, {}
    for work in step.work:
        record = work.record
        if record["kind"] == "kernel":
            times[record["name"]] = times.get(record["name"], 0.0) + work.duration
            records[record["name"]] = record
    for name, time in sorted(times.items(), key=lambda item: -item[1]):
        if time < LARGE_KERNEL * step.time:
            continue
        record = records[name]
        occupancy = kernels.launch_shape(device, record)[1]
        registers = record.get("registers") or f"~{kernels.USUAL_REGISTERS}"
        static = record.get("static_shared")
        shared = f"{record.get('shared', 0)} + {'?' if static is None else static}"
        yield f"  {100 * occupancy:8.0f} % {registers:>9} {shared:>14} {record.get('atomics', 0):>11}  {measures.short_name(name)}"


def text(result, rows=20, model_flops=None):
    """The whole report."""
    step = result.slowest()
    out = [*heading(result, model_flops), "", "Bound by", *by_bound(step), "", *waits(step), *host_work(step), "",
           *most_costly(step, rows)]
    waste = list(wasteful(step))
    if waste:
        out += ["", "Kernels above 1.1 sectors a least one, above 1.1 wavefronts a request, or with spills", *waste]
    held = list(resident(step, result.device))
    if held:
        out += ["", "Occupancy, registers of a thread, dynamic and static shared memory of a block, atomics of a launch; ~ and ?: "
                    "estimated, not known (--resources)", *held]
    out += ["", f"Not modelled: {', '.join(result.device.not_known)}; clocks under a power cap, what data cost, "
                "other jobs on the network. See docs/performance-gpu.md."]
    return "\n".join(out) + "\n"
