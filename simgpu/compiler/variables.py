"""__device__ and __constant__ variables of namespaces. What the source declares becomes the host's copy, and the variable's
name a reference, which the simulated GPU lets refer to the memory of the device whose kernel runs."""

from shared import begin_of_statement, is_outside
from tokens import matching, matching_angle

WORDS = ("__device__", "__constant__", "__managed__")

_WITH_ARGUMENTS = {"__attribute__", "alignas", "decltype", "__declspec"}
_ELABORATIONS = {"struct", "class", "union", "enum"}
_OTHER_DECLARATIONS = {"template", "using", "typedef", "friend", "operator", "constexpr", "__shared__", "__managed__", "__global__"}
_BESIDE_OTHERS = '__attribute__((section("simgpu_variables"), unused))'
_DECLARATOR_ENDS = {"=", "{", "[", ",", ";"}


def rewrite_variables(tokens, edits):
    """Variables of CUDA's memory spaces, but for those of functions and classes, constants whose values the compiler
    knows, and managed ones, which stay the host's."""
    declared_before = set()  # names of `extern` declarations
    done = -1
    for at, token in enumerate(tokens):
        if token.kind != "word" or token.text not in WORDS:
            continue
        edits.replace(token.begin, token.end, "")
        if at <= done:
            continue
        begin = begin_of_statement(tokens, at)
        declaration = _declaration(tokens, begin, at)
        if declaration is not None and is_outside(tokens, begin):
            done = declaration.end
            _rewrite_variable(tokens, begin, declaration, declared_before, edits)


class _Declaration:
    def __init__(self, names, initialized, end):
        self.names = names  # indices of the declared names
        self.initialized = initialized
        self.end = end  # index of the ;


def _rewrite_variable(tokens, begin, declaration, declared_before, edits):
    specifiers = {token.text for token in tokens[begin : declaration.names[0]]}
    names = [tokens[name].text for name in declaration.names]
    is_extern = "extern" in specifiers and not any(declaration.initialized)
    if is_extern:
        declared_before.update(names)
    is_seen_elsewhere = "extern" in specifiers or any(name in declared_before for name in names)
    if not is_seen_elsewhere and not specifiers & {"static", "inline"}:
        edits.insert(tokens[begin].begin, "static ")
    kind = "constant" if "__constant__" in specifiers else "device"
    linkage = "extern " if is_extern else "" if is_seen_elsewhere else "static "
    after = ""
    for index, is_initialized in zip(declaration.names, declaration.initialized):
        name = tokens[index].text
        edits.insert(tokens[index].begin, "simgpu_copy_of_")
        copy = f"simgpu_copy_of_{name}"
        made = f' = ::simgpu::device_variable({copy}, "{name}", ::simgpu::VariableKind::{kind}, {str(is_initialized).lower()})'
        after += f" {linkage}{_BESIDE_OTHERS} decltype({copy})& {name}{'' if is_extern else made};"
    edits.insert(tokens[declaration.end].end, after)


def _declaration(tokens, begin, word):
    """The variables that a statement declares; None if it is something else."""
    index = _end_of_declarator(tokens, begin)
    if index is None or word >= index or not _is_variable(tokens, begin, index - 1):
        return None
    names, initialized = [], []
    while True:
        names.append(index - 1)
        index = _past_extents(tokens, index)
        has_value = index is not None and tokens[index].text in ("=", "{")
        initialized.append(has_value)
        index = _next_comma_or_end(tokens, index) if index is not None else None
        if index is None:
            return None
        if tokens[index].text == ";":
            return _Declaration(names, initialized, index)
        index = _end_of_declarator(tokens, index + 1)
        if index is None or tokens[index - 1].kind != "word":
            return None


def _end_of_declarator(tokens, index):
    """The index after the name that is declared; None for functions."""
    elaborated = False
    while index < len(tokens):
        text = tokens[index].text
        if text in _OTHER_DECLARATIONS or text in ("(", ")", "}", "]"):
            return None
        if text in _WITH_ARGUMENTS:
            index = matching(tokens, index + 1)
        elif text == "<":
            index = matching_angle(tokens, index)
        elif text == "{" and elaborated:
            index = matching(tokens, index)
            elaborated = False
        elif text in _DECLARATOR_ENDS and tokens[index].kind == "sign":
            return index
        elaborated |= text in _ELABORATIONS
        if index is None:
            return None
        index += 1
    return None


def _is_variable(tokens, begin, name):
    """Whether a name of no other scope is declared that the device may change, or the host."""
    if name <= begin or tokens[name].kind != "word" or tokens[name - 1].text == "::":
        return False
    specifiers = [token.text for token in tokens[begin:name]]
    pointer = max((i for i, text in enumerate(specifiers) if text == "*"), default=-1)
    return "const" not in specifiers[pointer + 1 :] and "&" not in specifiers


def _past_extents(tokens, index):
    while tokens[index].text == "[" or tokens[index].text in _WITH_ARGUMENTS:
        index = matching(tokens, index if tokens[index].text == "[" else index + 1)
        if index is None:
            return None
        index += 1
    return index


def _next_comma_or_end(tokens, index):
    while index is not None and index < len(tokens):
        text = tokens[index].text if tokens[index].kind == "sign" else ""
        if text in (",", ";"):
            return index
        if text in ("(", "[", "{"):
            index = matching(tokens, index)
        elif text == "<":
            index = matching_angle(tokens, index) or index
        index = None if index is None else index + 1
    return None
