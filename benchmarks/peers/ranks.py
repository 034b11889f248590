"""Ranks of a training that work on request, so that several libraries can take turns."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def free_port():
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


class Ranks:
    """Processes that answer every line they are given with one JSON object: two with a core each, or
    one with all cores, or `per_host` on each of two hosts, which have a core each."""

    def __init__(self, command, size=2, per_host=1):
        hosts = os.environ.get("HOSTS")
        environment = {**os.environ, "OMP_NUM_THREADS": str(os.cpu_count() if size == 1 else 1),
                       "OMP_WAIT_POLICY": "passive", "WORLD_SIZE": str(size),
                       "MASTER_ADDR": "10.98.0.1" if hosts else "127.0.0.1",
                       "MASTER_PORT": str(free_port()), "LOCKSTEP_JOB_TOKEN": "benchmark",
                       "LOCKSTEP_SIM_DEVICES": "0", "GLOO_SOCKET_IFNAME": "e0" if hosts else "lo"}
        self.command = command
        self.processes = [
            subprocess.Popen([*([hosts, "on", str(rank // per_host)] if hosts else []),
                              *(["taskset", "-c", str(rank // per_host)] if size > 1 else []), *command],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env={**environment, "RANK": str(rank)})
            for rank in range(size)]

    def wait_until_ready(self):
        for process in self.processes:
            if process.stdout.readline().strip() != "ready":
                self.stop()
                raise RuntimeError(f"{' '.join(self.command)} did not start")

    def ask(self, request, ranks=None):
        """Answers in rank order; the seconds of the first are those of the slowest."""
        ranks = range(len(self.processes)) if ranks is None else ranks
        for rank in ranks:
            self.processes[rank].stdin.write(request + "\n")
            self.processes[rank].stdin.flush()
        answers = [json.loads(self.processes[rank].stdout.readline()) for rank in ranks]
        answers[0]["seconds"] = max(answer["seconds"] for answer in answers)
        return answers

    def stop(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


class Peers:
    """Trainings by name ("lockstep/BACKEND MODE" or "PyTorch MODE"), that are started together."""

    def __init__(self, options, case, modes):
        self.folder = tempfile.mkdtemp()
        state = os.path.join(self.folder, "state.safetensors")
        self.ranks = {}
        for mode in modes:
            library, name = mode.split(" ")
            own = library != "PyTorch"
            if own:
                command = [os.path.join(options.bin, "benchmark_peer_rank"), name, case, state,
                           "--comm", library.partition("/")[2]]
            else:
                command = [options.python, str(HERE / "torch_rank.py"), name, case, state]
            per_host = options.ranks_per_host
            self.ranks[mode] = Ranks(command, 2 * per_host, per_host)
            if own:  # they write the file that the others read
                self.ranks[mode].wait_until_ready()
        for mode, ranks in self.ranks.items():
            if mode.startswith("PyTorch"):
                ranks.wait_until_ready()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for ranks in self.ranks.values():
            ranks.stop()
        shutil.rmtree(self.folder)
