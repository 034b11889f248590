#pragma once

#include <cstring>
#include <type_traits>

/// @file
/// What programs in C++17 lack of C++20.

namespace simgpu {

template <class T>
struct TypeIdentity {
  using type = T;
};
/// T, which is not deduced from an argument.
template <class T>
using type_identity_t = typename TypeIdentity<T>::type;

template <class T>
using remove_cvref_t = std::remove_cv_t<std::remove_reference_t<T>>;

/// The bits of a value as those of another type.
template <class To, class From>
To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace simgpu
