"""What a check of a GPU leaves: a line of JSON for each thing found, as it is found, a log, and a summary in words."""

import json
import pathlib
import threading
import time


class Results:
    """Writes into one folder. From several threads."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock, self.start, self.entries = threading.Lock(), time.monotonic(), []
        self.json_file = (self.folder / "gpu_check.jsonl").open("w", encoding="utf-8")
        self.log_file = (self.folder / "gpu_check.log").open("w", encoding="utf-8")

    def add(self, stage, **fields):
        """A thing that was found; it is in the file when this returns."""
        entry = {"stage": stage, "at_s": round(time.monotonic() - self.start, 1), **fields}
        with self.lock:
            self.entries.append(entry)
            self.json_file.write(json.dumps(entry) + "\n")
            self.json_file.flush()
        return entry

    def log(self, text):
        """A line of what programs wrote."""
        with self.lock:
            self.log_file.write(text.rstrip("\n") + "\n")
            self.log_file.flush()

    def say(self, text):
        """A line for who watches."""
        print(f"gpu_check: {text}", flush=True)
        self.log(f"gpu_check: {text}")

    def of(self, stage):
        return [entry for entry in self.entries if entry["stage"] == stage]

    def finish(self, lines):
        """Writes and shows the summary."""
        text = "\n".join(lines) + "\n"
        (self.folder / "summary.txt").write_text(text, encoding="utf-8")
        print(text, end="", flush=True)
