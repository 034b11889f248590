#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/nn/module.hpp"

/// @file
/// How handles run a module.

namespace lockstep::nn {
namespace detail {

/// Appends the tensors of a value: a Tensor, or vectors, pairs and tuples of them.
template <class T>
void append_tensors(std::vector<Tensor>& tensors, const T& value) {
  if constexpr (std::is_convertible_v<const T&, Tensor>) {
    tensors.push_back(value);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](const auto&... parts) { (append_tensors(tensors, parts), ...); }, value);
  } else if constexpr (requires { append_tensors(tensors, *value.begin()); }) {
    for (const auto& part : value) append_tensors(tensors, part);
  }
}

/// The tensors of all values.
template <class... Ts>
std::vector<Tensor> tensors_of(const Ts&... values) {
  std::vector<Tensor> tensors;
  (append_tensors(tensors, values), ...);
  return tensors;
}

/// Puts "in blocks.3.fc1: " before the message of the error that is being handled, unless an inner
/// module has done so, or the module is a root.
void set_place(Error& error, const Module& module);

template <class M, class... Args>
decltype(auto) call_with_hooks(M& module, Args&&... args) {
  const std::vector<Tensor> arguments = tensors_of(args...);
  module.run_before_hooks(arguments);
  using Result = decltype(module.forward(std::forward<Args>(args)...));
  if constexpr (std::is_void_v<Result>) {
    module.forward(std::forward<Args>(args)...);
    module.run_after_hooks({});
  } else if constexpr (std::is_same_v<Result, Tensor>) {
    return module.run_after_hooks(arguments, module.forward(std::forward<Args>(args)...));
  } else {
    decltype(auto) result = module.forward(std::forward<Args>(args)...);
    module.run_after_hooks(tensors_of(result));
    return result;
  }
}

}  // namespace detail

/// Runs a module's `forward` between its hooks. An error says in which layer it arose,
/// one in the backward of what it records too.
template <class M, class... Args>
decltype(auto) call(M& module, Args&&... args) {
  const autograd::PlaceGuard place(module.place());
  try {
    module.begin_call();
    if (module.has_call_hooks()) [[unlikely]]
      return detail::call_with_hooks(module, std::forward<Args>(args)...);
    return module.forward(std::forward<Args>(args)...);
  } catch (Error& error) {
    detail::set_place(error, module);
    throw;
  }
}

}  // namespace lockstep::nn
