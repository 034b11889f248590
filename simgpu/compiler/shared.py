"""__shared__ variables: those of fixed size are the block's one instance, `extern` ones its dynamic memory."""

from launches import SourceError
from tokens import matching, matching_back

_STATIC = "static thread_local"


def rewrite_shared(tokens, edits):
    for at, token in enumerate(tokens):
        if token.kind != "word" or token.text != "__shared__":
            continue
        begin = begin_of_statement(tokens, at)
        if any(each.text == "extern" for each in tokens[begin:at]) or tokens[at + 1].text == "extern":
            _rewrite_dynamic(tokens, begin, at, edits)
        else:
            for each in tokens[begin:at]:
                if each.text == "static":
                    edits.replace(each.begin, each.end, "")
            edits.replace(token.begin, token.end, _STATIC)


def begin_of_statement(tokens, at):
    """The index of the first token of the statement or declaration that holds a token."""
    while at > 0 and tokens[at - 1].text not in (";", "{", "}", ":"):
        at -= 1
    return at


def _rewrite_dynamic(tokens, begin, at, edits):
    """extern __shared__ float rows[][32]; becomes float (&rows)[][32] = the block's dynamic memory;"""
    end = next((i for i in range(at, len(tokens)) if tokens[i].text == ";"), None)
    opening = next((i for i in range(at, end or at) if tokens[i].text == "[" and _is_declarator(tokens, i)), None)
    if opening is None:
        raise SourceError(tokens[at].begin, "extern __shared__ declares an array: extern __shared__ float name[];")
    name = opening - 1
    kinds = []
    index = begin
    while index < name:
        token = tokens[index]
        if token.text in ("__attribute__", "alignas"):
            last = matching(tokens, index + 1)
            edits.replace(token.begin, tokens[last].end, "")
            index = last + 1
            continue
        if token.text in ("extern", "__shared__"):
            edits.replace(token.begin, token.end, "static" if token.text == "extern" and is_outside(tokens, begin) else "")
        else:
            kinds.append(token.text)
        index += 1
    extents = "".join(token.text for token in tokens[opening:end])
    kind = " ".join(kinds)
    edits.replace(
        tokens[name].begin,
        tokens[end - 1].end,
        f"(&{tokens[name].text}){extents} = *static_cast<{kind} (*){extents}>(::simgpu::dynamic_shared_memory())",
    )


def _is_declarator(tokens, index):
    return tokens[index - 1].kind == "word" and tokens[index - 1].text not in ("__attribute__", "alignas")


def is_outside(tokens, at):
    """Whether a statement stands in no function."""
    index = at - 1
    while index >= 0:
        text = tokens[index].text
        if text == "}":
            index = matching_back(tokens, index)
            if index is None:
                return True
        elif text == "{" and not _opens_namespace(tokens, index):
            return False
        index -= 1
    return True


def _opens_namespace(tokens, index):
    before = [token.text for token in tokens[begin_of_statement(tokens, index) : index]]
    return "namespace" in before or (len(before) == 2 and before[0] == "extern")
