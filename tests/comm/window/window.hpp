#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/signature.hpp"

namespace lockstep::comm::window {

/// Memory that all ranks of one host map: what they tell each other, and data on its way.
class Window {
 public:
  static constexpr std::size_t piece_bytes = 16 << 10;

  /// What one rank shows the others.
  struct Slot {
    alignas(64) std::atomic<std::uint64_t> arrivals{0};  ///< at barriers
    Signature signature;
    alignas(64) std::byte piece[piece_bytes];
  };
  /// A message, or a piece of one, from one rank to another.
  struct Mailbox {
    alignas(64) std::atomic<bool> is_full{false};
    Signature signature;
    std::size_t size = 0;
    std::byte piece[piece_bytes];
  };

  /// Makes a window for a number of ranks; `name` then leads the other ranks to it.
  explicit Window(int ranks);
  /// Maps another rank's window, whose name is not needed afterwards.
  Window(const std::string& name, int ranks);
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window();

  const std::string& name() const { return name_; }
  Slot& slot(int rank) const;
  Mailbox& mailbox(int from, int to) const;

  /// Keeps the first reason.
  void abort(const std::string& reason) noexcept;
  /// The reason of an abort, or null.
  const char* abort_reason() const;

 private:
  struct Head;
  void map(int file);
  std::size_t bytes() const;

  int ranks_;
  std::string name_;  // only of the rank that made it
  std::byte* memory_ = nullptr;
};

}  // namespace lockstep::comm::window
