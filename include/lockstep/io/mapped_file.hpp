#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

/// @file
/// A file's contents as read-only memory.

namespace lockstep::io {

/// Owns a read-only mapping of a whole file. Opening costs no memory; pages arrive when touched.
/// A file that is replaced by rename (as AtomicFile does) stays readable through the mapping; one
/// that another program shortens in place does not, and touching the lost pages raises SIGBUS.
class MappedFile {
 public:
  /// Maps a regular file.
  /// @throws FileError if it cannot be opened or mapped; InvalidArgument for a folder or a device.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  /// The contents; empty for an empty file.
  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  /// The path it was opened by.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace lockstep::io
