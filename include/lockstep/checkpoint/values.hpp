#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "lockstep/core/error.hpp"

/// @file
/// What a checkpoint keeps beside tensors: a few numbers and texts with names.

namespace lockstep::checkpoint {

/// One of them.
using Value = std::variant<bool, std::int64_t, std::uint64_t, double, std::string>;

/// Values by name. They come back from a checkpoint as they were, doubles to the last bit.
class Values {
 public:
  /// None.
  Values() = default;
  /// Those of a list: `{{"steps", 3}, {"rate", 0.1}}`.
  Values(std::initializer_list<std::pair<const std::string, Value>> values) : values_(values) {}

  /// Adds one, or replaces it.
  template <class T>
  void set(std::string name, T value) {
    if constexpr (std::floating_point<T>)
      values_.insert_or_assign(std::move(name), Value(static_cast<double>(value)));
    else if constexpr (std::same_as<T, bool> || !std::integral<T>)
      values_.insert_or_assign(std::move(name), Value(value));
    else if constexpr (std::signed_integral<T>)
      values_.insert_or_assign(std::move(name), Value(std::int64_t{value}));
    else
      values_.insert_or_assign(std::move(name), Value(std::uint64_t{value}));
  }
  /// One of them. Integers may be read as any integer type or double that has their value, and
  /// numbers as float, which rounds them.
  /// @throws InvalidArgument naming it if it is missing or of another kind.
  template <class T>
  T get(std::string_view name) const {
    const Value& value = at(name);
    if constexpr (std::floating_point<T>) {
      if (const auto* number = std::get_if<double>(&value)) return static_cast<T>(*number);
      if (const auto* number = std::get_if<std::int64_t>(&value))
        if (is_exact<T>(*number)) return static_cast<T>(*number);
      if (const auto* number = std::get_if<std::uint64_t>(&value))
        if (is_exact<T>(*number)) return static_cast<T>(*number);
    } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
      if (const auto* number = std::get_if<std::int64_t>(&value))
        if (std::in_range<T>(*number)) return static_cast<T>(*number);
      if (const auto* number = std::get_if<std::uint64_t>(&value))
        if (std::in_range<T>(*number)) return static_cast<T>(*number);
    } else {
      if (const T* exact = std::get_if<T>(&value)) return *exact;
    }
    throw_other_kind(name);
  }
  /// Whether there is one of that name.
  bool contains(std::string_view name) const { return values_.contains(name); }
  /// All, by name.
  const std::map<std::string, Value, std::less<>>& all() const noexcept { return values_; }
  friend bool operator==(const Values&, const Values&) = default;

 private:
  /// Whether a floating type has this integer, or may round it.
  template <std::floating_point T, std::integral Integer>
  static bool is_exact(Integer number) {
    if constexpr (std::same_as<T, float>) return true;
    const T rounded = static_cast<T>(number);
    constexpr T beyond = static_cast<T>(std::numeric_limits<Integer>::max() / 2 + 1) * 2;
    return rounded < beyond && static_cast<Integer>(rounded) == number;
  }
  const Value& at(std::string_view name) const;
  [[noreturn]] static void throw_other_kind(std::string_view name);

  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace lockstep::checkpoint
