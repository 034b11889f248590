#pragma once

#include <cstddef>

#include "memory/protection.hpp"

/// @file
/// Memory protection keys: rights to pages that each thread has or lacks, in a register.

namespace simgpu {

/// One key for device memory, one for pinned memory in use.
class ProtectionKeys {
 public:
  /// The one instance. It takes the keys when it is first asked for, if there are any.
  static const ProtectionKeys& instance();

  bool exist() const { return device_ >= 0 && queued_ >= 0; }
  /// The bits of the register that deny these keys.
  unsigned denying_rights() const;
  void set_owner(void* pages, std::size_t bytes, Owner owner) const;

 private:
  ProtectionKeys();
  int device_ = -1;
  int queued_ = -1;
};

/// The calling thread's register of rights.
unsigned read_rights();
void write_rights(unsigned rights);

}  // namespace simgpu
