"""Profiles of the simulated GPU (LOCKSTEP_SIM_PROFILE): JSON lines, a header and then one record a call.

Reading them, and making them: `Recorder` writes the records that a program would leave, for programs
that were never run here (programs/) and for tests.
"""

import json
import pathlib

VERSION = 1
DTYPE_BYTES = {"f64": 8, "i64": 8, "u64": 8, "f32": 4, "i32": 4, "u32": 4, "bf16": 2, "f16": 2, "u8": 1, "i8": 1,
               "bool": 1, "fp8": 1, "f8e4m3": 1, "f8e5m2": 1}
# What a record has where the profile says nothing else.
USUAL = {"name": "", "site": "", "device": 0, "stream": -1, "thread": 0, "host_us": 0.0, "call_us": 0.0}
# Kinds of records that put work on a stream. Graph launches do so by their nodes.
DEVICE_KINDS = {"kernel", "product", "attention", "convolution", "cudnn", "copy", "memset", "collective"}
HOST_KINDS = {"event_record", "stream_wait", "host_wait", "query", "graph_launch", "allocation", "mark"}


class Profile:
    """One rank's records, in the order of their ids."""

    def __init__(self, header, records):
        self.header = header
        self.rank = header.get("rank", 0)
        self.ranks = header.get("ranks", 1)
        self.records = sorted(records, key=lambda record: record["id"])

    @property
    def marks(self):
        return [record for record in self.records if record["kind"] == "mark"]


def parse(lines, name="profile"):
    """A profile from its lines. What is not one is refused with its line number."""
    header, records = None, []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{name}:{number}: no JSON ({error}); was the program ended early?") from error
        if not isinstance(entry, dict):
            raise ValueError(f"{name}:{number}: {line.strip()[:40]} is no record, which is an object")
        if header is None and "profile" not in entry:
            raise ValueError(f"{name}:{number}: no profile: its first line is {{\"profile\":{VERSION},...}}")
        if header is None:
            if entry.get("profile") != VERSION:
                raise ValueError(f"{name}:{number}: version {entry.get('profile')} of the profile: "
                                 f"this reads version {VERSION}")
            header = entry
        elif entry.get("kind") not in DEVICE_KINDS | HOST_KINDS:
            raise ValueError(f"{name}:{number}: a record of kind '{entry.get('kind')}', which is none of "
                             f"{', '.join(sorted(DEVICE_KINDS | HOST_KINDS))}")
        else:
            records.append({**USUAL, **entry})
    if header is None:
        raise ValueError(f"{name}: empty; a profile begins with a line {{\"profile\":{VERSION},...}}")
    return Profile(header, records)


def read(path):
    """The profile in a file."""
    path = pathlib.Path(path)
    try:
        with path.open(encoding="utf-8") as lines:
            return parse(lines, path.name)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: no profile: it is no text ({error})") from error
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error


def rank_files(path):
    """All ranks' files of a job on one host: FILE of rank 0, and FILE with ".rank" before its ending."""
    path = pathlib.Path(path)
    files, rank = [path], 1
    while (other := path.with_name(f"{path.stem}.{rank}{path.suffix}")).exists():
        files.append(other)
        rank += 1
    return files


class Recorder:
    """Makes records as the simulated GPU would. Times of the host are `host_us` a call apart."""

    def __init__(self, program="synthetic", rank=0, ranks=1, host_us=1.0):
        self.header = {"profile": VERSION, "program": program, "rank": rank, "ranks": ranks}
        self.host_us, self.clock, self.records = host_us, 0.0, []
        self.graph = None

    def add(self, kind, name="", stream=0, **fields):
        """Appends a record and returns its id."""
        record = {"id": len(self.records), "kind": kind, "name": name or kind, "site": "", "device": 0,
                  "stream": stream, "thread": 0, "host_us": self.clock, "call_us": 0.0, **fields}
        if self.graph is not None:
            record["graph_launch"], record["after"] = self.graph
            self.graph = (self.graph[0], [record["id"]])
        else:
            self.clock += self.host_us
        self.records.append(record)
        return record["id"]

    def begin_graph(self):
        """What follows until `end_graph` are the nodes of one launch, one after the other."""
        self.graph = (self.add("graph_launch", graph=1, nodes=0), [])

    def end_graph(self):
        launch, _ = self.graph
        self.records[launch]["nodes"] = len(self.records) - launch - 1
        self.graph = None

    def elementwise(self, name, read, write, stream=0, threads=256, bytes_each=16, **fields):
        """A kernel that reads and writes so many bytes once, coalesced, `bytes_each` a thread."""
        blocks = max(1, -(-int(max(read, write)) // (threads * bytes_each)))
        total = read + write
        return self.add("kernel", name, stream, grid=[blocks, 1, 1], block=[threads, 1, 1], shared=0,
                        static_shared=0, registers=32, spills=0, blocks_run=blocks, read_bytes=read,
                        write_bytes=write, read_distinct=read, write_distinct=write, atomics=0,
                        requests=total // (32 * bytes_each), sectors=total // 32, ideal_sectors=total // 32,
                        shared_requests=0, shared_wavefronts=0, barriers=0, **fields)

    def product(self, m, n, k, batch=1, dtype="bf16", compute="f32", name="product", extra=0, epilogue="", **fields):
        """A matrix product; `extra` are bytes of its epilogue beside the result."""
        size = DTYPE_BYTES[dtype]
        return self.add("product", name, m=m, n=n, k=k, batch=batch, a=dtype, b=dtype, c=dtype, d=dtype,
                        compute=compute, epilogue=epilogue, flops=2.0 * m * n * k * batch,
                        read_distinct=batch * (m * k + k * n) * size, write_distinct=batch * m * n * size + extra,
                        **fields)

    def attention(self, batch, heads, length, width, backward=False, kv_heads=None, causal=True, dtype="bf16"):
        kv_heads = kv_heads or heads
        size = batch * length * width * DTYPE_BYTES[dtype]
        flops = 4.0 * batch * heads * length * length * width * (0.5 if causal else 1) * (2.5 if backward else 1)
        tensors = (heads + kv_heads) * size * (2 if backward else 1)
        return self.add("attention", "attention", batch=batch, heads=heads, kv_heads=kv_heads, queries=length,
                        keys=length, width=width, causal=causal, backward=backward, deterministic=False,
                        dtype=dtype, flops=flops, read_distinct=tensors + heads * size, write_distinct=tensors)

    def collective(self, op, count, ranks, dtype="bf16", stream=0, communicator=0):
        return self.add("collective", f"nccl{op}", stream, communicator=communicator, ranks=ranks,
                        calls=[{"op": op, "count": count, "dtype": dtype, "bytes": count * DTYPE_BYTES[dtype]}])

    def lines(self):
        return [json.dumps(self.header)] + [json.dumps(record) for record in self.records]

    def profile(self):
        return Profile(self.header, self.records)
