#!/usr/bin/env python3
"""PyTorch's DistributedCheckpoint, by the requests of benchmark_checkpoint --serve: the same layers,
batch and optimizer, synced files, every rank a replica.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... torch_checkpoint.py FOLDER LAYERS WIDTH BATCH

It verifies nothing that it loads. A save goes over the one before, as its own examples do.
"""

import os
import statistics
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

from torch_rank import forget_peak_memory, memory_mb, serve

IDLE_STEPS = 8


def largest(value):
    value = torch.tensor(float(value), dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return value.item()


def slowest(work):
    """Seconds of the slowest rank."""
    dist.barrier()
    start = time.perf_counter()
    work()
    return largest(time.perf_counter() - start)


class Rank:
    def __init__(self, folder, layers, width, batch):
        torch.manual_seed(1)
        self.folder = folder
        net = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
        self.x = torch.randn(batch, width)
        self.replica = DistributedDataParallel(net, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.AdamW(self.replica.parameters(), lr=1e-4)
        self.writers = dist.new_group()  # beside the training's own
        for _ in range(3):
            self.step()

    def step(self):
        self.optimizer.zero_grad()
        self.replica(self.x).square().mean().backward()
        self.optimizer.step()

    def state(self):
        model, optimizer = get_state_dict(self.replica, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def writer(self, name):
        return dcp.FileSystemWriter(os.path.join(self.folder, name), sync_files=True)

    def memory_of(self, work):
        """The most memory beyond what there was before, on any rank, in MB."""
        forget_peak_memory()
        before = memory_mb("VmRSS")
        work()
        return largest(memory_mb("VmHWM") - before)

    def first(self):
        answers = []
        memory = self.memory_of(lambda: answers.append(self.save()))
        return {**answers[0], "memory_mb": memory}

    def save(self):
        seconds = slowest(lambda: dcp.save(self.state(), storage_writer=self.writer("saved")))
        return {"seconds": seconds, "call": seconds}

    def load_newest(self):
        state = self.state()
        dcp.load(state, checkpoint_id=os.path.join(self.folder, "saved"))
        set_state_dict(self.replica, self.optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])

    def load(self):
        for entry in os.scandir(os.path.join(self.folder, "saved")):
            descriptor = os.open(entry.path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        seconds = []
        memory = self.memory_of(lambda: seconds.append(slowest(self.load_newest)))
        return {"seconds": seconds[0], "cached": slowest(self.load_newest), "memory_mb": memory}

    def beside(self):
        """Steps beside dcp.async_save, and without."""
        idle = [slowest(self.step) for _ in range(IDLE_STEPS)]
        futures = []
        call = slowest(lambda: futures.append(
            dcp.async_save(self.state(), storage_writer=self.writer("beside"),
                           process_group=self.writers)))
        writing = [slowest(self.step)]
        while largest(not futures[0].done()):
            writing.append(slowest(self.step))
        futures[0].result()
        idle += [slowest(self.step) for _ in range(IDLE_STEPS)]
        alone, took = statistics.median(idle), sum(writing)
        return {"seconds": took, "step": alone, "call": call,
                "stall": call + max(0, writing[0] - alone),
                "speed": alone * len(writing) / took,
                "lost": call + took - alone * len(writing)}

    def answer(self, request):
        return {"first": self.first, "save": self.save, "load": self.load,
                "beside": self.beside}[request.strip()]()


def main():
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    serve(Rank(sys.argv[1], *map(int, sys.argv[2:5])))


if __name__ == "__main__":
    main()
