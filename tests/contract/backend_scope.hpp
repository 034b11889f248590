#pragma once

#include <string_view>

#include "backend/backend.hpp"

/// @file
/// Choosing a CPU backend for a part of a test.

namespace lockstep::test {

/// Uses a CPU backend until the end of scope.
class BackendScope {
 public:
  explicit BackendScope(std::string_view name) : before_(backend::of(cpu).name) {
    backend::use_cpu_backend(name);
  }
  BackendScope(const BackendScope&) = delete;
  BackendScope& operator=(const BackendScope&) = delete;
  ~BackendScope() { backend::use_cpu_backend(before_); }

 private:
  std::string_view before_;
};

}  // namespace lockstep::test
