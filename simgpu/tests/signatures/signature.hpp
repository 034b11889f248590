#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// @file
/// One list, compiled against the simulated GPU's headers and, where the toolkit is installed,
/// against the real ones: that both accept it is the check. Enumerators and macros alike.

/// The function exists, perhaps among overloads, with this type.
#define SIGNATURE(result, function, parameters)                                        \
  static_assert(std::is_same_v<decltype(static_cast<result(*) parameters>(&function)), \
                               result(*) parameters>)

/// The constant has this value.
#define CONSTANT(name, value) \
  static_assert(static_cast<long long>(name) == static_cast<long long>(value))

/// The type has this size in bytes.
#define SIZE(type, bytes) static_assert(sizeof(type) == (bytes))
