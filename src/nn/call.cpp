#include "lockstep/nn/call.hpp"

#include <exception>

namespace lockstep::nn::detail {

void set_place(Error& error, const Module& module) {
  // Known by identity: held here, so that no later error can lie at the same address.
  static thread_local std::exception_ptr placed;
  const std::exception_ptr present = std::current_exception();
  const std::string path = module.path();
  if (present == placed || path.empty()) return;
  static_cast<std::runtime_error&>(error) = std::runtime_error("in " + path + ": " + error.what());
  placed = present;
}

}  // namespace lockstep::nn::detail
