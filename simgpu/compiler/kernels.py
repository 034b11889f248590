"""The definitions of kernels: they begin with a question whether the host calls, to launch, or the device, to run."""

from launches import SourceError
from tokens import CLOSING, OPENING, matching, matching_angle, matching_angle_back, split

_SPECIFIERS = {"__attribute__", "alignas", "decltype", "noexcept", "__declspec", "explicit"}
_TYPE_WORDS = set(
    "void bool char short int long float double signed unsigned wchar_t char8_t char16_t char32_t auto const volatile "
    "__restrict __restrict__ __const".split()
)
_ELABORATIONS = {"struct", "class", "enum", "union", "typename"}


def rewrite_kernels(tokens, edits):
    """Each `__global__` goes; definitions get what `_entry` makes."""
    template = None  # the list of template parameters of the declaration that begins
    for at, token in enumerate(tokens):
        if token.kind == "sign" and token.text in (";", "{", "}"):
            template = None
        elif token.text == "template" and at + 1 < len(tokens) and tokens[at + 1].text == "<":
            end = matching_angle(tokens, at + 1)
            if end is not None and not (at > 0 and tokens[at - 1].text in ("<", ",", ".", "->", "::")):
                template = (at + 1, end)
        elif token.kind == "word" and token.text == "__global__":
            edits.replace(token.begin, token.end, "__attribute__((noinline))")
            _rewrite_kernel(tokens, at, template, edits)


def _rewrite_kernel(tokens, at, template, edits):
    opening = _begin_of_parameters(tokens, at + 1)
    if opening is None:
        raise SourceError(tokens[at].begin, "no function follows this __global__")
    closing = matching(tokens, opening)
    body = _begin_of_body(tokens, closing)
    if body is None:
        return
    name = _name_before(tokens, opening)
    if template is not None and not name.endswith(">"):
        arguments = [_template_argument(part, i, edits) for i, part in enumerate(split(tokens[template[0] + 1 : template[1]]))]
        if arguments:
            name += f"<{', '.join(arguments)}>"
    parameters = [
        _parameter(part, i, edits)
        for i, part in enumerate(split(tokens[opening + 1 : closing]))
        if [token.text for token in part] != ["void"]
    ]
    edits.insert(tokens[body].end, _entry(name, parameters))


def _entry(name, parameters):
    types = ", ".join(f"::simgpu::Parameter<decltype({parameter})>{dots}" for parameter, dots in parameters)
    values = "".join(f", {parameter}{dots}" for parameter, dots in parameters)
    return f" if (::simgpu::is_launching()) {{ ::simgpu::launch_kernel<{types}>(&{name}{values}); return; }}"


def _begin_of_parameters(tokens, index):
    while index < len(tokens):
        text = tokens[index].text
        if text == "(":
            if tokens[index - 1].text not in _SPECIFIERS:
                return index
            index = matching(tokens, index)
            if index is None:
                return None
        elif text == "<":
            index = matching_angle(tokens, index)
            if index is None:
                return None
        elif text in (";", "{", "}"):
            return None
        index += 1
    return None


def _begin_of_body(tokens, closing):
    """The index of the { after the parameters; None for a declaration."""
    index = closing + 1
    while index < len(tokens):
        text = tokens[index].text
        if text == "{":
            return index
        if text == ";":
            return None
        if text == "(":
            index = matching(tokens, index)
        index += 1
    return None


def _name_before(tokens, opening):
    end = opening - 1
    if tokens[end].text != ">":
        return tokens[end].text
    begin = matching_angle_back(tokens, end)
    return " ".join(token.text for token in tokens[begin - 1 : opening])


def _template_argument(part, number, edits):
    """What names a template parameter inside of its template. Those without a name get one."""
    own = _without_default(part)
    dots = "..." if any(token.text == "..." for token in own) else ""
    last = own[-1]
    named = last.kind == "word" and last.text not in _TYPE_WORDS | _ELABORATIONS and len(own) > 1 and own[-2].text != "::"
    if named:
        return last.text + dots
    edits.insert(last.end, f" simgpu_T{number}")
    return f"simgpu_T{number}{dots}"


def _parameter(part, number, edits):
    """The name of a parameter, and "..." of a pack of them. Those without a name get one."""
    own = _without_default(part)
    dots = "..." if any(token.text == "..." for token in own) else ""
    inner = _inner_declarator(own)
    if inner is not None:
        return inner, dots
    end = len(own)
    while end > 0 and own[end - 1].text == "]":
        end = next(i for i in range(end - 1, -1, -1) if own[i].text == "[")
    outer = _outside_brackets(own[:end])
    last = outer[-1]
    if last.kind == "word" and last.text not in _TYPE_WORDS and _has_type(outer[:-1]):
        return last.text, dots
    edits.insert(own[end - 1].end, f" simgpu_p{number}")
    return f"simgpu_p{number}", dots


def _has_type(tokens):
    """Whether what stands before a word is a type by itself, so that the word is a name."""
    if not tokens or tokens[-1].text == "::" or tokens[-1].text in _ELABORATIONS:
        return False
    return any(
        token.text in _TYPE_WORDS - {"const", "volatile", "__restrict", "__restrict__", "__const"}
        or (token.kind == "word" and token.text not in _TYPE_WORDS | _ELABORATIONS)
        for token in tokens
    )


def _inner_declarator(tokens):
    """The name in (&name)[3] or (*name)(int)."""
    for index, token in enumerate(tokens[:-1]):
        if token.text == "(" and tokens[index + 1].text in ("&", "*"):
            words = [each.text for each in tokens[index : matching(tokens, index)] if each.kind == "word"]
            words = [word for word in words if word not in _TYPE_WORDS]
            if not words:
                raise SourceError(token.begin, "this parameter of a kernel needs a name")
            return words[-1]
    return None


def _without_default(part):
    depth = 0
    for index, token in enumerate(part):
        if token.kind == "sign":
            depth += (token.text in OPENING) - (token.text in CLOSING)
            if token.text == "=" and depth == 0:
                return part[:index]
    return part


def _outside_brackets(tokens):
    """The tokens that stand in no brackets, < and > included, nor in the arguments of an attribute."""
    outer, index = [], 0
    while index < len(tokens):
        text = tokens[index].text
        end = None
        if text in OPENING:
            end = matching(tokens, index)
        elif text == "<":
            end = matching_angle(tokens, index)
        elif text in _SPECIFIERS:
            index += 1
            continue
        if end is None:
            outer.append(tokens[index])
            end = index
        index = end + 1
    return outer
