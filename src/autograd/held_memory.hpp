#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Memory of parameters that holds something else for a while.

namespace lockstep::autograd {

/// While it lives, optimizers refuse to change these tensors, or others in their memory, such as
/// shards of them. Any thread may ask.
class HeldMemory {
 public:
  /// Holds the memory that they have at present, and keeps aside what is there.
  explicit HeldMemory(const std::vector<Tensor>& tensors);
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  ~HeldMemory();

  /// Puts back what was kept aside, unless that was done, and holds nothing any more.
  void bring_back();

  /// Whether there is anything that was not put back.
  bool holds_any() const;
  /// True if someone holds memory of this tensor.
  static bool has(const Tensor& tensor);
  /// Before the memory of this tensor goes: whoever holds some of it puts back what was there.
  static void bring_back_into(const Tensor& tensor);

 private:
  using Range = std::pair<const std::byte*, const std::byte*>;
  struct Held {
    Range range;
    Tensor tensor, aside;
    bool overlaps(const Range& other) const {
      return other.first < range.second && range.first < other.second;
    }
  };
  static Range range_of(const Tensor& tensor);
  static void count();
  static void put_back(const std::vector<Held>& all);

  std::vector<Held> held_;
};

}  // namespace lockstep::autograd
