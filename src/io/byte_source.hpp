#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

/// @file
/// Bytes that are read once, from front to back, whether they are stored plain or compressed.

namespace lockstep::io {

/// A stream of bytes with exact reads.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills the whole of `out`. @throws CorruptData if fewer bytes are left.
  virtual void read(std::span<std::byte> out) = 0;
  /// Checks that everything was read, checksums included. @throws CorruptData otherwise.
  virtual void finish() = 0;
  /// An upper limit of the number of bytes left: what a header may promise at most.
  virtual std::uint64_t most_left() const = 0;
};

/// Reads bytes in memory, which must outlive the source; inflates them if they start as gzip does.
/// @param name the file's name for messages.
std::unique_ptr<ByteSource> open_bytes(std::span<const std::byte> bytes, std::string_view name);

}  // namespace lockstep::io
