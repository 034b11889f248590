"""Whole trainings of a small GPT-2: on two ranks in every way that gradients, parameters and states are shared out, with each pool, captured,
resumed, and with a rank that is killed. Each is held against a plain training on one rank."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import signal
import threading

import gpu_tests

STEPS = 16
SIZE = ("--layers", 4, "--heads", 4, "--channels", 128, "--context", 128, "--global-batch", 8)
SMALL = ("--layers", 1, "--heads", 2, "--channels", 32, "--context", 16, "--global-batch", 4)
# How many at a time: their ranks share a GPU.
AT_A_TIME = 3
# Of a step's loss, relative to the plain training's: where only sums differ, where gradients or products are in 16 bits, and where something
# else is trained on purpose.
ROUNDED, HALF, LOOSE = 1e-3, 2e-2, 0.2


@dataclasses.dataclass(frozen=True)
class Job:
    """One training; `limit` is how far its losses may be from those of the plain one."""
    name: str
    options: tuple = ()
    limit: float = ROUNDED
    ranks: int = 2


JOBS = (
    Job("captured, one rank", ("--capture",), ranks=1), Job("growable pool, one rank", ("--pool", "growable"), ranks=1),
    Job("async pool, one rank", ("--pool", "async"), ranks=1), Job("two ranks"), Job("captured", ("--capture",)),
    Job("micro-batches", ("--micro-batch", 1)), Job("through the host", ("--comm", "shm")),
    Job("ZeRO 1", ("--zero", 1)), Job("ZeRO 2", ("--zero", 2, "--micro-batch", 1)), Job("ZeRO 3", ("--zero", 3)),
    Job("ZeRO 1, captured", ("--zero", 1, "--capture")), Job("measured buckets", ("--plan", "measured", "--bucket-mb", 0.25)),
    Job("growable pool, captured", ("--pool", "growable", "--capture")), Job("async pool", ("--pool", "async")),
    Job("autocast", ("--amp", "bf16"), HALF), Job("autocast in f16, captured", ("--amp", "f16", "--capture"), HALF),
    Job("gradients in bf16", ("--compress", "bf16"), HALF), Job("PowerSGD", ("--compress", "powersgd:4"), LOOSE),
    Job("local steps", ("--async", "local:4"), LOOSE), Job("DiLoCo", ("--async", "diloco:4"), LOOSE),
    Job("a step late", ("--async", "stale"), LOOSE))
# What the simulated GPU runs, which takes seconds for each.
QUICK = ("two ranks", "ZeRO 2")


class Jobs:
    """The trainings of one check, in a folder of their own."""

    def __init__(self, check, folder):
        self.check, self.folder = check, pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.shared = len(check.gpus) < 2
        self.environment = {**check.place.environment, "LOCKSTEP_TIMEOUT": "20"}
        if self.shared:
            self.environment.update(gpu_tests.TWO_HOSTS)

    def program(self, name, options):
        size, steps = (SMALL, 4) if self.check.quick else (SIZE, STEPS)
        file = self.file(name)
        return [self.check.place.program("train_gpt"), "--device", "cuda", *size, "--steps", steps, "--sample", 0, "--check-divergence", 4,
                "--log", f"{file}.jsonl", "--save", f"{file}.safetensors", *options]

    def file(self, name):
        return self.folder / name.replace(" ", "-").replace(",", "")

    def losses(self, name):
        """Of each step, by its number: a step that was made again counts once."""
        file = pathlib.Path(f"{self.file(name)}.jsonl")
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.endswith("}")] if file.exists() else []
        return {line["step"]: line["loss"] for line in lines if "loss" in line}

    def weights(self, name):
        file = pathlib.Path(f"{self.file(name)}.safetensors")
        return file.read_bytes() if file.exists() else None

    def run(self, job):
        """Runs a job under mpirun."""
        start = self.check.place.ranks(job.ranks, self.program(job.name, job.options), "NCCL_HOSTID" if self.shared and job.ranks > 1 else None)
        return self.check.run(start, self.check.left(), self.environment)

    def tell(self, name, outcome, wrong):
        """Adds what became of a job; `wrong` says what is, or is empty."""
        self.check.results.add("jobs", job=name, seconds=round(outcome.seconds, 1), ended=outcome.words, wrong=wrong)
        if (wrong or not outcome.is_good) and not outcome.is_late:
            self.check.note_failure("jobs", f"{name}: {wrong or outcome.words}: {' | '.join(outcome.lines[-4:])[-400:]}")


def deviation(losses, plain):
    """The largest relative distance of losses; infinite where steps are missing, or have no finite loss."""
    if losses.keys() != plain.keys() or None in losses.values():
        return float("inf")
    return max(abs(losses[step] / plain[step] - 1) for step in plain)


def what_is_wrong(job, outcome, losses, expected):
    """Of a training that ended well; else nothing."""
    if not outcome.is_good:
        return ""
    eager = next((line for line in outcome.lines if re.search("(ran|runs) eagerly", line)), None)
    if "--capture" in job.options and eager:
        return f"nothing was captured: {eager.strip()}"
    apart = deviation(losses, expected)
    return "" if apart <= job.limit else f"losses are {apart:.2g} from those of the plain training, {job.limit} is allowed"


def run(check):
    """All jobs, some at a time."""
    if not check.place.program("train_gpt") or not check.place.ranks(1, []):
        check.skip("jobs", "train_gpt was not built" if not check.place.program("train_gpt") else "no mpirun")
        return
    jobs = Jobs(check, check.results.folder / "jobs")
    plain = Job("plain", ("--deterministic",), ranks=1)
    first = jobs.run(plain)
    expected = jobs.losses(plain.name)
    jobs.tell(plain.name, first, "" if expected or not first.is_good else "it logged no loss")
    if not expected:
        return

    def one(job):
        if check.left() < 2:
            check.results.add("jobs", job=job.name, skipped="no time is left")
            return
        outcome = jobs.run(job)
        jobs.tell(job.name, outcome, what_is_wrong(job, outcome, jobs.losses(job.name), expected))

    acts = [lambda job=job: one(job) for job in JOBS if not check.quick or job.name in QUICK]
    acts += [lambda: resumed(jobs), lambda: killed(jobs)]
    with concurrent.futures.ThreadPoolExecutor(1 if check.quick else AT_A_TIME) as pool:
        list(pool.map(lambda act: act(), acts))
    for file in jobs.folder.glob("*.safetensors"):
        file.unlink()


def resumed(jobs):
    """A training on two ranks, and again from the middle: the weights are the same, bit for bit."""
    folder = jobs.folder / "checkpoints"
    half = 2 if jobs.check.quick else STEPS // 2
    options = ("--deterministic", "--checkpoint-dir", folder, "--save-every", half, "--keep", 4)
    whole = jobs.run(Job("whole", options))
    again = jobs.run(Job("resumed", ("--deterministic", "--checkpoint-dir", jobs.folder / "more", "--resume", folder / f"step-{half}"))) if whole.is_good else whole
    is_same = jobs.weights("whole") is not None and jobs.weights("whole") == jobs.weights("resumed")
    first = min(jobs.losses("resumed"), default=0)
    wrong = f"it began with step {first}, not behind step {half - 1}" if first != half else \
        "" if is_same else "its weights are not those of the whole training"
    jobs.tell("resumed", again, wrong if again.is_good else "")


def killed(jobs):
    """lockstep_run starts two ranks again, one of which is killed: the weights are those of a training that was left alone."""
    check, name = jobs.check, "killed"
    if not check.place.program("lockstep_run"):
        check.skip("jobs", "lockstep_run was not built")
        return
    words = [str(word) for word in jobs.program(name, ("--deterministic", "--checkpoint-dir", jobs.folder / "killed-checkpoints", "--save-every", 1))]
    if jobs.shared:
        words = ["sh", "-c", 'NCCL_HOSTID=rank$RANK exec "$@"', "sh", *words]
    done = threading.Event()
    killer = threading.Thread(target=kill_a_rank, args=(jobs, name, done))
    killer.start()
    try:
        outcome = check.run([check.place.program("lockstep_run"), "-n", 2, "--", *words], check.left(), jobs.environment)
    finally:
        done.set()
        killer.join()
    restarted = any("restart 1" in line for line in outcome.lines) and any("goes on after step" in line for line in outcome.lines)
    alone = jobs.run(Job("left alone", ("--deterministic",))) if outcome.is_good else outcome
    is_same = jobs.weights(name) is not None and jobs.weights(name) == jobs.weights("left alone")
    wrong = "" if not alone.is_good else "no rank was started again behind a saved step" if not restarted else "" if is_same else "its weights are others"
    jobs.tell(name, outcome if not outcome.is_good else alone, wrong)


def kill_a_rank(jobs, name, done):
    """Kills rank 1 once a step has been saved."""
    while not done.wait(0.05):
        if not list((jobs.folder / "killed-checkpoints").glob("step-*")) or len(jobs.losses(name)) < 2:
            continue
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words, variables = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            except OSError:
                continue
            if words.startswith(bytes(jobs.check.place.program("train_gpt"))) and f"{jobs.file(name)}.jsonl".encode() in words and \
                    b"\0RANK=1\0" in b"\0" + variables:
                os.kill(int(process.name), signal.SIGKILL)
                return
