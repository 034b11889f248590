"""Runs a program with a limit of time, line by line."""

import dataclasses
import json
import os
import queue
import signal
import subprocess
import threading
import time


@dataclasses.dataclass
class Outcome:
    """How a program ended. `code` is negative for a signal, and None where it could not be started."""
    code: object
    seconds: float
    lines: list
    is_late: bool = False
    is_silent: bool = False
    is_stopped: bool = False

    @property
    def is_good(self):
        return self.code == 0 and not self.is_late and not self.is_silent

    @property
    def words(self):
        if self.code is None:
            return "could not be started"
        if self.is_late or self.is_silent:
            return f"cut off after {self.seconds:.0f} s"
        return f"killed by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"

    def json_lines(self):
        """The objects that it printed, a line each."""
        found = []
        for line in self.lines:
            if line.startswith("{"):
                try:
                    found.append(json.loads(line))
                except ValueError:
                    pass
        return found


def end(process):
    """Ends a program and what it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def run(command, limit, environment, results, on_line=None, logged=True, silence=None):
    """The Outcome of a command, at most `limit` seconds long, and without a line for at most `silence` of them. Its output goes
    to the log, if it is to be `logged`. `on_line` sees each line, and ends the program by returning True."""
    began = time.monotonic()
    results.log(f"$ {' '.join(map(str, command))[:600]}")
    try:
        process = subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   start_new_session=True)
    except OSError as error:
        results.log(str(error))
        return Outcome(None, 0.0, [str(error)])
    waiting = queue.Queue()

    def read():
        with process.stdout:
            for line in process.stdout:
                waiting.put(line)
        waiting.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    lines, late, silent, stopped = [], False, False, False
    while True:
        left = max(0.01, began + limit - time.monotonic())
        try:
            line = waiting.get(timeout=min(left, silence or left))
        except queue.Empty:
            silent = bool(silence) and silence < left
            late = not silent
            break
        if line is None:
            break
        lines.append(line.rstrip("\n"))
        if logged:
            results.log(lines[-1])
        if on_line and on_line(lines[-1]):
            stopped = True
            break
    if late or silent or stopped:
        end(process)
    else:
        try:
            process.wait(timeout=max(1.0, began + limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = True
            end(process)
    return Outcome(process.returncode, time.monotonic() - began, lines, late, silent, stopped)
