#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

/// @file
/// Files of a few words.

namespace lockstep::checkpoint {

/// Text of a small file. @throws io::FileError, CorruptData.
std::string read_small_checked(const std::filesystem::path& path);
/// The same; empty if it cannot be read.
std::string read_small(const std::filesystem::path& path);

/// Writes a text and a checksum of it, whole and durably; in the place of a symbolic link, not to
/// where it leads. @throws io::FileError.
void write_with_checksum(const std::filesystem::path& path, std::string_view text);
/// Reads that text; nothing where it is missing, or damaged.
std::optional<std::string> read_with_checksum(const std::filesystem::path& path);

}  // namespace lockstep::checkpoint
