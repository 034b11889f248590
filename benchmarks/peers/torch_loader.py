#!/usr/bin/env python3
"""PyTorch's side of benchmark_loader: the same data, order and work through torch's DataLoader.

    torch_loader.py CASE FOLDER FORM

Reads what `benchmark_loader --serve CASE FOLDER` wrote. FORM is `samples` (the data set's
__getitem__, default collation) or `batches` (its __getitems__, which fills a whole batch). Prints
"ready", then answers the lines on standard input, "check W", "epoch W" and "consume W" for W
workers, with the seconds of an epoch, those waited for a batch, and a checksum.
"""

import json
import pathlib
import sys
import time

import numpy
import safetensors.torch
import torch
from torch.utils.data import DataLoader, Dataset

CONTEXT = 1024
CROP = 224


class Tokens(Dataset):
    """Sequences of a file of 16-bit tokens with what follows each token."""

    def __init__(self, folder, _):
        self.tokens = numpy.memmap(folder / "tokens.bin", dtype=numpy.uint16, mode="r")

    def __len__(self):
        return (len(self.tokens) - 1) // CONTEXT

    def sequence(self, index):
        return self.tokens[index * CONTEXT:(index + 1) * CONTEXT + 1]

    def __getitem__(self, index):
        sequence = torch.from_numpy(self.sequence(index).astype(numpy.int64))
        return sequence[:-1], sequence[1:]

    def __getitems__(self, indices):
        rows = numpy.stack([self.sequence(index) for index in indices])
        return (torch.from_numpy(rows[:, :-1].astype(numpy.int64)),
                torch.from_numpy(rows[:, 1:].astype(numpy.int64)))


class Images(Dataset):
    """Images in memory, cropped, mirrored and normalised; of several ways the fastest in torch."""

    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __init__(self, _, state):
        self.images, self.labels = state["images"], state["labels"]
        self.crops = state["crops"].tolist()
        self.scale, self.shift = 1 / (255 * self.deviation), -self.mean / self.deviation

    def __len__(self):
        return len(self.images)

    def cut(self, index):
        row, column, mirrored = self.crops[index]
        image = self.images[index, row:row + CROP, column:column + CROP]
        return (image.flip(1) if mirrored else image).permute(2, 0, 1)

    def __getitem__(self, index):
        image = self.cut(index).to(torch.float32, memory_format=torch.contiguous_format)
        return image.mul_(self.scale).add_(self.shift), self.labels[index]

    def __getitems__(self, indices):
        batch = torch.empty(len(indices), 3, CROP, CROP)
        for image, index in zip(batch, indices):
            image.copy_(self.cut(index)).mul_(self.scale).add_(self.shift)
        return batch, self.labels[indices]


class Samples(Dataset):
    """A data set without its __getitems__, which DataLoader would prefer."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]


def as_it_is(batch):
    return batch


def make_loader(dataset, form, order, batch_size, workers):
    options = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
    if form == "batches":
        options["collate_fn"] = as_it_is
    return DataLoader(dataset if form == "batches" else Samples(dataset), batch_size=batch_size,
                      sampler=order, drop_last=True, num_workers=workers, **options)


def checksum(tensor):
    weights = torch.arange(tensor.numel()) % 251 + 1
    return float((tensor.reshape(-1).double() * weights).sum())


def run_epoch(loader, step_seconds=0.0, batches=None, checks=False):
    """As run_epoch of support/loader_epoch.hpp."""
    waited, total, count = 0.0, 0.0, 0
    start = asked = time.perf_counter()
    for batch in loader:
        got = time.perf_counter()
        if count > 0:
            waited += got - asked
        if checks:
            total += (1 + count % 97) * sum(checksum(part) for part in batch)
        while step_seconds and time.perf_counter() - got < step_seconds:
            pass
        count += 1
        if count == batches:
            break
        asked = time.perf_counter()
    return {"seconds": time.perf_counter() - start, "waited": waited, "checksum": total}


def main():
    case, folder, form = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    sizes = json.loads((folder / "sizes.json").read_text())
    state = safetensors.torch.load_file(folder / "state.safetensors")
    dataset = {"tokens": Tokens, "images": Images}[case](folder, state)
    order, loaders = state["order"].tolist(), {}
    print("ready", flush=True)
    for line in sys.stdin:
        request, workers = line.split()
        if workers not in loaders:
            loaders[workers] = make_loader(dataset, form, order, sizes["batch_size"], int(workers))
        how = {"check": {"checks": True}, "epoch": {},
               "consume": {"step_seconds": sizes["step_seconds"], "batches": sizes["consumed"]}}
        print(json.dumps(run_epoch(loaders[workers], **how[request])), flush=True)


if __name__ == "__main__":
    main()
