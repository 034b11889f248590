"""Whole training steps on the GPU: lockstep's, PyTorch's and llm.c's."""

import os
import re
import statistics
import sys

BATCHES = {"gpt2": 64, "resnet50": 256, "vit": 256}
# (model, dtype) of our own steps: PyTorch's are under autocast, llm.c's parameters are bf16.
RUNS = (("gpt2", "bf16"), ("gpt2", "autocast"), ("resnet50", "autocast"), ("vit", "autocast"))
# Those that benchmarks/peers/torch_gpu_step.py has.
TORCH_MODELS = ("gpt2", "resnet50")
CONTEXT = 1024
# Bytes that a step of these batches takes, of the GPU's memory.
NEEDED = 70 << 30


def batch_of(check, model):
    return 2 if check.quick else BATCHES[model] if check.memory >= NEEDED else BATCHES[model] // 8


def sizes(check, model, steps):
    """Options of a step's program."""
    words = ["--model", model, "--batch", batch_of(check, model), "--steps", 3 if check.quick else steps]
    return words + (["--small"] if check.quick else [])


def summary_of(lines):
    """Median of a program's steps; the first ones choose plans and get memory."""
    times = [line["ms"] for line in lines if "ms" in line]
    warm = times[len(times) // 3:] or times
    return {"steps": len(times), "ms_median": statistics.median(warm), "ms_min": min(warm)} if times else None


def measure(check, command, environment, limit, **fields):
    """Runs a program of steps and adds what it took."""
    answer = check.run(command, limit, environment)
    found = summary_of(answer.json_lines())
    if not found:
        check.fail("steps", f"{' '.join(f'{value}' for value in fields.values())}: {answer.words}", answer)
        return None
    losses = [line["loss"] for line in answer.json_lines() if line.get("loss") is not None]
    check.results.add("steps", **fields, **found, last_loss=losses[-1] if losses else None, ended=answer.words)
    return found["ms_median"]


# "plain": eager without DistributedDataParallel, whose cost on one GPU is the difference.
WAYS = {"eager": (), "plain": ("--plain",), "captured": ("--capture",)}


def ours(check, runs=RUNS):
    program = check.place.program("benchmark_model_step")
    if not program:
        check.skip("steps", "benchmark_model_step was not built")
        return
    for model, dtype in runs[:1] if check.quick else runs:
        for way, options in WAYS.items():
            if check.quick and way != "eager":
                continue
            command = [program, "--device", "cuda", *sizes(check, model, 15), "--dtype", dtype, *options]
            measure(check, command, None, check.left(), program="lockstep", model=model, dtype=dtype,
                    batch=batch_of(check, model), way=way)


# Steps that a CPU does too, from the same numbers: (model, options).
TWINS = (("gpt2", ("--batch", 4, "--small")), ("gpt2", ("--batch", 1, "--context", 64)), ("llama", ("--batch", 4, "--small")),
         ("vit", ("--batch", 8, "--small")), ("resnet50", ("--batch", 32, "--small")))
# Relative, of the first loss and of those after an update: batch norms of few images amplify what is rounded otherwise.
TWIN_LIMITS = (0.005, 0.05, 0.1)


def twins(check):
    """The first losses of training on the GPU beside the CPU's."""
    program = check.place.program("benchmark_model_step")
    if not program:
        check.skip("twins", "benchmark_model_step was not built")
        return
    for model, options in TWINS[:1] if check.quick else TWINS:
        losses = {}
        for device in ("cpu", "cuda"):
            answer = check.run([program, "--device", device, "--model", model, *options, "--steps", len(TWIN_LIMITS)], check.left())
            losses[device] = [line["loss"] for line in answer.json_lines()]
            if len(losses[device]) < len(TWIN_LIMITS):
                check.fail("twins", f"{model} on {device}: {answer.words}", answer)
                return
        apart = [abs(gpu / cpu - 1) for cpu, gpu in zip(losses["cpu"], losses["cuda"])]
        check.results.add("twins", model=model, options=" ".join(map(str, options)), cpu=losses["cpu"], gpu=losses["cuda"])
        if not all(value <= limit for value, limit in zip(apart, TWIN_LIMITS)):
            check.note_failure("twins", f"{model} {' '.join(map(str, options))}: losses {losses['cuda']} for the CPU's {losses['cpu']}")


# What was taken from others' measurements on Hopper, turned off, and what is measured at run time, turned on. Gradients of biases: 0 is
# none in products, 1 all, and by default norms' kernels have what they can and products the rest.
CHOICES = ({}, {"LOCKSTEP_FUSED_GELU": "0"}, {"LOCKSTEP_FUSED_BIAS_GRADIENT": "0"}, {"LOCKSTEP_FUSED_BIAS_GRADIENT": "1"},
           {"LOCKSTEP_TUNED_PRODUCTS": "tuned_products.txt"},
           {"LOCKSTEP_FUSED_BIAS_GRADIENT": "0", "LOCKSTEP_TUNED_PRODUCTS": "tuned_products.txt"})


def choices(check):
    """GPT-2's step by each choice that an environment variable can turn: which one is faster on this GPU?"""
    program = check.place.program("benchmark_model_step")
    if not program:
        check.skip("choices", "benchmark_model_step was not built")
        return
    model, dtype = RUNS[0]
    command = [program, "--device", "cuda", *sizes(check, model, 15), "--dtype", dtype]
    for choice in CHOICES[:1] if check.quick else CHOICES:
        choice = {name: str(check.results.folder / value) if "." in value else value for name, value in choice.items()}
        answer = check.run(command, check.left(), {**check.place.environment, **choice})
        found = summary_of(answer.json_lines())
        if found:
            check.results.add("choices", model=model, dtype=dtype, choice=choice, **found)
        else:
            check.fail("choices", f"{choice}: {answer.words}", answer)


# A step so small that launches bind it.
SMALL_STEP = ("--model", "gpt2", "--batch", 1, "--context", 64, "--steps", 30)


def has_torch(check):
    answer = check.run([sys.executable, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"], 60,
                       check.place.peer_environment())
    if answer.is_good and answer.lines[-1:] and answer.lines[-1].endswith("True"):
        return True
    check.skip("steps", f"{sys.executable} has no PyTorch that sees a GPU: {' '.join(answer.lines[-1:])[:200]}")
    return False


def torch(check, ways=("eager",)):
    """The same steps by PyTorch: same sizes, autocast to bf16, fused AdamW."""
    script = check.place.root / "benchmarks" / "peers" / "torch_gpu_step.py"
    if not has_torch(check):
        return
    for way in ways:
        for model in TORCH_MODELS:
            command = [sys.executable, script, *sizes(check, model, 15), "--way", way]
            measure(check, command, check.place.peer_environment(), check.left(), program="PyTorch", model=model,
                    dtype="autocast", batch=batch_of(check, model), way=way)
        answer = check.run([sys.executable, script, *SMALL_STEP, "--way", way], check.left(), check.place.peer_environment())
        found = summary_of(answer.json_lines())
        if found:
            check.results.add("launches", way=f"PyTorch {way}, autocast", step_us=round(1e3 * found["ms_median"], 1))
        else:
            check.fail("launches", f"PyTorch {way}: {answer.words}", answer)


def torch_compiled(check):
    torch(check, ("compiled",))


def llmc(check):
    """llm.c, where LLMC_DIR names a checkout of it that is built and has its data."""
    folder = os.environ.get("LLMC_DIR")
    if not folder or not os.access(f"{folder}/train_gpt2cu", os.X_OK):
        check.skip("steps", "no LLMC_DIR with a train_gpt2cu in it")
        return
    batch = batch_of(check, "gpt2")
    answer = check.run(["sh", "-c", f'cd "{folder}" && exec ./train_gpt2cu -b {batch} -t {CONTEXT} -d {batch * CONTEXT} '
                        "-x 15 -v 1000 -m 1 -s 0 -h 0 -e d12"], check.left(), check.place.peer_environment())
    times = [float(word) for word in re.findall(r"\| ([\d.]+) ms \|", "\n".join(answer.lines))]
    if times:
        check.results.add("steps", program="llm.c", model="gpt2", dtype="bf16", batch=batch, way="eager", **summary_of(
            [{"ms": time} for time in times]))
    else:
        check.fail("steps", f"llm.c: {answer.words}", answer)
