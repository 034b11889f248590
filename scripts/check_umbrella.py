#!/usr/bin/env python3
"""Fails where lockstep/lockstep.hpp brings an internal header that is not known to come with it.

Programs include lockstep/lockstep.hpp, which lists what they call. Templates and inline functions bring more:
those headers are listed here, with the reason. One that is not has no place in a public header's includes.

    check_umbrella.py [ROOT]      check the tree (default: this checkout)
    check_umbrella.py --self-test see a planted header found
"""

import pathlib
import re
import sys
import tempfile

import tree_check

UMBRELLA = "lockstep/lockstep.hpp"
# Headers whose includes are a list of what programs call, too.
LISTS = {UMBRELLA, "lockstep/autograd/ops.hpp", "lockstep/optim/optim.hpp"}
INCLUDE = re.compile(r'^\s*#\s*include "(lockstep/[^"]+)"', re.MULTILINE)
# What else comes with it, and why.
BROUGHT = {
    "members of Tensor and of options are of these types": {
        "core/array_view.hpp", "core/bfloat16.hpp", "core/component.hpp", "core/function_ref.hpp", "core/half.hpp",
        "core/intrusive_ptr.hpp", "core/macros.hpp", "core/philox.hpp", "core/slab.hpp", "tensor/hook_handle.hpp",
        "tensor/scalar.hpp", "tensor/storage.hpp", "tensor/tensor_impl.hpp",
        "tensor/tensor_options.hpp", "memory/memory_snapshot.hpp",
        "io/safetensors_header.hpp"},
    "a user's own op is a template over these (op_call.hpp), inline in the hot path": {
        "autograd/engine.hpp", "autograd/gradient_memory.hpp", "autograd/graph_tag.hpp", "autograd/leaf.hpp",
        "autograd/node.hpp", "autograd/place.hpp", "autograd/record.hpp", "autograd/thread_modes.hpp",
        "core/op_descriptor.hpp"},
    "nn::checkpoint is a template over them": {"autograd/recomputation.hpp", "tensor/random_position.hpp"},
    "tensors ask it for their memory": {"tensor/memory_gate.hpp"},
    "optimizers of the list derive from it": {"optim/layerwise.hpp"},
    "options of a Llama hold its RopeScaling": {"io/llama_config.hpp"},
    "scopes keep these as members": {"autograd/cast_cache.hpp"},
    "a loader is a template over the data set": {
        "data/detail/copy_stream.hpp", "data/detail/failed_samples.hpp",
        "data/detail/prefetch_pipeline.hpp"},
    "loaders give it to train::agree_on_samples, a template over them": {"data/loader_share.hpp"},
    "modules are called and made by templates": {"nn/call.hpp", "nn/construction.hpp"},
    "DistributedDataParallel::reducer() gives out its buckets and times": {
        "parallel/bucket_plan.hpp", "parallel/reducer.hpp", "parallel/index_ranges.hpp", "parallel/parameter_shards.hpp",
        "parallel/measured_plan.hpp", "parallel/message_cost.hpp", "parallel/trace_recorder.hpp",
        "parallel/update_log.hpp"},
}


def includes(root, header):
    """The project's headers that a public header includes."""
    return INCLUDE.findall((root / "include" / header).read_text())


def check(root):
    """Headers that come with the umbrella and are known nowhere, and known ones that do not come."""
    reached, waiting = set(), [UMBRELLA]
    while waiting:
        header = waiting.pop()
        if header not in reached:
            reached.add(header)
            waiting += includes(root, header)
    listed = {each for header in LISTS & reached for each in includes(root, header)} | {UMBRELLA}
    known = {f"lockstep/{header}" for headers in BROUGHT.values() for header in headers}
    lines = [f"include/{header}: comes with {UMBRELLA}, but is no header that programs call: include it where it is "
             "needed only, or say in scripts/check_umbrella.py why it comes"
             for header in sorted(reached - listed - known)]
    lines += [f"scripts/check_umbrella.py: {header} no longer comes with {UMBRELLA}: take it off the list"
              for header in sorted(known & {f"lockstep/{each}" for each in present(root)} - reached)]
    return lines, len(reached)


def present(root):
    """The public headers below root."""
    folder = root / "include/lockstep"
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*.hpp")}


def self_test():
    """A header reached through another is found, one that is listed is not, nor one with a reason."""
    planted = {"lockstep.hpp": ["nn/module.hpp", "autograd/ops.hpp"], "nn/module.hpp": ["core/free_list.hpp"],
               "core/free_list.hpp": ["core/slab.hpp"], "core/slab.hpp": [], "autograd/ops.hpp": ["autograd/ops/a.hpp"],
               "autograd/ops/a.hpp": [], "autograd/leaf.hpp": []}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for header, its in planted.items():
            path = root / "include/lockstep" / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f'#include "lockstep/{each}"\n' for each in its))
        found = [line.split(":")[0] + line.split(":")[1].split()[0] for line in check(root)[0]]
    wanted = ["include/lockstep/core/free_list.hppcomes", "scripts/check_umbrella.pylockstep/autograd/leaf.hpp"]
    if found != wanted:
        print("self-test: found", found)
    return found == wanted


def summary(files, violations):
    return f"umbrella: {files} headers come with it, {violations} without a reason"


if __name__ == "__main__":
    sys.exit(tree_check.run(__doc__, check, self_test, summary))
