#!/usr/bin/env python3
"""Fails on a public header that uses a name of the standard library without its header.

The header may come from one of the project's that it includes. (All else that a public header uses is checked by
compiling it alone, behind the precompiled headers of the standard library: Checks.HeadersCompileAlone.)

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
    "algorithm": "all_of any_of clamp copy count_if equal fill find find_if max min none_of sort transform",
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
    "optional": "make_optional nullopt nullopt_t optional",
    "ostream": "ostream",
    "set": "set",
    "source_location": "source_location",
    "span": "as_bytes as_writable_bytes dynamic_extent span",
    "sstream": "ostringstream",
    "stdexcept": "invalid_argument logic_error out_of_range runtime_error",
    "string": "string to_string",
    "string_view": "string_view",
    "thread": "thread this_thread",
    "tuple": "apply make_tuple tie tuple",
    "type_traits": "conditional_t decay_t enable_if_t false_type invoke_result_t is_arithmetic_v is_base_of_v "
                   "is_convertible_v is_floating_point_v is_integral_v is_invocable_v is_object_v "
                   "is_rvalue_reference_v is_same_v is_signed_v is_unsigned_v is_void_v remove_const_t "
                   "remove_cvref_t remove_reference_t true_type type_identity_t underlying_type_t",
    "unordered_map": "unordered_map",
    "utility": "as_const cmp_less declval exchange forward in_range index_sequence index_sequence_for "
               "integer_sequence make_index_sequence move pair swap to_underlying tuple_element_t tuple_size "
               "tuple_size_v",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "vector",
    "algorithm ranges": "ranges::all_of ranges::copy ranges::find ranges::sort",
    "ranges": "ranges::borrowed_range ranges::range ranges::range_value_t ranges::view views",
}
# Headers that have what others have, by the standard: <string> has std::initializer_list.
ALSO = {"initializer_list": {"array", "deque", "map", "memory", "optional", "set", "span", "string", "string_view",
                             "tuple", "unordered_map", "utility", "variant", "vector"},
        "compare": {"array", "map", "optional", "string", "tuple", "utility", "variant", "vector"},
        "iterator": {"array", "deque", "map", "set", "span", "string", "string_view", "vector"},
        "ostream": {"sstream", "iostream"}}
NAMESPACES = {"ranges"}

HEADER_OF = {name: set(headers.split()) for headers, names in NAMES.items() for name in names.split()}
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")', re.MULTILINE)
USE = re.compile(r"\bstd::(\w+)(?:::(\w+))?")
MACRO = re.compile(r"\b(?:U?INT(?:8|16|32|64|PTR)_(?:MIN|MAX)|SIZE_MAX)\b")


def uses_in(text):
    """(line, name) of each use of the standard library, comments and texts left out."""
    code = COMMENT_OR_TEXT.sub(lambda found: "\n" * found.group().count("\n"), text)
    for number, line in enumerate(code.splitlines(), 1):
        if line.lstrip().startswith("#include"):
            continue
        for first, second in USE.findall(line):
            yield number, f"{first}::{second}" if first in NAMESPACES else first
        for _ in MACRO.findall(line):
            yield number, "int64_t"


def providers(name):
    """The headers that have a name."""
    own = HEADER_OF[name]
    return own.union(*(ALSO.get(header, set()) for header in own))


def check(root):
    """All uses without their header, as printable lines, and how many files were read."""
    include = root / "include"

    @functools.cache
    def includes(path):
        """The standard headers that a header includes, itself or by others of the project."""
        if not path.exists():
            return frozenset()
        found = set()
        for standard, own in INCLUDE.findall(path.read_text()):
            found |= {standard} if standard else includes(include / own)
        return frozenset(found)

    lines = []
    files = sorted(include.rglob("*.hpp"))
    for file in files:
        told = set()
        for number, name in uses_in(file.read_text()):
            if name in told:
                continue
            told.add(name)
            place = f"{file.relative_to(root).as_posix()}:{number}: std::{name}"
            if name not in HEADER_OF:
                lines.append(f"{place}: say in scripts/check_standard_headers.py which header has it")
            elif not includes(file) & providers(name):
                lines.append(f"{place} without <{min(HEADER_OF[name])}>")
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
        "i.hpp": ("constexpr auto i = INT32_MAX;", "i.hpp:2: std::int64_t without <cstdint>"),
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
