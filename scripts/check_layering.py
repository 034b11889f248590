#!/usr/bin/env python3
"""Fails on an include that points against the layers of docs/architecture.md.

Reads the #include lines of include/, src/, kernels/, simgpu/ and examples/. Each forbidden arrow is one line:
file:line, the include, and the rule it breaks. A layer of this script without a file, and one that the document
draws and this script lacks, is one line too.

    check_layering.py [ROOT]      check the tree (default: this checkout)
    check_layering.py --self-test plant violations in a temporary tree and see them caught
"""

import graphlib
import pathlib
import re
import sys
import tempfile

import tree_check

# Layer -> the layers it may include, beside itself. `observe` is open to all but those that name
# nothing. `backend` are the kernel-family interfaces and their implementations below src/backend.
LOW = {"core", "runtime", "memory"}
TENSOR = LOW | {"functional", "backend", "tensor"}
AUTOGRAD = TENSOR | {"autograd"}
PARALLEL = AUTOGRAD | {"comm", "parallel"}
COMM = LOW | {"comm"}
COMM_BACKEND = COMM | {"comm/host"}
SIMGPU = {"simgpu/include", "simgpu/base", "simgpu/memory", "simgpu/profile", "simgpu/engine"}
ALLOWED = {
    "core": set(),
    "observe": {"core"},
    "runtime": {"core"},
    "memory": {"core", "runtime"},
    "functional": {"core"},
    "kernels": LOW | {"functional"},
    "backend": LOW | {"functional", "kernels"},
    "tensor": TENSOR,
    "io": TENSOR,
    "autograd": TENSOR,
    # The folders of src/comm are layers over what lies in it directly; only that is open to others.
    "comm": LOW,
    "comm/host": COMM | {"kernels"},
    "comm/nccl": COMM | {"kernels"},
    "comm/self": COMM_BACKEND,
    "comm/staged": COMM,
    "comm/shm": COMM_BACKEND | {"kernels"},
    "comm/thread": COMM_BACKEND,
    "comm/tcp": COMM_BACKEND,
    "comm/bootstrap": COMM | {"comm/tcp"},
    "comm/control": COMM | {"comm/tcp"},
    "comm/hier": COMM_BACKEND | {"comm/shm", "kernels"},
    "comm/mpi": COMM_BACKEND | {"comm/bootstrap"},
    "comm/session": COMM | {"comm/bootstrap", "comm/control", "kernels"},
    "parallel": AUTOGRAD | {"comm"},
    "amp": PARALLEL | {"optim"},
    "nn": PARALLEL,
    "optim": PARALLEL,
    "data": TENSOR | {"io"},
    "checkpoint": PARALLEL | {"amp", "data", "io", "nn", "optim"},
    "train": PARALLEL | {"amp", "data", "nn", "optim", "checkpoint"},
    "models": AUTOGRAD | {"nn", "io"},
    # The simulated GPU, from its headers (simgpu/include) upwards. It knows pools by their observer,
    # and lockstep's layer over cuDNN, for which it stands in. Nothing may know of it.
    "simgpu/include": set(),
    "simgpu/base": {"simgpu/include"},
    "simgpu/memory": SIMGPU - {"simgpu/engine", "simgpu/profile"},
    "simgpu/profile": {"simgpu/include", "simgpu/base", "observe"},
    "simgpu/engine": SIMGPU,
    "simgpu/kernels": SIMGPU,
    "simgpu/libraries": SIMGPU,
    "simgpu/runtime": SIMGPU | {"memory"},
    "simgpu/cublas": SIMGPU,
    "simgpu/cublaslt": SIMGPU | {"simgpu/libraries", "core"},
    "simgpu/nccl": SIMGPU | {"core"},
    "simgpu/cudnn": SIMGPU | LOW | {"simgpu/libraries", "backend"},
}
WITHOUT_OBSERVE = {"core", "functional", "kernels"}

VENDORS = {
    "cuda": re.compile(r"^(cuda|cublas|cub/|cooperative_groups|nvtx3|thrust/|curand)"),
    "cudnn": re.compile(r"^cudnn"),
    "nccl": re.compile(r"^nccl"),
    "mpi": re.compile(r"^mpi(\.h|-ext\.h|/)"),
    "onednn": re.compile(r"^(dnnl|oneapi/)"),
    "logging": re.compile(r"^(spdlog|fmt)/"),
    "json": re.compile(r"^nlohmann/"),
    "cli": re.compile(r"^CLI/"),
}
# The folders (anywhere in the path) in which a backend's own headers may be included.
VENDOR_FOLDERS = {"cuda": {"cuda", "cudnn", "nccl", "simgpu"}, "cudnn": {"cudnn"},
                  "nccl": {"nccl", "simgpu"}, "mpi": {"mpi"}, "onednn": {"onednn"}}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
SUFFIXES = {".hpp", ".h", ".cpp", ".cu", ".cuh", ".def", ".inl"}


def layer_of(path):
    """The layer of a path relative to the root, or None where none applies."""
    parts = pathlib.PurePosixPath(path).parts
    if parts[0] == "kernels":
        return "functional" if parts[1] == "functional" else "kernels"
    if parts[0] == "include":
        parts = parts[1:]
        if parts[-1] == "version.hpp":
            return "core"
    if parts[0] == "simgpu":
        return f"simgpu/{parts[2] if parts[1] == 'src' else parts[1]}"
    if parts[1] == "comm" and len(parts) > 3:
        return f"comm/{parts[2]}"
    return parts[1] if len(parts) > 2 else "root"


def layer_of_include(path, target):
    """The layer that an include in path names, or None for headers outside the project."""
    parts = pathlib.PurePosixPath(target).parts
    if parts[0] == "simgpu":
        return "simgpu/include"
    if path.startswith("simgpu/") and parts[:2] != ("runtime", "cuda"):
        own = f"simgpu/{parts[0]}"
        if len(parts) > 1 and own in ALLOWED:
            return own
    if parts[0] == "lockstep":
        return layer_of("include/" + target)
    if parts[0] == "comm":
        return layer_of("src/" + target)
    if parts[0] in ("arguments", "cpu", "cuda") and len(parts) > 1:
        return "kernels"
    return parts[0] if len(parts) > 1 and parts[0] in ALLOWED else None


def broken_rule(path, target):
    """The rule that `#include target` breaks in `path`, or None."""
    public = path.startswith("include/")
    folders = set(pathlib.PurePosixPath(path).parts[:-1])
    for vendor, pattern in VENDORS.items():
        if not pattern.match(target):
            continue
        if public:
            return f"public headers include no {vendor} header"
        if path.startswith("examples/"):
            return None
        allowed = VENDOR_FOLDERS.get(vendor)
        if allowed and not folders & allowed:
            return f"{vendor} headers belong in a folder named {' or '.join(sorted(allowed))}"
        return None
    to = layer_of_include(path, target)
    if to is None:
        return None
    if path.startswith("examples/"):
        private = not target.startswith("lockstep/")
        return "examples include public headers only" if private else None
    if public and not target.startswith("lockstep/"):
        return "public headers include no private header"
    return broken_arrow(layer_of(path), to)


def broken_arrow(source, to):
    """The rule that an include from layer `source` to layer `to` breaks, or None."""
    if source in (to, "root"):
        return None
    if to == "root":
        return "the library does not include its own umbrella header"
    if to == "observe" and source not in WITHOUT_OBSERVE and not source.startswith("simgpu/"):
        return None
    # One more folder of src/comm is one more backend, such as docs/extending.md adds.
    allowed = ALLOWED.get(source, COMM_BACKEND if source.startswith("comm/") else None)
    if allowed is None:
        return f"'{source}' is not a layer: add it to docs/architecture.md and to this script"
    if to in allowed:
        return None
    may = ", ".join(sorted(allowed)) or "nothing"
    return f"{source} -> {to} is forbidden: {source} may use {may}"


def drawn_layers(document):
    """The names in the drawings of a document."""
    drawings = [part.split("```")[0] for part in document.split("graph TD\n")[1:]]
    return set(re.findall(r"[\w/]+", " ".join(drawings)))


def unreal_layers(root, found):
    """Layers that are not in a folder, in this script and, where drawn, in the document alike."""
    document = root / "docs/architecture.md"
    if not document.exists():
        return []
    return ([f"scripts/check_layering.py: layer '{layer}' has no file"
             for layer in sorted(ALLOWED.keys() - found)] +
            [f"docs/architecture.md: layer '{layer}' is drawn, but not in scripts/check_layering.py"
             for layer in sorted(drawn_layers(document.read_text()) - ALLOWED.keys())])


def check(root):
    """All violations below root, as printable lines, and how many files were read."""
    violations, files, found = [], 0, set()
    for folder in ("include", "src", "kernels", "simgpu/include", "simgpu/src", "examples"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            files += 1
            path = file.relative_to(root).as_posix()
            if not path.startswith("examples/"):
                found.add(layer_of(path))
            for number, line in enumerate(file.read_text().splitlines(), 1):
                include = INCLUDE.match(line)
                rule = include and broken_rule(path, include.group(1))
                if rule:
                    violations.append(f"{path}:{number}: #include {include.group(1)}: {rule}")
    return violations + unreal_layers(root, found), files


def circle_of(allowed):
    """Layers of which each may include the next, the last the first; None if there are none."""
    try:
        tuple(graphlib.TopologicalSorter({layer: may - {layer} for layer, may in allowed.items()})
              .static_order())
        return None
    except graphlib.CycleError as error:
        return error.args[1]


def self_test():
    """Plants includes, forbidden and allowed, and compares what is reported."""
    planted = {
        "include/lockstep/core/a.hpp": ("lockstep/tensor/tensor.hpp", True),
        "include/lockstep/tensor/a.hpp": ("lockstep/autograd/engine.hpp", True),
        "include/lockstep/comm/a.hpp": ("lockstep/tensor/tensor.hpp", True),
        "include/lockstep/autograd/a.hpp": ("lockstep/parallel/reducer.hpp", True),
        "include/lockstep/nn/b.hpp": ("lockstep/autograd/engine.hpp", False),
        "include/lockstep/parallel/a.hpp": ("lockstep/nn/module.hpp", True),
        "include/lockstep/parallel/b.hpp": ("lockstep/comm/communicator.hpp", False),
        "include/lockstep/optim/b.hpp": ("lockstep/parallel/mesh.hpp", False),
        "include/lockstep/nn/a.hpp": ("lockstep/parallel/reducer.hpp", False),
        "include/lockstep/comm/b.hpp": ("mpi.h", True),
        "include/lockstep/runtime/a.hpp": ("cuda_runtime_api.h", True),
        "include/lockstep/observe/a.hpp": ("nlohmann/json.hpp", True),
        "include/lockstep/tensor/b.hpp": ("backend/gemm.hpp", True),
        "include/lockstep/core/b.hpp": ("lockstep/observe/trace.hpp", True),
        "include/lockstep/optim/a.hpp": ("lockstep/observe/trace.hpp", False),
        "include/lockstep/nn/c.hpp": ("lockstep/lockstep.hpp", True),
        "include/lockstep/lockstep.hpp": ("lockstep/nn/module.hpp", False),
        "include/lockstep/surprise/a.hpp": ("lockstep/core/error.hpp", True),
        "src/tensor/a.cpp": ("backend/gemm.hpp", False),
        "src/comm/thread/a.cpp": ("mpi.h", True),
        "src/comm/mpi/a.cpp": ("mpi.h", False),
        "src/comm/a.cpp": ("comm/bootstrap/bootstraps.hpp", True),
        "src/comm/b.cpp": ("comm/failure.hpp", False),
        "src/comm/host/a.cpp": ("comm/tcp/socket.hpp", True),
        "src/comm/host/b.cpp": ("cpu/loops.hpp", False),
        "src/comm/nccl/a.cpp": ("comm/host/host_work.hpp", True),
        "src/comm/tcp/a.cpp": ("comm/bootstrap/bootstraps.hpp", True),
        "src/comm/tcp/b.cpp": ("comm/host/transport.hpp", False),
        "src/comm/bootstrap/a.cpp": ("comm/tcp/socket.hpp", False),
        "src/comm/control/a.cpp": ("comm/session/device_choice.hpp", True),
        "src/comm/session/a.cpp": ("comm/control/control_channel.hpp", False),
        "src/comm/shm/a.cpp": ("comm/host/executor.hpp", False),
        "src/comm/shm/b.cpp": ("comm/tcp/socket.hpp", True),
        "src/parallel/a.cpp": ("comm/host/transport.hpp", True),
        "src/parallel/b.cpp": ("comm/communicator_backend.hpp", False),
        "src/backend/cudnn/a.cpp": ("cudnn_frontend.h", False),
        "src/backend/cuda/a.cpp": ("cudnn_frontend.h", True),
        "src/backend/onednn/a.cpp": ("dnnl.hpp", False),
        "src/backend/cpu/a.cpp": ("oneapi/dnnl/dnnl.hpp", True),
        "kernels/functional/a.hpp": ("lockstep/runtime/stream.hpp", True),
        "kernels/cpu/a.hpp": ("lockstep/tensor/tensor.hpp", True),
        "kernels/cuda/a.cu": ("cuda_runtime.h", False),
        "simgpu/src/base/a.hpp": ("engine/operation.hpp", True),
        "simgpu/src/memory/a.hpp": ("engine/operation.hpp", True),
        "simgpu/src/memory/b.hpp": ("base/report.hpp", False),
        "simgpu/src/engine/c.hpp": ("memory/layout.hpp", False),
        "simgpu/src/engine/d.hpp": ("runtime/device.hpp", True),
        "simgpu/src/runtime/a.cpp": ("lockstep/memory/block_observer.hpp", False),
        "simgpu/include/simgpu/a.hpp": ("engine/entry.hpp", True),
        "simgpu/src/engine/a.hpp": ("cuda_runtime_api.h", False),
        "simgpu/src/engine/b.hpp": ("lockstep/tensor/tensor.hpp", True),
        "simgpu/src/nccl/a.hpp": ("lockstep/core/half.hpp", False),
        "simgpu/src/cudnn/a.cpp": ("backend/gemm.hpp", False),
        "simgpu/src/cudnn/b.cpp": ("engine/operation.hpp", False),
        "simgpu/src/cublaslt/a.cpp": ("backend/gemm.hpp", True),
        "src/backend/cuda/b.cpp": ("simgpu/simgpu.hpp", True),
        "kernels/cuda/b.cu": ("simgpu/warp.hpp", True),
        "examples/a.cpp": ("backend/gemm.hpp", True),
        "examples/b.cpp": ("CLI/CLI.hpp", False),
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, (target, _) in planted.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f'#pragma once\n#include "{target}"\n')
        violations, _ = check(root)
        (root / "docs").mkdir()
        (root / "docs/architecture.md").write_text(
            "```mermaid\ngraph TD\n  nn --> attic & core\n```\n"
            "```mermaid\ngraph TD\n  comm/host --> comm/attic & comm\n```\n")
        unreal = [line for line in check(root)[0] if line not in violations]
    # Planted are files of some layers only, and a drawing with one of none.
    expected = ("'attic' is drawn", "'comm/attic' is drawn", "'amp' has")
    unexpected = ("'nn'", "'core'", "'comm/host'")
    if not all(any(words in line for line in unreal) for words in expected) \
            or any(words in line for line in unreal for words in unexpected):
        print("self-test: layers without a folder:", unreal)
        return False
    reported = {line.split(":")[0] for line in violations}
    wrong = [path for path, (_, bad) in planted.items() if bad != (path in reported)]
    misplaced = [line for line in violations if line.split(":")[1] != "2"]
    for path in wrong:
        print(f"self-test: {path} including {planted[path][0]}: "
              f"{'missed' if planted[path][1] else 'wrongly reported'}")
    for line in misplaced:
        print(f"self-test: wrong line number: {line}")
    circle = circle_of(ALLOWED)
    if circle:
        print(f"self-test: the layers form a circle: {' -> '.join(circle)}")
    return not wrong and not misplaced and not circle and circle_of({"a": {"b"}, "b": {"a"}})


def summary(files, violations):
    return f"layering: {files} files, {violations} forbidden includes"


if __name__ == "__main__":
    sys.exit(tree_check.run(__doc__, check, self_test, summary))
