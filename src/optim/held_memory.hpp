#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Memory of parameters that holds something else for a while.

namespace lockstep::optim {

/// While it lives, optimizers refuse to change these tensors, or others in their memory, such as
/// shards of them. Any thread may ask.
class HeldMemory {
 public:
  /// Holds the memory that they have at present.
  explicit HeldMemory(const std::vector<Tensor>& tensors);
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  ~HeldMemory();

  /// True if someone holds memory of this tensor.
  static bool has(const Tensor& tensor);

 private:
  using Range = std::pair<const std::byte*, const std::byte*>;
  std::vector<Range> ranges_;
};

}  // namespace lockstep::optim
