"""The tests that need a GPU, the most telling first. A test that breaks the GPU's context, or never ends, costs itself alone:
the others go on in a new process."""

import concurrent.futures
import dataclasses
import os
import re

ON_GPU = "*Gpu*:*/cuda*"
SLOW = "*.Slow*"
# After these nothing works any more in a process: it is useless to go on in it.
BROKEN = re.compile(r"illegal memory access|misaligned address|unspecified launch failure|illegal instruction|"
                    r"device-side assert|hardware stack error|invalid program counter|an uncorrectable")
MOST_STARTS = 8
# Of the stage's time, that one suite may take.
LARGEST_SHARE = 0.7
# Seconds after which a test that is not done hangs.
HANGS = 40


@dataclasses.dataclass(frozen=True)
class Suite:
    """Tests of one program, those of `filter` without those of `but`. `ranks` start under mpirun."""
    program: str
    filter: str = ON_GPU
    but: str = ""
    ranks: int = 1
    is_alone: bool = False  # it takes all of a GPU's memory
    is_quick: bool = False  # also on the simulated GPU, for which it takes a second
    needs_mpi: bool = False  # starts under mpirun on one rank too


def in_parts(program, ranks=1):
    """The tests of data parallelism in three suites of like length: contracts of some letters, of others, and all the rest."""
    first = ":".join(f"Nccl/{letter}*" for letter in "CDGLMP")
    second = ":".join(f"Nccl/{letter}*" for letter in "BRSU")
    return tuple(Suite(program, which, but, ranks) for which, but in ((first, ""), (second, ""), ("*", f"{first}:{second}")))


SUITES = (
    Suite("test_runtime", is_alone=True, is_quick=True), Suite("test_memory", is_alone=True), Suite("test_cudnn", "*Gpu.*"), Suite("test_contract"),
    Suite("test_tensor"), Suite("test_autograd"), Suite("test_optim"), Suite("test_comm_nccl", "*"),
    *in_parts("test_ddp_nccl"), Suite("test_random"), Suite("test_nn"), Suite("test_amp"), Suite("test_models"),
    Suite("test_parallel_nccl", "*"), Suite("test_comm_staged", "*", needs_mpi=True),
    Suite("test_staged_threads", "*"), Suite("test_ddp_staged", "*", needs_mpi=True), Suite("test_data"), Suite("test_checkpoint"), Suite("test_io"))


class Run:
    """One suite, over as many processes as it takes."""

    def __init__(self, check, suite, limit, environment=None, command=None, hangs=HANGS):
        self.check, self.suite, self.limit, self.hangs = check, suite, limit, hangs
        self.environment, self.command = environment, command
        self.passed, self.skipped, self.failed, self.seconds = [], [], [], 0.0
        self.running, self.is_broken, self.is_refused, self.said, self.reasons = None, False, False, [], set()
        self.last = None  # test that has ended

    def line(self, line):
        """Follows the test program; True once it is useless to go on."""
        begun = re.match(r"\[ RUN      \] (\S+)", line)
        ended = re.match(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?),?(?: |$)", line)
        if begun:
            self.running, self.is_broken, self.said = begun[1], False, []
        elif ended and ended[2] == self.running:
            kind = {"OK": self.passed, "FAILED": self.failed, "SKIPPED": self.skipped}[ended[1]]
            kind.append(self.running)
            self.last = self.running
            if kind is self.skipped:
                self.reasons.update(words for words in self.said if words and ": Skipped" not in words)
            self.running = None
            return self.is_broken
        elif self.running:
            self.said.append(line.strip())
            self.is_broken |= bool(BROKEN.search(line))
            self.is_refused |= "uplicate GPU" in line
        return False

    def go(self):
        """Runs all tests that may be run in the time."""
        program = self.check.place.program(self.suite.program)
        ended = "done"
        for _ in range(MOST_STARTS):
            known = self.passed + self.skipped + self.failed
            without = ":".join([SLOW, *filter(None, [self.suite.but]), *known])
            filters = f"--gtest_filter={self.suite.filter}-{without}"
            command = [program, filters, "--gtest_color=no"]
            outcome = self.check.run(self.command(command) if self.command else command, self.limit - self.seconds,
                                     self.environment, on_line=self.line, silence=self.hangs)
            self.seconds += outcome.seconds
            if outcome.is_late:
                ended = f"cut off in {self.running}" if self.running else "cut off"
                break
            if self.running:  # a test that did not end: it crashed, or hangs
                self.check.results.log(f"gpu_check: {self.suite.program}: {self.running} did not end: {outcome.words}")
                self.failed.append(self.running)
                self.running = None
                continue
            if outcome.is_stopped:
                continue
            # 1 is what a test program ends with whose tests have failed.
            has_died = outcome.is_silent or outcome.code not in (0, 1)
            ran = self.passed + self.skipped + self.failed
            if has_died or (outcome.code != 0 and not self.failed):
                ended = outcome.words + (f" behind {self.last}" if self.last else "")
            if has_died and len(ran) > len(known):
                self.check.results.log(f"gpu_check: {self.suite.program}: {ended}")
                continue
            break
        else:
            ended = f"gave up after {MOST_STARTS} starts"
        return self.tell(ended)

    def tell(self, ended):
        fields = {"program": self.suite.program, "ranks": self.suite.ranks, "passed": len(self.passed),
                  "failed": self.failed, "skipped": len(self.skipped), "seconds": round(self.seconds, 1), "ended": ended}
        if ended == "cut off" and self.passed and not self.failed:
            fields["ended"] = "cut off between two tests, or behind the last one"
        if self.reasons:
            fields["skipped_because"] = sorted(self.reasons)[:3]
        return fields


def is_fine(fields):
    """Whether nothing failed of what was run in the time."""
    return not fields["failed"] and (fields["ended"] == "done" or fields["ended"].startswith("cut off"))


def run_suites(check):
    """All suites, some at a time: most of a test is the host's work."""
    suites = [suite for suite in SUITES if suite.is_quick or not check.quick]
    limit = check.left()
    workers = 1 if check.quick else max(1, min(4, (os.cpu_count() or 1) // 2))

    def one(suite):
        if not check.place.program(suite.program):
            check.skip("tests", f"{suite.program} was not built")
            return
        left = min(limit * LARGEST_SHARE, check.left())
        if left < 2:
            check.skip("tests", f"{suite.program}: no time is left")
            return
        if suite.needs_mpi and not check.place.ranks(1, []):
            check.skip("tests", f"{suite.program}: no mpirun")
            return
        start = (lambda command: check.place.ranks(1, command)) if suite.needs_mpi else None
        fields = Run(check, suite, left, command=start).go()
        check.results.add("tests", **fields)
        if not is_fine(fields):
            check.note_failure("tests", f"{suite.program}: {len(fields['failed'])} failed, {fields['ended']}")

    for suite in suites:
        if suite.is_alone:
            one(suite)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, (suite for suite in suites if not suite.is_alone)))


def parity(check):
    """A whole training run of a small GPT-2, held against PyTorch's: losses, gradient norms, weights."""
    missing = [name for name in ("train_gpt", "compare_training") if not check.place.program(name)]
    if missing or check.quick or not check.place.ranks(1, []):
        check.skip("parity", f"{missing[0]} was not built" if missing else "for real GPUs" if check.quick else "no mpirun")
        return
    root = check.place.root
    answer = check.run([root / "tests/parity/parity.sh", check.place.programs, root / "tests/data/golden", 1, 1, "f32", "cuda"],
                       check.left())
    check.results.add("parity", ended=answer.words, said=answer.lines[-6:])
    if not answer.is_good and not answer.is_late:
        check.note_failure("parity", f"the run differs from PyTorch's, or ended early: {answer.words}")


# Of two ranks: the first alone, which shows whether NCCL takes these ranks at all. Those over the host take no NCCL.
RANKS = (Suite("test_comm_nccl", "*AllReduce*:*Broadcast*:*AllGather*", ranks=2, is_quick=True), Suite("test_comm_nccl", "*", ranks=2),
         Suite("test_parallel_nccl", "*", ranks=2), *in_parts("test_ddp_nccl", 2), Suite("test_comm_staged", "*", ranks=2),
         Suite("test_ddp_staged", "*", ranks=2))
RANKS_AT_A_TIME = 4


# NCCL joins two ranks on one GPU if it believes them to be on two hosts, which then exchange through sockets and host memory. It may
# look neither for network cards nor for NVLink between hosts; the GPU gives the two processes' kernels their turns.
TWO_HOSTS = {"LOCKSTEP_SHARE_GPUS": "1", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1",
             "NCCL_MNNVL_ENABLE": "0", "NCCL_DEBUG": "WARN"}


def two_ranks(check):
    """Two ranks over NCCL and through the host: with a GPU each, or both on the only one. NCCL takes the latter if it believes
    them to be on two hosts."""
    shared = len(check.gpus) < 2
    environment = {**check.place.environment, "LOCKSTEP_TIMEOUT": "10"}  # two that fail must fit into the stage
    if shared:
        environment.update(TWO_HOSTS)
    if not check.place.ranks(2, []):
        check.skip("ranks", "no mpirun")
        return

    def one(suite):
        """Runs a suite; True where NCCL refuses two ranks on a GPU."""
        if not check.place.program(suite.program):
            check.skip("ranks", f"{suite.program} was not built")
            return False
        run = Run(check, suite, check.left(), environment,
                  lambda command: check.place.ranks(2, command, "NCCL_HOSTID" if shared else None))
        fields = run.go()
        if shared and run.is_refused:
            check.skip("ranks", "NCCL takes no two ranks on one GPU here, also of two hosts (NCCL_HOSTID)")
            return True
        check.results.add("ranks", filter=suite.filter, shared_gpu=shared, **fields)
        if not is_fine(fields):
            check.note_failure("ranks", f"two of {suite.program}: {len(fields['failed'])} failed, {fields['ended']}")
        return False

    first, *others = (suite for suite in RANKS if suite.is_quick or not check.quick)
    is_refused = one(first)
    others = [suite for suite in others if not (is_refused and "nccl" in suite.program)]
    with concurrent.futures.ThreadPoolExecutor(RANKS_AT_A_TIME) as pool:
        list(pool.map(one, others))
