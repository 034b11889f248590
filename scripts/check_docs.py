#!/usr/bin/env python3
"""Fails on a public type or function in include/ that has no /// comment directly above it.

A small scanner, not a compiler: it walks namespaces and the public part of classes, and asks for a
comment on every class, struct, union, enum, concept and function. Needing none: what is defaulted,
deleted or an override, destructors, assignment operators, copy and move constructors, friends,
forward declarations, members that every container or pointer has (begin, size, operator* ...),
anything in a namespace `detail`, and an overload that follows, without a blank line, a documented
function of the same name.

    check_docs.py [ROOT]      check the tree (default: this checkout)
    check_docs.py --self-test run the scanner over planted declarations
"""

import bisect
import dataclasses
import pathlib
import re
import sys

import tree_check

TOKEN = re.compile(r"""
    (?P<doc>///[^\n]*|/\*\*.*?\*/)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<directive>(?<![^\n])[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<text>R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])+')
  | (?P<word>[A-Za-z_]\w*|[0-9](?:'?[\w.])*)
  | (?P<mark>::|->|\[\[|\]\]|&&|[^\s\w])
""", re.VERBOSE | re.DOTALL)
TYPES = {"class", "struct", "union", "enum"}
NO_FUNCTION = {"using", "typedef", "static_assert", "friend", "return", "extern"}
CALL_LIKE = {"decltype", "alignas", "requires", "explicit", "noexcept", "__attribute__", "sizeof"}
FAMILIAR = {"begin", "end", "size", "empty", "data", "front", "back", "get", "swap", "operator*",
            "operator->", "operator[]", "operatorbool", "operator++", "operator=="}
CLOSERS = {"(": ")", "{": "}", "[": "]", "[[": "]]"}


@dataclasses.dataclass
class Token:
    text: str
    line: int
    last_line: int
    kind: str


def tokens_of(text):
    """Code tokens, and the lines on which a doc comment ends."""
    starts = [0] + [found.end() for found in re.finditer("\n", text)]
    code, documented = [], set()
    for found in TOKEN.finditer(text):
        first = bisect.bisect_right(starts, found.start())
        last = bisect.bisect_right(starts, found.end() - 1)
        if found.lastgroup == "doc":
            documented.add(last)
        elif found.lastgroup in ("text", "word", "mark"):
            code.append(Token(found.group(), first, last, found.lastgroup))
    return code, documented


class Scanner:
    """Walks one header and collects the declarations that lack a comment."""

    def __init__(self, text):
        self.tokens, self.documented = tokens_of(text)
        self.at = 0
        self.missing = []
        self.checked = 0

    def scan(self):
        self.scope(None)
        return self

    def peek(self):
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def skip_balanced(self):
        """Steps over the bracketed group that starts here."""
        opener = self.tokens[self.at].text
        closer, depth = CLOSERS[opener], 0
        while self.at < len(self.tokens):
            text = self.tokens[self.at].text
            depth += (text == opener) - (text == closer)
            self.at += 1
            if depth == 0:
                return

    def skip_prefix(self):
        """Steps over what may stand before a declaration: template, requires, attributes."""
        while self.peek() in ("template", "[[", "requires"):
            if self.peek() == "[[":
                self.skip_balanced()
            elif self.peek() == "template":
                self.at += 1
                self.skip_angles()
            else:
                self.skip_requires()

    def skip_requires(self):
        """Steps over a requires-clause: `(...)` or `Concept<...>`, joined by && or ||."""
        while self.peek() in ("requires", "&&", "|", "!"):
            self.at += 1
            if self.peek() == "(":
                self.skip_balanced()
                continue
            while self.tokens[self.at].kind == "word" and self.tokens[self.at + 1].text == "::":
                self.at += 2
            self.at += 1
            if self.peek() == "<":
                self.skip_angles()

    def skip_angles(self):
        """Steps over `<...>`, nested angle brackets included."""
        depth = 0
        while self.at < len(self.tokens):
            text = self.peek()
            if text in ("(", "{"):
                self.skip_balanced()
                continue
            depth += (text == "<") - (text == ">")
            self.at += 1
            if depth == 0:
                return

    def scope(self, class_name, public=True):
        """Statements up to the closing brace; `class_name` is None in a namespace."""
        previous = (None, False, 0)
        while self.at < len(self.tokens):
            text = self.peek()
            if text == "}":
                self.at += 1
                return
            if class_name is not None and text in ("public", "private", "protected"):
                public = text == "public"
                self.at += 2
            elif text == ";":
                self.at += 1
            else:
                previous = self.statement(class_name, public, previous)

    def statement(self, class_name, public, previous):
        """One declaration. Returns (name, has a comment, last line) for overloads after it."""
        first = self.tokens[self.at].line
        if self.peek() == "namespace":
            self.namespace()
            return (None, False, 0)
        self.skip_prefix()
        head, body = self.head()
        words = [token.text for token in head]
        name, kind = classify(words, body)
        if kind == "type":
            default = "class" not in words[:1]
            exempt = not body
            self.note(public and not exempt, name, kind, first)
            if body and words[0] != "enum":
                self.at += 1
                self.scope(name, default) if public else self.hidden_scope(name)
            elif body:
                self.skip_balanced()
            return (None, False, 0)
        if body:
            self.skip_balanced()
        has_comment = first - 1 in self.documented
        last = self.tokens[self.at - 1].last_line
        if kind and public and not exempt_function(words, name, class_name, kind):
            follows = previous[0] == name and previous[1] and first - previous[2] <= 1
            has_comment |= follows
            self.note(not follows, name, kind, first)
        return (name, has_comment, last)

    def hidden_scope(self, name):
        """A scope whose declarations are read but not reported."""
        kept = (list(self.missing), self.checked)
        self.scope(name)
        self.missing, self.checked = kept

    def namespace(self):
        self.at += 1
        name = ""
        while self.peek() not in ("{", ";", ""):
            name += self.peek()
            self.at += 1
        opened = self.peek() == "{"
        self.at += 1
        if opened and (name.endswith("detail") or not name):
            self.hidden_scope(None)
        elif opened:
            self.scope(None)

    def head(self):
        """Tokens of a declaration up to its body or `;`, with groups in parentheses as one token.
        Stops in front of a body's brace. Returns the tokens and whether a body follows."""
        head, initialiser, init_list = [], False, False
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            before = head[-1].text if head else ""
            if token.text == ";":
                self.at += 1
                return head, False
            if token.text == "}":
                return head, False
            if (len(head) == 2 and before.startswith("(") and head[0].text.isupper()
                    and token.text != ":" and token.line > head[-1].last_line):
                return head, False  # a macro call on a line of its own, not a constructor's head
            if token.text == "{":
                if not initialiser and not (init_list and not before.startswith(("(", "{"))):
                    if head and (words_have_call(head) or head[0].text in TYPES | {"extern"}):
                        return head, True
                start = self.at
                self.skip_balanced()
                head.append(Token("{}", self.tokens[start].line, self.tokens[self.at - 1].line,
                                  "mark"))
                continue
            if token.text in ("(", "[["):
                start = self.at
                self.skip_balanced()
                inner = " ".join(t.text for t in self.tokens[start:self.at])
                head.append(Token(inner, token.line, self.tokens[self.at - 1].line, "mark"))
                continue
            initialiser |= token.text == "=" and before != "operator" and not ends_operator(head)
            init_list |= token.text == ":" and words_have_call(head)
            head.append(token)
            self.at += 1
        return head, False

    def note(self, required, name, kind, line):
        if not required:
            return
        self.checked += 1
        if line - 1 not in self.documented:
            self.missing.append((line, f"{kind} {name}"))


def ends_operator(head):
    """True inside an operator's name of several marks, such as `operator==`."""
    return any(token.text == "operator" for token in head[-3:]) and not any(
        token.text.startswith("(") for token in head[-2:])


def words_have_call(head):
    return any(token.text.startswith("(") for token in head)


def classify(words, body):
    """Name and kind ("type", "function", "concept" or None) of a declaration."""
    words = [word for word in words if not word.startswith("[[")]
    if not words:
        return None, None
    if words[0] == "concept":
        return words[1], "concept"
    if words[0] in TYPES:
        names = [w for w in words[1:] if re.fullmatch(r"[A-Za-z_]\w*", w)
                 and w not in ("class", "struct", "final", "alignas")]
        if not words_look_like_function(words):
            return (names[0] if names else "(unnamed)"), "type" if body or len(words) <= 3 else None
    if words[0] in NO_FUNCTION:
        return None, None
    for index, word in enumerate(words):
        if word == "=" and words[index - 1] != "operator":
            return None, None
        if word == "operator":
            rest = words[index + 1:]
            end = next((i for i, w in enumerate(rest) if w.startswith("(") and (i or w != "( )")),
                       len(rest))
            return "operator" + "".join(rest[:end]), "function"
        if word.startswith("(") and index and re.fullmatch(r"[A-Za-z_]\w*", words[index - 1]):
            if words[index - 1] not in CALL_LIKE and not (index == 1 and words[0].isupper()):
                return words[index - 1], "function"
    return None, None


def words_look_like_function(words):
    """`struct Foo make(...)` is a function; `struct alignas(64) Foo` is a type."""
    return any(word.startswith("(") and words[index - 1] not in CALL_LIKE
               and not words[index - 1].isupper() for index, word in enumerate(words) if index)


def exempt_function(words, name, class_name, kind):
    """Functions that need no comment of their own."""
    if kind != "function":
        return False
    tail = " ".join(words[-2:])
    if tail in ("= default", "= delete") or "override" in words or name == "operator=":
        return True
    if class_name and name in FAMILIAR:
        return True
    call = next((i for i, word in enumerate(words) if word.startswith("(")), 0)
    if "~" in words[:call]:
        return True
    copies = rf"\( (const )?{class_name}( <[^(]*>)? &&?( \w+)? \)"
    return name == class_name and bool(re.fullmatch(copies, words[call]))


def check(root):
    """(printable lines, number of declarations) below root/include."""
    lines, checked = [], 0
    for file in sorted((root / "include").rglob("*.hpp")):
        scanner = Scanner(file.read_text()).scan()
        checked += scanner.checked
        path = file.relative_to(root).as_posix()
        lines += [f"{path}:{line}: {what} has no /// comment" for line, what in scanner.missing]
    return lines, checked


SELF_TEST = '''
#define LOCKSTEP_MACRO(x) \\
  void not_a_function(x)
namespace lockstep {
class Forward;
class Bare {  // missing
 public:
  Bare() = default;
  Bare(const Bare& other) : value_(other.value_), more_{1} {}
  explicit Bare(int value) : value_(value), more_{2} {}  // missing
  ~Bare();
  void run();  // missing
  /// Documented.
  void walk(int steps = 3, std::vector<int> more = {});
  void walk(float steps);
  Bare& operator=(const Bare&);
  bool operator==(const Bare&) const;
  bool operator<(const Bare&) const;  // missing
  void dance() override;
  friend void stranger(Bare);
 private:
  void hidden();
  int value_;
  int more_;
};
/// Documented.
template <class T, class U = std::pair<T, int>>
  requires(sizeof(T) > 4)
struct Fine {
  int field = 3;
  std::string text{"a;b{"};
  enum class Kind { a, b };  // missing
};
/// Documented.
enum class Colour : int { red, green };
inline constexpr int table[] = {1, 2, 3};
inline constexpr auto lambda = [](int x) { return x; };
int loose(int a);  // missing
template <class T>  // missing
decltype(auto) open(T&& value) { if (value) { return 1; } return 2; }
template <class T>  // missing
concept Countable = requires(T t) { t++; };
using Alias = std::vector<int>;
/// Documented.
LOCKSTEP_HD constexpr float f(float x) noexcept { return x > 0 ? 'x' : "}"[0]; }
namespace detail {
int internal();
}
}  // namespace lockstep
'''


def self_test():
    """Compares what the scanner reports with the lines marked `missing` above."""
    reported = {line for line, _ in Scanner(SELF_TEST).scan().missing}
    expected = {number for number, line in enumerate(SELF_TEST.splitlines(), 1)
                if line.endswith("// missing")}
    for line in sorted(reported ^ expected):
        print(f"self-test: line {line} {'missed' if line in expected else 'wrongly reported'}: "
              f"{SELF_TEST.splitlines()[line - 1].strip()}")
    return reported == expected


def summary(checked, missing):
    return f"documentation: {checked} public declarations, {missing} without a comment"


if __name__ == "__main__":
    sys.exit(tree_check.run(__doc__, check, self_test, summary))
