#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// @file
/// Errors on demand; include/simgpu/simgpu.hpp describes them for programs.

namespace simgpu {

/// The faults that were asked for. Any thread may call it.
class Faults {
 public:
  /// @param text faults separated by semicolons, as in LOCKSTEP_SIM_FAULT.
  /// @throws std::invalid_argument that says what is not understood.
  void add(std::string_view text);
  void clear();

  /// Counts a call of a function. @return the code with which it must fail.
  std::optional<int> on_call(const char* function);
  /// True if an allocation that brings the device to `bytes` in use must fail.
  bool out_of_memory(std::size_t bytes) const;
  /// True if the stream with this number never goes on.
  bool stalled(unsigned stream) const;
  /// Counts a collective. True if it never completes.
  bool collective_hangs();
  /// Counts an operation that is queued. @return the sticky error that it must raise when it runs.
  std::optional<int> on_launch();

 private:
  enum class Kind : unsigned char { call, memory, stall, collective, launch };
  struct Fault {
    Kind kind;
    std::string function;      // call
    std::uint64_t number = 0;  // which call, stream or launch; bytes
    int code = 0;
    std::uint64_t seen = 0;
  };
  static Fault parse(std::string_view text);

  mutable std::mutex mutex_;
  std::atomic<bool> any_ = false;
  std::vector<Fault> faults_;
};

/// The faults of this process.
Faults& faults();

}  // namespace simgpu
