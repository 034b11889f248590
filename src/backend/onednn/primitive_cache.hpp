#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "lockstep/core/array_view.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::backend::dnn {

/// Everything that a primitive depends on, as a flat list of numbers. The number of threads is part
/// of it: a primitive must run with as many threads as it was made for.
class Key {
 public:
  Key() { add(num_threads()); }
  /// Appends a number.
  void add(std::int64_t value) {
    values_[size_++] = value;
    hash_ = (hash_ ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15u;
    hash_ ^= hash_ >> 29;
  }
  /// Appends dtype, shape and strides; an absent view counts as such.
  void add(const ArrayView& view) {
    add(view ? static_cast<std::int64_t>(view.dtype) * 16 + view.rank() : -1);
    if (!view) return;
    for (int d = 0; d < view.rank(); ++d) {
      add(view.shape[d]);
      add(view.strides[d]);
    }
  }
  friend bool operator==(const Key& a, const Key& b) {
    if (a.hash_ != b.hash_ || a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (a.values_[i] != b.values_[i]) return false;
    return true;
  }
  /// For hash tables.
  struct Hash {
    std::size_t operator()(const Key& key) const { return key.hash_; }
  };

 private:
  std::array<std::int64_t, 64> values_;
  std::size_t size_ = 0;
  std::uint64_t hash_ = 0;
};

/// Primitives by key, for one thread. Emptied when full: a program that meets more shapes than
/// that gains little from keeping any.
template <class Value, std::size_t capacity = 1024>
class PrimitiveCache {
 public:
  /// The value of a key, made by `make()` at first sight.
  template <class Make>
  Value& get(const Key& key, Make&& make) {
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    if (values_.size() >= capacity) values_.clear();
    return values_.emplace(key, make()).first->second;
  }

 private:
  std::unordered_map<Key, Value, Key::Hash> values_;
};

}  // namespace lockstep::backend::dnn
