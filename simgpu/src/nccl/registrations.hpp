#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/call_site.hpp"
#include "engine/operation.hpp"
#include "nccl.h"

/// @file
/// The buffers that the program has registered with a communicator.

namespace simgpu::nccl {

/// A range of whole pages, for as long as it is registered; whoever uses it holds it.
struct RegisteredRange;
using RegisteredUse = std::shared_ptr<const RegisteredRange>;

/// Those of one communicator. As in NCCL a range counts as many registrations of what lies in it,
/// and has one handle. It speeds nothing up here. Any thread may call it.
class Registrations {
 public:
  Registrations() = default;
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;
  ~Registrations();

  /// @param owner "communicator of 2 ranks". @return a handle
  void* add(const void* data, std::size_t bytes, const std::string& owner, const CallSite& site);
  /// Takes one registration back. Reports a handle that is none of this communicator's, and a range
  /// that an operation still uses. @throws Failure for the former
  void remove(void* handle, const std::string& owner);
  /// Forgets all of them. @param is_fault whether ranges that are left are reported
  void end(const std::string& owner, bool is_fault);
  /// What holds the memory of all accesses; empty if some of it is not registered.
  std::vector<RegisteredUse> of(std::span<const Access> accesses) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<RegisteredRange>> ranges_;
};

}  // namespace simgpu::nccl
