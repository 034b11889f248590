#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "io/file_descriptor.hpp"

/// @file
/// Files of which several ranks read parts.

namespace lockstep::checkpoint {

/// Reads at places of a file.
class FileReader {
 public:
  /// @throws io::FileError; CorruptData for what is no regular file.
  explicit FileReader(std::filesystem::path path);
  /// Of the file, in bytes.
  std::uint64_t size() const noexcept { return size_; }
  /// Fills memory. @throws io::FileError, CorruptData where the file ends before.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;
  /// Whether bytes lie in memory, so that `read` has them without the disk, as far as the system
  /// tells.
  bool is_cached(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  /// Reads bytes and what lies around them to whole pages, past the page cache, which would take
  /// the processor twice as long. Any thread.
  /// @param memory begins with a page, and has two pages more than is read.
  /// @return the bytes in the memory; none where that cannot be: `read` may read them all the same.
  std::span<const std::byte> read_directly(std::uint64_t offset, std::uint64_t bytes,
                                           std::span<std::byte> memory) const noexcept;
  /// Whether that seems to go: on a local disk, of which no such read has failed.
  bool reads_directly() const noexcept { return reads_directly_; }
  /// Has the system begin to read what will be asked for soon.
  void read_ahead(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  /// Has the next read of bytes come from the disk, where the file system lets that be asked.
  void drop_cache(std::uint64_t offset, std::uint64_t bytes) const noexcept;

 private:
  std::filesystem::path path_;
  io::FileDescriptor file_, direct_;
  mutable std::atomic<bool> reads_directly_ = false;
  std::uint64_t size_ = 0;
  bool knows_what_is_cached_ = false;
};

}  // namespace lockstep::checkpoint
