#pragma once

#include <utility>

#include <unistd.h>

/// @file
/// Owner of a POSIX file descriptor.

namespace lockstep::io {

/// Closes its descriptor at the end of its life.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor = -1) noexcept : descriptor_(descriptor) {}
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  /// The descriptor; -1 if there is none.
  int get() const noexcept { return descriptor_; }
  /// Gives the descriptor to the caller.
  int release() noexcept { return std::exchange(descriptor_, -1); }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

}  // namespace lockstep::io
