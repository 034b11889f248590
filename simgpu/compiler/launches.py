"""kernel<<<grid, block, shared, stream>>>(arguments) as C++: a call of the kernel by a host that says how to launch it."""

from tokens import matching, matching_angle_back, matching_back, split


class SourceError(Exception):
    """What stands at `position` of the source cannot be translated."""

    def __init__(self, position, what):
        super().__init__(what)
        self.position = position


def rewrite_launches(tokens, edits):
    for at, token in enumerate(tokens):
        if token.text == "<<<" and token.kind == "sign" and (at == 0 or tokens[at - 1].text != "operator"):
            _rewrite_launch(tokens, at, edits)


def _rewrite_launch(tokens, at, edits):
    close = _closing(tokens, at)
    if close is None:
        raise SourceError(tokens[at].begin, "this <<< has no >>>")
    if close + 3 >= len(tokens) or tokens[close + 3].text != "(":
        raise SourceError(tokens[close].begin, "the arguments of the launch are missing after this >>>")
    count = len(split(tokens[at + 1 : close]))
    if not 2 <= count <= 4:
        raise SourceError(tokens[at].begin, f"a launch takes 2 to 4 values: grid, block, bytes of shared memory and stream; here are {count}")
    end = matching(tokens, close + 3)
    begin = _begin_of_kernel(tokens, at)
    if end is None or begin is None:
        raise SourceError(tokens[at].begin, "no kernel is named before this <<<")
    kernel = " ".join(token.text for token in tokens[begin:at])
    edits.replace(tokens[begin].begin, tokens[at].end, "(::simgpu::LaunchConfiguration(")
    edits.replace(tokens[close].begin, tokens[close + 2].end, f"), {kernel}")
    edits.insert(tokens[end].end, ")")


def _closing(tokens, at):
    """The index of the first > of the >>> that closes the <<< at `at`."""
    angles, index = 0, at + 1
    while index < len(tokens):
        text = tokens[index].text if tokens[index].kind == "sign" else ""
        if text in ("(", "[", "{"):
            index = matching(tokens, index)
            if index is None:
                return None
        elif text in (";", ")", "]", "}"):
            return None
        elif text == "<" and tokens[index - 1].kind == "word":
            angles += 1
        elif text == ">" and _is_triple(tokens, index) and angles < 3:
            return index
        elif text == ">" and angles > 0:
            angles -= 1
        index += 1
    return None


def _is_triple(tokens, index):
    three = tokens[index : index + 3]
    return len(three) == 3 and all(
        token.text == ">" and token.begin == three[0].begin + offset for offset, token in enumerate(three)
    )


def _begin_of_kernel(tokens, at):
    """The index of the first token of the expression that names the kernel before `at`; None if there is none."""
    index = at - 1
    begin = None
    while index >= 0:
        text = tokens[index].text
        if text == ">" and tokens[index].kind == "sign":
            open_angle = matching_angle_back(tokens, index)
            if open_angle is None:
                return begin
            index = open_angle - 1
            continue
        if text in (")", "]"):
            opened = matching_back(tokens, index)
            if opened is None:
                return begin
            begin, index = opened, opened - 1
            if index >= 0 and _is_operand(tokens[index]):
                continue
        elif tokens[index].kind == "word" and _is_operand(tokens[index]):
            begin, index = index, index - 1
            if index >= 0 and tokens[index].text == "template":
                begin, index = index, index - 1
        else:
            return begin
        if index < 0 or tokens[index].text not in ("::", ".", "->"):
            return begin
        # A scope may be the global one, with nothing before it.
        begin, index = index, index - 1
        if tokens[begin].text == "::" and (index < 0 or not _may_be_scope(tokens[index])):
            return begin
    return begin


_KEYWORDS = {"return", "else", "do", "case", "throw", "co_return", "and", "or", "not", "if", "while", "for", "switch"}


def _is_operand(token):
    return (token.kind == "word" and token.text not in _KEYWORDS) or token.text in (")", "]")


def _may_be_scope(token):
    return (token.kind == "word" and token.text not in _KEYWORDS) or token.text == ">"
