#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "io/file_descriptor.hpp"

/// @file
/// Files that several ranks fill.

namespace lockstep::checkpoint {

/// Makes a file of a size, and takes the space where the file system can.
/// @throws io::FileError, with ENOSPC where there is no space.
void create_file(const std::filesystem::path& path, std::uint64_t size);

/// Makes a file of some text, durably. @throws io::FileError.
void write_file(const std::filesystem::path& path, std::string_view text);

/// Writes at places of a file that exists: past the page cache where memory and place lie to pages
/// and the file system can, which costs neither a copy nor the memory of others. Several threads
/// may write at once.
class FileWriter {
 public:
  /// @throws io::FileError.
  explicit FileWriter(std::filesystem::path path);
  /// Writes all of the bytes. @throws io::FileError.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Makes what was written durable. @throws io::FileError.
  void sync();

 private:
  bool write_direct(std::uint64_t offset, std::span<const std::byte>& bytes);

  std::filesystem::path path_;
  io::FileDescriptor cached_, direct_;
  std::atomic<bool> writes_directly_;
};

}  // namespace lockstep::checkpoint
