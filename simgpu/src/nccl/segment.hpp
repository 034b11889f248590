#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nccl/signature.hpp"

/// @file
/// The memory in which a rank shows its calls and their data to the other ranks.

namespace simgpu::nccl {

using Token = std::array<char, 32>;  ///< random; tells a job's own peers from strangers

/// Messages of one kind, numbered from 0.
using Channel = std::uint32_t;
inline constexpr Channel collectives = 0;
inline constexpr Channel management = 1;
/// The first of those that one rank reads alone, three a rank.
inline constexpr Channel first_of_pairs = 2;
/// What a rank sends to the rank `destination`.
constexpr Channel point_to_point(int destination) {
  return first_of_pairs + 3 * static_cast<Channel>(destination);
}
/// What it connects with that rank, and that it has.
constexpr Channel requests(int destination) { return point_to_point(destination) + 1; }
constexpr Channel connected(int destination) { return point_to_point(destination) + 2; }
constexpr bool is_read_by(Channel channel, int rank) {
  return channel < first_of_pairs ||
         (channel >= point_to_point(rank) && channel < point_to_point(rank + 1));
}

/// A call of a rank and its data. Written by the rank, then published, then released by each
/// reader.
struct CallSlot {
  std::atomic<std::uint64_t> published{0};  ///< the number of its call + 1
  std::atomic<std::uint32_t> readers{0};    ///< that still need it; 0: the place is free
  Signature signature;
  std::uint64_t offset = 0, bytes = 0;  ///< of the data in the segment
};

/// What has become of a rank.
enum class Presence : std::uint32_t { joining, ready, left, aborted };

/// The slots of one rank, in memory that the processes of a host share, or a copy of a remote
/// rank's. Shared memory is an unnamed file: it disappears with the last process that maps it.
class Segment {
 public:
  static constexpr std::uint64_t ring = 32;  ///< slots of a channel before the first must be free

  /// This rank's own, to be opened by others. @throws Failure
  static Segment create(int ranks, const Token& token);
  /// Another process's; nothing if it cannot be reached (another container) or is not what was
  /// promised.
  static std::optional<Segment> open(int process, int descriptor, int ranks, const Token& token);
  /// Memory of this process only, to mirror a remote rank. @throws Failure
  static Segment replica(int ranks);

  Segment() = default;
  Segment(Segment&& other) noexcept { swap(other); }
  Segment& operator=(Segment&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Segment();

  /// For others to open.
  int descriptor() const { return descriptor_; }
  std::atomic<Presence>& presence() const { return header()->presence; }
  /// How many launches the rank has captured.
  std::atomic<std::uint64_t>& captured() const { return header()->captured; }
  CallSlot& slot(Channel channel, std::uint64_t number) const;
  std::byte* data(std::uint64_t offset) const { return base_ + offset; }

  /// Room for the data of a call, free again once the slot's readers are gone. Owner only.
  /// @throws Failure
  std::uint64_t allocate(std::uint64_t bytes, const CallSlot& slot);

 private:
  struct Header {
    Token token;
    std::atomic<Presence> presence;
    std::atomic<std::uint64_t> captured;
  };
  struct Live {
    std::uint64_t begin, end;
    const CallSlot* slot;
  };

  static Segment map(int ranks, int descriptor);
  Header* header() const { return reinterpret_cast<Header*>(base_); }
  void grow(std::uint64_t end);
  void swap(Segment& other) noexcept;

  int descriptor_ = -1;
  std::byte* base_ = nullptr;
  std::uint64_t data_begin_ = 0, file_size_ = 0;
  std::vector<Live> live_;  // sorted by address
};

}  // namespace simgpu::nccl
