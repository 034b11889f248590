"""The tokens of a C++ source."""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
      (?P<line>^[ \t]*\#[^\n]*)
    | (?P<space>\s+|//[^\n]*|/\*.*?\*/)
    | (?P<text>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
             | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*"
             | (?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
    | (?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<sign><<<|<<=?|<=>?|->\*?|::|\.\.\.|.)
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)

# What the preprocessor says of the lines that follow; 3 after the name of a header of the system.
_MARKER = re.compile(r'^# \d+ "(?:\\.|[^"\\])*"(?P<flags>(?: \d)*)$', re.MULTILINE)

OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = set(OPENING.values())


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # "text" (strings and characters), "number", "word" or "sign"; ">>" is two signs
    text: str
    begin: int
    end: int


def tokens_of(source):
    """The tokens of `source` that mean something to the compiler, but for headers of the system."""
    tokens = []
    for begin, end in _own_parts(source):
        for match in _TOKEN.finditer(source, begin, end):
            kind = match.lastgroup if match.lastgroup != "delimiter" else "text"
            if kind not in ("line", "space"):
                tokens.append(Token(kind, match.group(), match.start(), match.end()))
    return tokens


def parts_of_system(source):
    """Where headers of the system stand, as pairs of begin and end."""
    done = 0
    for begin, end in _own_parts(source):
        yield done, begin
        done = end
    yield done, len(source)


def _own_parts(source):
    begin, own = 0, True
    for marker in _MARKER.finditer(source):
        of_system = "3" in marker.group("flags").split()
        if own and of_system:
            yield begin, marker.start()
        elif not own and not of_system:
            begin = marker.start()
        own = not of_system
    if own:
        yield begin, len(source)


def matching(tokens, at):
    """The index of the bracket that closes the one at `at`; None if none does. Not for < and >."""
    depth = 0
    for index in range(at, len(tokens)):
        if tokens[index].kind != "sign":
            continue
        if tokens[index].text in OPENING:
            depth += 1
        elif tokens[index].text in CLOSING:
            depth -= 1
            if depth == 0:
                return index
    return None


def matching_back(tokens, at):
    """The index of the bracket that the one at `at` closes."""
    depth = 0
    for index in range(at, -1, -1):
        if tokens[index].kind != "sign":
            continue
        if tokens[index].text in CLOSING:
            depth += 1
        elif tokens[index].text in OPENING:
            depth -= 1
            if depth == 0:
                return index
    return None


def matching_angle(tokens, at):
    """The index of the > that closes a list of template arguments or parameters which begins at `at`."""
    depth = 0
    index = at
    while index is not None and index < len(tokens):
        text = tokens[index].text if tokens[index].kind == "sign" else ""
        if text in OPENING:
            index = matching(tokens, index)
            if index is None:
                return None
        elif text in (";", ")", "]", "}"):
            return None
        elif text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return None


def matching_angle_back(tokens, at):
    """The index of the < that the > at `at` closes."""
    depth = 0
    index = at
    while index is not None and index >= 0:
        text = tokens[index].text if tokens[index].kind == "sign" else ""
        if text in CLOSING:
            index = matching_back(tokens, index)
            if index is None:
                return None
        elif text in (";", "(", "[", "{"):
            return None
        elif text == ">":
            depth += 1
        elif text == "<":
            depth -= 1
            if depth == 0:
                return index
        index -= 1
    return None


def split(tokens):
    """The parts between commas that stand in no brackets. < counts as one where a > closes it."""
    parts, part, index = [], [], 0
    while index < len(tokens):
        text = tokens[index].text if tokens[index].kind == "sign" else ""
        if text == ",":
            parts.append(part)
            part = []
            index += 1
            continue
        end = index
        if text in OPENING:
            end = matching(tokens, index)
        elif text == "<":
            end = matching_angle(tokens, index)
        end = index if end is None else end
        part += tokens[index : end + 1]
        index = end + 1
    if part or parts:
        parts.append(part)
    return parts
