#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Tensors that an op keeps for its backward.

namespace lockstep::autograd {

/// Keeps a tensor's array (not its place in the graph, so there are no cycles) and the version it
/// had, and refuses to give it back once somebody has changed it in place.
class SavedTensor {
 public:
  /// Keeps nothing.
  SavedTensor() = default;
  /// Keeps a tensor; an undefined one is kept as such.
  explicit SavedTensor(const Tensor& tensor);

  /// The tensor. @param op name of the op for the message.
  /// @throws InvalidArgument if it was changed in place since it was saved.
  const Tensor& get(std::string_view op) const {
    if (tensor_.defined() && tensor_.impl().storage->version() != version_) [[unlikely]]
      throw_changed(op);
    return tensor_;
  }

 private:
  [[noreturn]] void throw_changed(std::string_view op) const;

  Tensor tensor_;
  std::uint32_t version_ = 0;
};

}  // namespace lockstep::autograd
