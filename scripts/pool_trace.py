#!/usr/bin/env python3
"""Traces of what training steps allocate, and what allocators make of them.

    pool_trace.py make SNAPSHOT TRACE.gz       from the history in a snapshot (dump_memory_snapshot)
    pool_trace.py replay [--pools PROGRAM] TRACE.gz ...
    pool_trace.py --self-test

replay compares the most that is reserved with the most that was asked for at a time:
- lockstep's pools, by benchmark_replay_allocations (default: build*/bin);
- a model of PyTorch's CUDA caching allocator;
- malloc of the C library, jemalloc and mimalloc where they are installed: the most resident memory
  of a process that writes all that it asks for.

A trace is text, one number a line: a positive one requests so many bytes, -k returns the k-th
block requested, from 1. tests/memory replays the same files against lockstep's pool.
benchmark_record_allocations makes the snapshots.
"""

import bisect
import ctypes
import ctypes.util
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys

MIB = 1 << 20


def trace_of(snapshot):
    """The numbers of a trace, from the first device's history."""
    counts = snapshot["lockstep"][0]
    if counts["lost_events"]:
        sys.exit(f"the history lost {counts['lost_events']} events: record more of them")
    numbers, requested, out = {}, 0, []
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            requested += 1
            numbers[event["addr"]] = requested
            out.append(event["size"])
        elif event["action"] == "free_completed" and event["addr"] in numbers:
            out.append(-numbers.pop(event["addr"]))
    return out


def read(path):
    with gzip.open(path, "rt") as lines:
        return [int(line) for line in lines]


class PyTorchModel:
    """The policy of PyTorch's CUDACachingAllocator (c10/cuda), on one stream, with its defaults:
    blocks of 512 bytes; requests up to 1 MiB from segments of 2 MiB, those below 10 MiB from
    segments of 20 MiB, others from segments of their own rounded up to 2 MiB; best fit; rests are
    split off from 512 bytes on in small segments, above 1 MiB in large ones; neighbours merge."""

    def __init__(self):
        self.free = {True: [], False: []}  # sorted (size, address)
        self.blocks = {}  # address -> [size, is small, is free, previous address, next address]
        self.reserved = self.peak_reserved = 0
        self.next_segment = 1 << 40

    def allocate(self, asked):
        size = max(512, (asked + 511) // 512 * 512)
        small = size <= MIB
        free = self.free[small]
        at = bisect.bisect_left(free, (size, 0))
        if at < len(free):
            _, address = free.pop(at)
        else:
            address = self.new_segment(size, small)
        block = self.blocks[address]
        block[2] = False
        rest = block[0] - size
        if rest >= 512 if small else rest > MIB:
            block[0] = size
            after = block[4]
            block[4] = address + size
            self.blocks[address + size] = [rest, small, True, address, after]
            if after:
                self.blocks[after][3] = address + size
            bisect.insort(free, (rest, address + size))
        return address

    def new_segment(self, size, small):
        if small:
            total = 2 * MIB
        elif size < 10 * MIB:
            total = 20 * MIB
        else:
            total = (size + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)
        address = self.next_segment
        self.next_segment += total + 2 * MIB
        self.blocks[address] = [total, small, True, None, None]
        self.reserved += total
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return address

    def deallocate(self, address):
        size, small, _, previous, after = self.blocks[address]
        if after and self.blocks[after][2]:
            gone = self.blocks.pop(after)
            self.free[small].remove((gone[0], after))
            size, after = size + gone[0], gone[4]
        if previous and self.blocks[previous][2]:
            self.blocks.pop(address)
            gone = self.blocks[previous]
            self.free[small].remove((gone[0], previous))
            address, size, previous = previous, size + gone[0], gone[3]
        self.blocks[address] = [size, small, True, previous, after]
        if after:
            self.blocks[after][3] = address
        bisect.insort(self.free[small], (size, address))


def replay(trace):
    """(peak bytes live, peak bytes reserved by the model)"""
    model, addresses, sizes, live, peak = PyTorchModel(), [], [], 0, 0
    for event in trace:
        if event > 0:
            addresses.append(model.allocate(event))
            sizes.append(event)
            live += event
            peak = max(peak, live)
        else:
            model.deallocate(addresses[-event - 1])
            live -= sizes[-event - 1]
    return peak, model.peak_reserved


def resident(field):
    """VmHWM (the most so far) or VmRSS of this process, in bytes."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status).group(1)) * 1024


def replay_malloc(path):
    """In a process of its own, whose malloc may be another's: prints the most resident bytes."""
    trace = read(path)
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    blocks = []
    before = resident("VmRSS")
    for event in trace:
        if event > 0:
            block = library.malloc(event)
            ctypes.memset(block, 1, event)
            blocks.append(block)
        else:
            library.free(blocks[-event - 1])
    print(resident("VmHWM") - before)


def malloc_peak(path, preload):
    environment = dict(os.environ, LD_PRELOAD=preload)
    result = subprocess.run([sys.executable, __file__, "replay-malloc", path], check=True,
                            capture_output=True, text=True, env=environment)
    return int(result.stdout)


def pools_program():
    root = pathlib.Path(__file__).resolve().parent.parent
    found = sorted(root.glob("build*/bin/benchmark_replay_allocations"),
                   key=lambda program: program.stat().st_mtime)
    return found[-1] if found else None


def compare(path, program):
    """Prints a line for each allocator."""
    trace = read(path)
    asked, model = replay(trace)
    print(f"{path}: at most {asked / MIB:.1f} MiB are asked for at a time")

    def line(name, reserved):
        print(f"  {name:<28}{reserved / MIB:8.1f} MiB{reserved / asked:8.3f}")
    if program:
        text = "".join(f"{event}\n" for event in trace)
        output = subprocess.run([program, "--json"], check=True, input=text, capture_output=True,
                                text=True).stdout
        for case in map(json.loads, output.splitlines()):
            line(f"lockstep, {case['case']}", case["reserved_mib"] * MIB)
    else:
        print("  lockstep: skipped, benchmark_replay_allocations is not built")
    line("PyTorch's policy (a model)", model)
    line("malloc of the C library", malloc_peak(path, ""))
    for name in ("jemalloc", "mimalloc"):
        library = ctypes.util.find_library(name)
        if library:
            line(name, malloc_peak(path, library))
        else:
            print(f"  {name}: skipped, it is not installed")


def self_test():
    def event(action, address, size):
        return {"action": action, "addr": address, "size": size}
    events = [event("alloc", 1, 100), event("alloc", 2, 30), event("free_completed", 1, 100),
              event("free_completed", 9, 5), event("segment_alloc", 3, 7), event("alloc", 1, 40),
              event("free_completed", 1, 40)]
    snapshot = {"device_traces": [events], "lockstep": [{"lost_events": 0}]}
    assert trace_of(snapshot) == [100, 30, -1, 40, -3], trace_of(snapshot)
    assert replay([100, 30, -1, 40, -3]) == (130, 2 * MIB)
    assert replay([5 * MIB, 14 * MIB]) == (19 * MIB, 20 * MIB)
    assert replay([5 * MIB, 16 * MIB]) == (21 * MIB, 36 * MIB)
    assert replay([5 * MIB, 9 * MIB, -1, -2, 9 * MIB + 1]) == (14 * MIB, 20 * MIB)
    assert replay([12 * MIB + 1, -1, 12 * MIB]) == (12 * MIB + 1, 14 * MIB)
    print("pool_trace.py: self-test passed")


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) == 3 and arguments[0] == "make":
        trace = trace_of(json.loads(pathlib.Path(arguments[1]).read_text()))
        text = "".join(f"{event}\n" for event in trace).encode()
        pathlib.Path(arguments[2]).write_bytes(gzip.compress(text, 9, mtime=0))
        return None
    if len(arguments) == 2 and arguments[0] == "replay-malloc":
        return replay_malloc(arguments[1])
    if len(arguments) > 1 and arguments[0] == "replay":
        program, paths = pools_program(), arguments[1:]
        if paths[0] == "--pools":
            program, paths = paths[1], paths[2:]
        for path in paths:
            compare(path, program)
        return None
    sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
