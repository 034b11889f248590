"""What checkpoints cost the steps of a training on the GPU: GPT-2 with 85 million parameters, so a gigabyte that is saved beside training."""

import json
import pathlib
import statistics
import tempfile

SIZE = ("--layers", 12, "--heads", 12, "--channels", 768, "--context", 512, "--global-batch", 32, "--amp", "bf16", "--steps", 60)
SMALL = ("--layers", 1, "--heads", 2, "--channels", 32, "--context", 16, "--global-batch", 4, "--steps", 6)
# (name, options, whether lockstep_run starts it)
WAYS = (("without", (), False), ("every 20 steps", ("--save-every", 20), False), ("auto", ("--save-every", "auto"), False),
        ("every step in memory", ("--save-every", 1000, "--snapshot-every", 1), True))


def run(check):
    """One training after the other."""
    program, starter = check.place.program("train_gpt"), check.place.program("lockstep_run")
    if not program or not starter:
        check.skip("saves", "train_gpt or lockstep_run was not built")
        return
    for name, options, supervised in WAYS[:2] if check.quick else WAYS:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=memory()) as in_memory:
            log = pathlib.Path(folder) / "log.jsonl"
            words = [program, "--device", "cuda", *(SMALL if check.quick else SIZE), "--sample", 0, "--log", log]
            if options:
                words += ["--checkpoint-dir", pathlib.Path(folder) / "run", *options]
            if supervised:
                words = [starter, "-n", 1, "--", *words, "--snapshot-dir", in_memory]
            outcome = check.run(words, check.left())
            times = [line["ms"] for line in map(json.loads, log.read_text(encoding="utf-8").splitlines()) if "ms" in line] if log.exists() else []
            written = sum(file.stat().st_size for file in pathlib.Path(folder).glob("run/step-*/*"))
        if outcome.is_good and len(times) > 5 and (written or not options):
            warm = times[5:]
            check.results.add("saves", way=name, steps=len(times), ms_median=statistics.median(warm), ms_mean=round(statistics.mean(warm), 2),
                              ms_max=max(warm), slowest=[round(value, 1) for value in sorted(warm)[-5:]], bytes=written,
                              seconds=round(outcome.seconds, 1), ended=outcome.words)
        else:
            check.fail("saves", f"{name}: {outcome.words}", outcome)


def memory():
    """A folder in memory, where there is one."""
    return "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None
