#pragma once

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <lockstep/core/error.hpp>
#include <unistd.h>

namespace run {

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void close() noexcept {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

/// A result of a system call, or an error that names it.
inline int checked(int result, const char* call) {
  LOCKSTEP_CHECK(result >= 0, lockstep::Error, call, " failed: ", std::strerror(errno));
  return result;
}

/// Both ends of a pipe, closed on exec.
struct Pipe {
  Descriptor read, write;

  static Pipe make() {
    int ends[2] = {};
    checked(::pipe2(ends, O_CLOEXEC), "pipe");
    return {Descriptor(ends[0]), Descriptor(ends[1])};
  }
};

}  // namespace run
