"""Every other benchmark's cases on the GPU."""


# Those of other stages, and the one that has no meaning on a real GPU.
OTHERS = {"benchmark_ceilings", "benchmark_model_step", "benchmark_allreduce", "benchmark_simulated_kernels"}
QUICK = {"benchmark_attention", "benchmark_pool"}


def run(check):
    """One after the other, each for some seconds."""
    programs = {path.name for path in check.place.programs.glob("benchmark_*")} - OTHERS
    for name in sorted(programs & QUICK if check.quick else programs):
        path = check.place.programs / name
        if check.left() < 3:
            check.skip("benchmarks", f"{path.name}: no time is left")
            continue
        command = [path, "--json", "--device", "cuda", *(["--small"] if check.quick else [])]
        answer = check.run(command, min(40, check.left()))
        for line in answer.json_lines():
            check.results.add("benchmarks", **line)
        if not answer.is_good:
            check.fail("benchmarks", f"{path.name}: {answer.words}", answer)
    if not check.quick:
        all_reduce(check)


def all_reduce(check):
    """All GPUs of the machine, the sizes of nccl-tests."""
    program, count = check.place.program("benchmark_allreduce"), len(check.gpus)
    command = [program, "--device", "cuda", "--min-bytes", "1M", "--max-bytes", "256M"]
    command = check.place.ranks(count, command) if program else None
    if command:
        answer = check.run(command, min(40, check.left()))
        check.results.add("benchmarks", benchmark="allreduce", ranks=count, ended=answer.words, said=answer.lines[-12:])
