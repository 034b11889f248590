"""CUDA C++ as the C++ that runs on the simulated GPU."""

from edits import Edits
from kernels import rewrite_kernels
from launches import rewrite_launches
from shared import rewrite_shared
from tokens import tokens_of

_WORDS = ("__global__", "__shared__", "__noinline__", "<<<")


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
    _drop_noinline(tokens, edits)
    return edits.apply()


def _drop_noinline(tokens, edits):
    """CUDA's __noinline__ cannot be a macro: the standard library has it inside of attributes."""
    for at, token in enumerate(tokens):
        if token.text == "__noinline__" and at > 0 and tokens[at - 1].text not in ("(", ","):
            edits.replace(token.begin, token.end, "")
