#!/usr/bin/env python3
"""PyTorch's side of benchmark_peer_rank: the same models, weights, batches, optimizer and requests.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... torch_rank.py MODE CASE FILE

MODE: ddp, bf16 or powersgd (hooks), zero1 (ZeroRedundancyOptimizer), fsdp2 and fsdp3 (fully_shard
that keeps gathered parameters until backward, or gathers them again).
"""

import json
import os
import sys
import time

import safetensors.torch
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from torch_train_step import Gpt2


def memory_mb(field):
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 / 1e6
                    for line in status if line.startswith(field + ":"))


def forget_peak_memory():
    """From now on VmHWM is the most that the process has from now on."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def overlap_of(replica):
    """What the last backward's communication took and what of it backward waited for, in seconds."""
    data = replica._get_ddp_logging_data()  # PyTorch has no public way to it
    names = ("backward_comm_time", "backward_compute_time", "backward_compute_comm_overlap_time")
    communication, backward, hidden = (data.get(name, 0) * 1e-9 for name in names)
    return {"communication": communication, "exposed": max(0.0, communication - hidden),
            "hidden": hidden, "backward": backward}


def wrap(mode, model):
    """The model as its ranks train it, and its optimizer."""
    options = {"lr": 1e-4, "weight_decay": 0.01}
    if mode.startswith("fsdp"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model.transformer["h"]:
            fully_shard(block, mesh=mesh, reshard_after_forward=mode == "fsdp3")
        fully_shard(model, mesh=mesh, reshard_after_forward=mode == "fsdp3")
        return model, torch.optim.AdamW(model.parameters(), **options)
    replica = DistributedDataParallel(model, gradient_as_bucket_view=True)
    replica._set_ddp_runtime_logging_sample_rate(1)
    if mode == "bf16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
        replica.register_comm_hook(None, bf16_compress_hook)
    if mode == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
        replica.register_comm_hook(powersgd.PowerSGDState(
            None, matrix_approximation_rank=4, start_powerSGD_iter=2), powersgd.powerSGD_hook)
    if mode == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return replica, ZeroRedundancyOptimizer(replica.parameters(), torch.optim.AdamW, **options)
    return replica, torch.optim.AdamW(replica.parameters(), **options)


class Rank:
    def __init__(self, mode, case, path):
        torch.set_num_threads(1)
        self.mixed = case.endswith("amp")
        self.wide = case.startswith("wide")
        self.dtype = torch.bfloat16 if case.endswith("bf16") else torch.float32
        self.path = path
        self.memory_before = memory_mb("VmRSS")
        tokens = safetensors.torch.load_file(path)["tokens"].clone()
        batch = len(tokens) // dist.get_world_size()
        own = tokens[batch * dist.get_rank():batch * (dist.get_rank() + 1)]
        self.inputs, self.targets = own[:, :-1].contiguous(), own[:, 1:].reshape(-1)
        self.replica, self.optimizer = wrap(mode, self.make_model())
        self.alone = None
        self.values = {}

    def make_model(self):
        channels, heads = (768, 12) if self.wide else (256, 4)
        model = Gpt2(vocabulary=4096, context=256, channels=channels, layers=4, heads=heads)
        state = safetensors.torch.load_file(self.path)
        state.pop("tokens")
        model.load_state_dict(state)
        return model.to(self.dtype)

    def step(self, model, optimizer):
        forget_peak_memory()
        processor = time.process_time()
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.mixed):
            logits = model(self.inputs)
            loss = functional.cross_entropy(logits.view(-1, logits.shape[-1]), self.targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.item()
        return {"seconds": time.perf_counter() - start, "loss": loss,
                "processor": time.process_time() - processor,
                "memory_mb": memory_mb("VmRSS") - self.memory_before,
                "peak_mb": memory_mb("VmHWM") - self.memory_before}

    def all_reduce(self, size, calls):
        values = self.values.setdefault(size, torch.full((size // 4,), 1 / 1024))
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(values)
        seconds = (time.perf_counter() - start) / calls
        last = values[-1].item()
        values.fill_(1 / 1024)
        return {"seconds": seconds, "loss": last}

    def answer(self, request):
        what, *numbers = request.split()
        if what == "all_reduce":
            return self.all_reduce(*map(int, numbers))
        if what == "alone":
            if not self.alone:
                model = self.make_model()
                self.alone = model, torch.optim.AdamW(model.parameters(), lr=1e-4,
                                                      weight_decay=0.01)
            return self.step(*self.alone)
        answer = self.step(self.replica, self.optimizer)
        if isinstance(self.replica, DistributedDataParallel):
            answer["overlap"] = overlap_of(self.replica)
        return answer


def serve(rank):
    """Answers the requests of standard input, and ends the process."""
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(rank.answer(line)), flush=True)
    sys.stdout.flush()
    os._exit(0)  # the other rank may have gone


def main():
    dist.init_process_group("gloo")
    serve(Rank(*sys.argv[1:4]))


if __name__ == "__main__":
    main()
