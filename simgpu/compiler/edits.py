"""Changes to a text that leave its lines where they are."""

import re


class Edits:
    """Replacements of parts of a text, which may not overlap. What replaces a part gets its line breaks, and what the
    preprocessor says of lines in between."""

    def __init__(self, source):
        self._source = source
        self._changes = []

    def replace(self, begin, end, text):
        breaks = "".join(re.findall(r"\n(?:#[^\n]*)?", self._source[begin:end]))
        self._changes.append((begin, end, len(self._changes), text + breaks))

    def insert(self, at, text):
        self._changes.append((at, at, len(self._changes), text))

    def apply(self):
        parts, done = [], 0
        for begin, end, _, text in sorted(self._changes):
            parts += [self._source[done:begin], text]
            done = end
        return "".join(parts + [self._source[done:]])
