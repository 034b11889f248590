#!/usr/bin/env python3
"""Fails on a public header that uses something of the standard library without its header.

The header may come from one of the project's that it includes. Names are to be written with std::, so that they can
be found; what the system adds to the standard library has no place in a public header. (All else that a public header
uses is checked by compiling it alone, behind the precompiled headers of the standard library:
Checks.HeadersCompileAlone; the slow test build_without_batches does so without them.)

    check_standard_headers.py [ROOT]       check the tree (default: this checkout)
    check_standard_headers.py --self-test  plant uses in a temporary tree and see them caught
"""

import functools
import pathlib
import re
import sys
import tempfile

import tree_check

# Names by the header that has them; the first components of qualified ones, but for NAMESPACES.
NAMES = {
    "algorithm": "all_of any_of clamp copy count_if equal fill find find_if max min none_of sort transform "
                 "ranges::all_of ranges::copy ranges::find ranges::sort",
    "array": "array",
    "atomic": "atomic memory_order_acq_rel memory_order_acquire memory_order_relaxed memory_order_release",
    "bit": "bit_cast bit_ceil bit_width countr_zero has_single_bit popcount",
    "chrono": "chrono",
    "cmath": "abs exp log pow sqrt",
    "compare": "partial_ordering strong_ordering",
    "concepts": "constructible_from convertible_to derived_from floating_point integral invocable "
                "same_as signed_integral",
    "condition_variable": "condition_variable",
    "coroutine": "coroutine_handle suspend_always suspend_never",
    "cstddef": "byte max_align_t nullptr_t ptrdiff_t size_t",
    "cstdint": "int16_t int32_t int64_t int8_t intptr_t uint16_t uint32_t uint64_t uint8_t uintptr_t",
    "cstdlib": "abort exit getenv",
    "cstring": "memcmp memcpy memset strlen",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr rethrow_exception terminate uncaught_exceptions",
    "filesystem": "filesystem",
    "functional": "function greater less plus reference_wrapper",
    "initializer_list": "initializer_list",
    "iterator": "back_inserter default_sentinel_t size ssize",
    "limits": "numeric_limits",
    "map": "map",
    "memory": "addressof enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag unique_lock",
    "numeric": "accumulate",
    "new": "bad_alloc",
    "optional": "make_optional nullopt nullopt_t optional",
    "ostream": "ostream",
    "set": "set",
    "source_location": "source_location",
    "locale": "locale",
    "span": "as_bytes as_writable_bytes dynamic_extent span",
    "sstream": "istringstream ostringstream",
    "stdexcept": "invalid_argument logic_error out_of_range runtime_error",
    "string": "string to_string",
    "string_view": "string_view",
    "thread": "thread this_thread",
    "tuple": "apply make_tuple tie tuple",
    "type_traits": "conditional_t decay_t enable_if_t false_type invoke_result_t is_arithmetic_v is_base_of_v is_polymorphic_v "
                   "is_convertible_v is_floating_point_v is_integral_v is_invocable_v is_object_v "
                   "is_rvalue_reference_v is_same_v is_signed_v is_unsigned_v is_void_v remove_const_t "
                   "remove_cvref_t remove_reference_t true_type type_identity_t underlying_type_t",
    "unordered_map": "unordered_map",
    "utility": "as_const cmp_less declval exchange forward in_range index_sequence index_sequence_for "
               "integer_sequence make_index_sequence move pair swap to_underlying tuple_element_t tuple_size "
               "tuple_size_v",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "erase erase_if vector",
    "ranges": "ranges::borrowed_range ranges::range ranges::range_value_t ranges::view views",
}
# Headers that have what others have, by the standard: <string> has std::initializer_list.
ALSO = {"initializer_list": {"array", "deque", "map", "memory", "optional", "set", "span", "string", "string_view",
                             "tuple", "unordered_map", "utility", "variant", "vector"},
        "compare": {"array", "map", "optional", "string", "tuple", "utility", "variant", "vector"},
        "iterator": {"array", "deque", "map", "set", "span", "string", "string_view", "vector"},
        "ostream": {"sstream", "iostream"}}
NAMESPACES = {"ranges"}

# What has no std:: before it: macros, and expressions that need a header.
PATTERNS = {
    r"\bassert\s*\(": "cassert",
    r"\b(?:errno|E(?:INTR|INVAL|IO|NOMEM|NOENT|AGAIN|EXIST|ACCES|PERM|RANGE|DOM))\b": "cerrno",
    r"\b(?:FLT|DBL)_(?:MAX|MIN|EPSILON)\b": "cfloat",
    r"\bPRI[dux](?:8|16|32|64|PTR|MAX)\b": "cinttypes",
    r"\b(?:CHAR_BIT|U?(?:CHAR|SHRT|INT|LONG|LLONG)_M(?:AX|IN))\b": "climits",
    r"\b(?:LC_\w+)\b": "clocale",
    r"\b(?:M_PI|M_E|NAN|INFINITY|HUGE_VAL)\b": "cmath",
    r"\bva_(?:list|start|end|arg|copy)\b": "cstdarg",
    r"\b(?:offsetof\s*\(|NULL\b)": "cstddef",
    r"\b(?:U?INT(?:8|16|32|64|PTR|MAX)_(?:MIN|MAX|C)|SIZE_MAX|PTRDIFF_MAX)\b": "cstdint",
    r"\b(?:EOF|BUFSIZ|SEEK_SET|SEEK_END|std(?:in|out|err))\b": "cstdio",
    r"\b(?:EXIT_SUCCESS|EXIT_FAILURE|RAND_MAX)\b": "cstdlib",
    r"<=>": "compare",
    r"\bco_(?:await|return|yield)\b": "coroutine",
    r"\bfor\s*\([^;:()]*:\s*\{|\bauto\s+\w+\s*=\s*\{": "initializer_list",
    r"(?<!operator )(?<!operator)\bnew\s*\(": "new",
    r"\btypeid\s*\(": "typeinfo",
}
WITHOUT_STD = re.compile(
    r"(?<!void )(?<![\w.:>~])(?:size_t|ptrdiff_t|nullptr_t|max_align_t|u?int(?:_fast|_least)?(?:8|16|32|64|ptr|max)_t|FILE|"
    r"clock_t|(?:malloc|calloc|realloc|free|abort|exit|atexit|getenv|f?printf|s?n?printf|fopen|fclose|fwrite|"
    r"fread|mem(?:cpy|set|cmp|move)|str(?:len|cmp|ncmp|cpy|error))(?=\s*\())\b")
OF_THE_SYSTEM = re.compile(
    r"(?<![\w.:>])(?:pthread_\w+|[pu]id_t|gid_t|ssize_t|off_t|mode_t|time_t|timespec|timeval|sigset_t|locale_t|sem_t|iovec|"
    r"uint|ulong|(?:clock_gettime|sched_yield|usleep|getpid|dlsym|mmap|munmap)(?=\s*\())\b")
HIDING = re.compile(r"\busing\s+namespace\s+std\b|\bnamespace\s+\w+\s*=\s*(?:::)?\s*std\b|\bnamespace\s+std\b")

HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}
COMMENT_OR_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""", re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')
USE = re.compile(r"\bstd\s*::\s*(\w+)(?:\s*::\s*(\w+))?")


def without_comments(text, texts_too):
    """Lines of code; what is left out leaves its line breaks."""
    def replaced(found):
        keeps = not texts_too and found.group().startswith('"')
        return found.group() if keeps else " " + "\n" * found.group().count("\n")
    return COMMENT_OR_TEXT.sub(replaced, text)


def included(text):
    """The includes that hold in every build: (standard header or "", header of the project or "")."""
    depth = 0
    for line in without_comments(text, texts_too=False).splitlines():
        directive = line.strip().removeprefix("#").strip() if line.strip().startswith("#") else ""
        depth += directive.startswith("if") - directive.startswith("endif")
        include = INCLUDE.match(line)
        if include and depth == 0:
            yield include.group(1) or "", include.group(2) or ""


def uses_in(text):
    """(line, what, header or None, what is wrong with it in any case or "") of each use."""
    lines = without_comments(text, texts_too=True).splitlines()
    code = "\n".join("" if INCLUDE.match(line) or line.lstrip().startswith("#include") else line for line in lines)
    def at(found):
        return code.count("\n", 0, found.start()) + 1
    for found in USE.finditer(code):
        first, second = found.groups()
        name = f"{first}::{second}" if first in NAMESPACES else first
        unknown = "" if name in HEADER_OF else "say in scripts/check_standard_headers.py which header has it"
        yield at(found), f"std::{name}", HEADER_OF.get(name), unknown
    for pattern, header in PATTERNS.items():
        for found in re.finditer(pattern, code):
            yield at(found), found.group().rstrip("( \t\n"), header, ""
    for pattern, wrong in ((WITHOUT_STD, "write std:: before it"), (HIDING, "hides where names come from"),
                           (OF_THE_SYSTEM, "a name of the system has no place in a public header")):
        for found in pattern.finditer(code):
            yield at(found), found.group(), None, wrong


def check(root):
    """All uses without their header, as printable lines, and how many files were read."""
    include = root / "include"

    @functools.cache
    def includes(path):
        """The standard headers that a header includes, itself or by others of the project."""
        if not path.exists():
            return frozenset()
        found = set()
        for standard, own in included(path.read_text()):
            found |= {standard} if standard else includes(include / own)
        return frozenset(found)

    lines = []
    files = sorted(include.rglob("*.hpp"))
    for file in files:
        told = set()
        for number, what, header, wrong in sorted(uses_in(file.read_text()), key=lambda use: use[0]):
            if what in told:
                continue
            told.add(what)
            place = f"{file.relative_to(root).as_posix()}:{number}: {what}"
            if wrong:
                lines.append(f"{place}: {wrong}")
            elif not includes(file) & ({header} | ALSO.get(header, set())):
                lines.append(f"{place} without <{header}>")
    return lines, len(files)


def self_test():
    """Plants uses with and without their headers, and compares what is reported."""
    planted = {
        "a.hpp": ("#include <vector>\nstd::vector<int> a;", None),
        "b.hpp": ('#include "lockstep/a.hpp"\nstd::vector<int> b;', None),
        "c.hpp": ("std::vector<int> c;", "c.hpp:2: std::vector without <vector>"),
        "d.hpp": ('// std::vector\n/* std::map\n*/ const char* d = "std::set";', None),
        "e.hpp": ("#include <vector>\n\nstd::span<int> e;", "e.hpp:4: std::span without <span>"),
        "f.hpp": ("std::no_such_name f;", "f.hpp:2: std::no_such_name: say in"),
        "g.hpp": ("#include <string>\nint g(std::initializer_list<int>);", None),
        "h.hpp": ("#include <ranges>\nstatic_assert(std::ranges::range<int[2]>);", None),
        "i.hpp": ("constexpr auto i = INT32_MAX;", "i.hpp:2: INT32_MAX without <cstdint>"),
        "k.hpp": ("#include <ranges>\nvoid k() { std::ranges::sort(x); }", "k.hpp:3: std::ranges::sort without <algorithm>"),
        "l.hpp": ("#include <cstddef>\nsize_t l;", "l.hpp:3: size_t: write std::"),
        "m.hpp": ("/*\n#include <vector>\n*/\nstd::vector<int> m;", "m.hpp:5: std::vector without <vector>"),
        "n.hpp": ("#if 0\n#include <vector>\n#endif\nstd::vector<int> n;", "n.hpp:5: std::vector without <vector>"),
        "o.hpp": ("constexpr char q = '\"'; std::vector<int> o(); constexpr char r = '\"';",
                  "o.hpp:2: std::vector without <vector>"),
        "p.hpp": ('constexpr auto p = R"(a " b)"; std ::vector<int> f();', "p.hpp:2: std::vector without <vector>"),
        "q.hpp": ("using namespace std;", "q.hpp:2: using namespace std: hides"),
        "r.hpp": ("auto r(A a, A b) { return a <=> b; }", "r.hpp:2: <=> without <compare>"),
        "s.hpp": ("void s(void* at) { ::new (at) int; }", "s.hpp:2: new without <new>"),
        "t.hpp": ("void t() { for (int x : {1, 2}) use(x); }", "t.hpp:2: for (int x : { without <initializer_list>"),
        "u.hpp": ("#include <pthread.h>\npthread_t u;", "u.hpp:3: pthread_t: a name of the system"),
        "v.hpp": ("struct V { int size_t_like; void free(); }; void v(V a) { a.free(); }", None),
        "j.hpp": ('#include "lockstep/c.hpp"\n#include <map>\nstd::map<int, std::vector<int>> j;',
                  "j.hpp:4: std::vector without <vector>"),
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "include/lockstep").mkdir(parents=True)
        for name, (text, _) in planted.items():
            (root / "include/lockstep" / name).write_text(f"#pragma once\n{text}\n")
        lines, _ = check(root)
    expected = [line for _, line in planted.values() if line]
    wrong = [line for line in lines if not any(line.startswith(f"include/lockstep/{start}") for start in expected)]
    missed = [start for start in expected if not any(line.startswith(f"include/lockstep/{start}") for line in lines)]
    for line in wrong:
        print(f"self-test: wrongly reported: {line}")
    for line in missed:
        print(f"self-test: missed: {line}")
    return not wrong and not missed


def summary(files, found):
    return f"standard headers: {files} public headers, {found} uses without their header"


if __name__ == "__main__":
    sys.exit(tree_check.run(__doc__, check, self_test, summary))
