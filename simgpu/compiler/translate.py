"""CUDA C++ as the C++ that runs on the simulated GPU."""

import re

from edits import Edits
from kernels import rewrite_kernels
from launches import rewrite_launches
from shared import rewrite_shared
from tokens import parts_of_system, tokens_of
from variables import WORDS, rewrite_variables

_WORDS = ("__global__", "__shared__", "__noinline__", "<<<", *WORDS)
_SPACE_OF_VARIABLE = re.compile(rf"\b(?:{'|'.join(WORDS)})\b")


def translate(source):
    """The text of a source that the preprocessor has seen, translated line by line.

    Raises SourceError."""
    if not any(word in source for word in _WORDS):
        return source
    tokens = tokens_of(source)
    edits = Edits(source)
    rewrite_kernels(tokens, edits)
    rewrite_launches(tokens, edits)
    rewrite_shared(tokens, edits)
    rewrite_variables(tokens, edits)
    _drop_words_of_system(source, edits)
    _drop_noinline(tokens, edits)
    return edits.apply()


def _drop_noinline(tokens, edits):
    """CUDA's __noinline__ cannot be a macro: the standard library has it inside of attributes."""
    for at, token in enumerate(tokens):
        if token.text == "__noinline__" and at > 0 and tokens[at - 1].text not in ("(", ","):
            edits.replace(token.begin, token.end, "")


def _drop_words_of_system(source, edits):
    """Headers that count as those of the system may have functions for the device."""
    for begin, end in parts_of_system(source):
        for word in _SPACE_OF_VARIABLE.finditer(source, begin, end):
            edits.replace(word.start(), word.end(), "")
