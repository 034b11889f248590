#!/usr/bin/env python3
"""Traces of what training steps allocate, and what PyTorch's allocator would make of them.

    pool_trace.py make SNAPSHOT TRACE.gz       from the history in a snapshot (dump_memory_snapshot)
    pool_trace.py replay TRACE.gz ...          against a model of PyTorch's CUDA caching allocator
    pool_trace.py --self-test

A trace is text, one number a line: a positive one requests so many bytes, -k returns the k-th
block requested, from 1. tests/memory replays the same files against lockstep's pool.
benchmark_record_allocations makes the snapshots.
"""

import bisect
import gzip
import json
import pathlib
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
    if len(arguments) > 1 and arguments[0] == "replay":
        for path in arguments[1:]:
            peak, reserved = replay(read(path))
            print(f"{path}: at most {peak / MIB:.1f} MiB live; PyTorch's policy reserves "
                  f"{reserved / MIB:.1f} MiB, {reserved / peak:.3f} times that")
        return None
    sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
