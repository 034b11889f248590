#pragma once

#include <cstdint>

#include "lockstep/core/dtype.hpp"
#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/core/slab.hpp"
#include "lockstep/tensor/memory_gate.hpp"
#include "lockstep/tensor/storage.hpp"

/// @file
/// What a Tensor handle points to.

namespace lockstep {

/// A strided window on a storage, and its place in the autograd graph.
struct TensorImpl final : RefCounted, SlabAllocated {
  IntrusivePtr<Storage> storage;
  /// First element of the window; for whoever uses it, `memory()`.
  void* data = nullptr;
  std::int64_t numel = 0;
  DType dtype = DType::f32;
  bool contiguous = true;
  /// True for windows made by a view op on another tensor.
  bool is_view = false;
  /// True for a leaf that has a node but needs no gradient for now.
  bool frozen = false;
  /// How often the array was exchanged for another (Tensor::set_data).
  std::uint32_t exchanges = 0;
  /// Which output of `node` this is; of a leaf's, which of the shapes it has had.
  std::uint32_t output_index = 0;
  /// The autograd::Node that made this tensor, or the leaf node that collects its gradient. Null
  /// for tensors that never needed a gradient. Only the autograd layer looks inside.
  IntrusivePtr<RefCounted> node;
  Shape shape;
  Strides strides;

  /// First element of the window, once it may be used; see MemoryGate.
  void* memory() {
    if (MemoryGate* const gate = storage->gate()) [[unlikely]]
      gate->open(*this);
    return data;
  }
  /// Another number once the array was written to, or exchanged for another.
  std::uint64_t value_stamp() const noexcept {
    return std::uint64_t{exchanges} << 32 | storage->version();
  }

 private:
  void destroy() noexcept override { delete this; }
};

}  // namespace lockstep
