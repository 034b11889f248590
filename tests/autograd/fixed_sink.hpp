#pragma once

#include <cstddef>

#include "lockstep/autograd/leaf.hpp"

namespace lockstep::testing {

/// Gives a leaf's gradient one piece of memory for as long as it lives.
class FixedSink final : public autograd::GradientSink {
 public:
  FixedSink(const Tensor& leaf, const Tensor& memory)
      : leaf_(&autograd::leaf_of(leaf)), memory_(memory) {
    leaf_->set_sink(*this, 0);
  }
  FixedSink(const FixedSink&) = delete;
  FixedSink& operator=(const FixedSink&) = delete;
  ~FixedSink() { leaf_->release_sink(*this); }

  Tensor memory_for(std::size_t) override { return memory_; }
  void on_final(std::size_t) override { ++times_final; }
  void on_taken(std::size_t) noexcept override { taken = true; }

  int times_final = 0;
  bool taken = false;

 private:
  IntrusivePtr<autograd::LeafNode> leaf_;
  Tensor memory_;
};

}  // namespace lockstep::testing
