"""Duration of a kernel from what it touched: launch floor + the largest of what it needs.

Sources: docs/performance-gpu.md. Work is spread over waves of blocks; DRAM gives its rate only to enough bytes
in flight (Little's law, measured by occupancy); data that fit the L2 may still be there from the kernel before.
"""

import math

from prediction import ARITHMETIC, BANDWIDTH, L2, LATENCY, SHARED_MEMORY, Prediction, largest

SECTOR, GRANULE = 32, 16
# Registers where the profile knows none; most kernels of the library need 24 to 40.
USUAL_REGISTERS = 32
# gpu-stream, by which DRAM's rate over occupancy was measured, loads 8 bytes a thread at a time.
MEASURED_BYTES_A_THREAD = 8
# Loads of one thread that are in flight at once: compilers overlap those of a loop that is unrolled.
LOADS_IN_FLIGHT = {"low": 4, "expected": 2, "high": 1}
# Share of small data that is still in the L2 from the kernel before; expected: sim_profile.py trust --fit.
RESIDENT = {"low": 1.0, "expected": 0.3, "high": 0.0}
# Kernels whose threads exchange much through shared memory (sums of rows and columns) wait for each other, and for
# instructions that no profile counts: how many times as long as their bytes they take. Expected: sim_profile.py trust
# --fit; high: of lockstep's kernels for fitting 9 in 10 lie below.
EXCHANGES = 0.2  # requests to shared memory for one to global memory
EXCHANGING = {"low": 1.0, "expected": 1.25, "high": 2.4}
# What a kernel costs within a step where it has nothing to do: 1.3 to 2.0 us on an H100.
FLOOR = {"low": 1.0, "expected": 1.0, "high": 1.5}
TAIL_EXPONENT = 0.25
FMA_EFFICIENCY = 0.64
ERROR = 0.10


def blocks_per_sm(device, record):
    """How many of a kernel's blocks an SM holds, by threads, registers and shared memory."""
    threads = math.prod(record["block"])
    warps = -(-threads // 32)
    registers = record.get("registers") or USUAL_REGISTERS
    # Registers are given to warps in units of 256.
    registers_of_block = warps * (-(-registers * 32 // 256) * 256)
    shared = record.get("shared", 0) + (record.get("static_shared") or 0) + 1024
    limits = (device.blocks_per_sm, device.warps_per_sm // warps, device.registers_per_sm // registers_of_block,
              int(device.shared_per_sm // shared))
    return max(1, min(limits))


def launch_shape(device, record):
    """(share of the SMs that work, occupancy of those, factor of an unfilled last wave)."""
    blocks = max(1, math.prod(record["grid"]))
    held = blocks_per_sm(device, record)
    waves = blocks / (held * device.sms)
    on_each = min(held, max(1.0, blocks / device.sms))
    occupancy = min(1.0, on_each * math.prod(record["block"]) / device.threads_per_sm)
    tail = (math.ceil(waves) / waves) ** TAIL_EXPONENT if waves > 1 else 1.0
    return min(1.0, blocks / device.sms), occupancy, tail


def dram_share(device, in_flight):
    """Share of DRAM's rate at a number of bytes in flight, in occupancies of the measurement."""
    ratio = device.dram_occupancy_bandwidth / device.dram_bandwidth
    at, points = in_flight * ratio, [(0.0, 0.0)] + [tuple(point) for point in device.dram_occupancy]
    for (left, low), (right, high) in zip(points, points[1:]):
        if at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return 1.0


def bytes_a_thread(record):
    """Bytes that a thread asks for at a time: 16 where loads are vectors."""
    requests = record.get("requests")
    if not requests:
        return MEASURED_BYTES_A_THREAD
    return min(16.0, record.get("ideal_sectors", 0) * SECTOR / (32 * requests))


def loads_a_thread(record):
    """Loads that a thread makes: one of two requests is taken to be one. Many where nothing was counted."""
    if not record.get("requests"):
        return max(LOADS_IN_FLIGHT.values())
    threads = max(1, math.prod(record["grid"]) * math.prod(record["block"]))
    return max(1.0, record["requests"] * 32 / threads / 2)


def dram_bytes(record):
    """Distinct bytes in whole sectors: what is strewn wastes up to half of each."""
    distinct = record.get("read_distinct", 0) + record.get("write_distinct", 0)
    ideal = record.get("ideal_sectors", 0)
    waste = record["sectors"] / ideal if ideal and record.get("sectors") else 1.0
    return distinct * min(max(waste, 1.0), SECTOR / GRANULE)


def from_dram(device, record, case):
    """Share of the bytes that the L2 does not have. A record may say what it knows: "resident"."""
    size = dram_bytes(record)
    resident = record.get("resident", RESIDENT[case])
    if size <= device.l2_resident_bytes:
        return 1.0 - resident
    # Beyond that the first bytes are gone before the last come, and at 1.5 of its size nothing is found.
    gone = (size - device.l2_resident_bytes) / (1.5 * device.l2_bytes - device.l2_resident_bytes)
    return 1.0 - resident * max(0.0, 1.0 - gone)


def exchange(record, case):
    """Factor of a kernel whose threads wait for each other."""
    requests = record.get("requests") or 0
    much = (record.get("shared_requests") or 0) >= EXCHANGES * requests > 0
    return EXCHANGING[case] if much else 1.0


def bounds(device, record, case):
    """Seconds that each part of the device needs."""
    sms, occupancy, tail = launch_shape(device, record)
    loads = min(LOADS_IN_FLIGHT[case], loads_a_thread(record))
    in_flight = sms * occupancy * loads * bytes_a_thread(record) / MEASURED_BYTES_A_THREAD
    rate = device.dram_bandwidth * device.dram_efficiency * max(dram_share(device, in_flight), 1e-4)
    size = dram_bytes(record)
    needed = {
        BANDWIDTH: size * from_dram(device, record, case) / rate * tail * exchange(record, case),
        L2: max(size, record.get("sectors", 0) * SECTOR) / (device.l2_bandwidth * min(1.0, sms)) * tail,
        SHARED_MEMORY: record.get("shared_wavefronts", 0) * 128
        / (device.shared_bytes_per_clock * device.clock_hz * device.sms * sms) * tail,
        ARITHMETIC: record.get("flops", 0.0) / (FMA_EFFICIENCY * device.peak_f32 * sms) * tail,
    }
    return needed


def predict(device, record):
    """The Prediction of a kernel."""
    times, bound = {}, LATENCY
    for case, error in (("low", 1 / (1 + ERROR)), ("expected", 1.0), ("high", 1 + ERROR)):
        name, seconds = largest(bounds(device, record, case))
        times[case] = (device.kernel_floor_s * FLOOR[case] + seconds) * 1e6 * error
        if case == "expected" and seconds > device.kernel_floor_s:
            bound = name
    sms, _, _ = launch_shape(device, record)
    return Prediction(times["low"], times["expected"], times["high"], bound, dram_bytes(record), 0.0, sms)
