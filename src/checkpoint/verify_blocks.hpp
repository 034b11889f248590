#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "lockstep/checkpoint/folder.hpp"

/// @file
/// Whether files of a checkpoint are as they were written.

namespace lockstep::checkpoint {

/// Whether bytes that the page cache has may count.
enum class From { cache, disk };

/// Reads blocks [first, last) of a file and compares them with its record.
/// @param goes_on asked before each block, with whether those before are whole; where it says no,
/// the rest is left out.
/// @return what is wrong. @throws io::FileError, CorruptData where it is no file.
std::vector<Damage> verify_blocks(const std::filesystem::path& checkpoint, const Manifest& manifest,
                                  const FileRecord& record, std::size_t first, std::size_t last,
                                  From from, const std::function<bool(bool is_whole)>& goes_on);

}  // namespace lockstep::checkpoint
