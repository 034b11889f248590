"""Programs that work on request, so that ours and a peer's can take turns."""

import json
import os
import subprocess


class Stepper:
    """A program that answers every line it is given with one JSON object."""

    def __init__(self, command, threads):
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment)
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit(f"{command[0]} did not start")

    def step(self, request="step"):
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
