#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// @file
/// What a whole checkpoint must have: the file that is written last.

namespace lockstep::checkpoint {

/// Bytes of a file under one checksum.
inline constexpr std::uint64_t block_bytes = std::uint64_t{1} << 20;

/// One file of a checkpoint.
struct FileRecord {
  std::string name;  ///< in the checkpoint's folder
  std::uint64_t size = 0;
  std::vector<std::uint32_t> checksums;  ///< CRC-32C of each block; the last may be shorter
};

/// All of them, and where they come from.
struct Manifest {
  std::int64_t step = 0;
  int world_size = 1;            ///< ranks that wrote it
  std::uint64_t generation = 0;  ///< of the job that wrote it
  std::uint64_t save = 0;        ///< the number of its save, from 1 on; 0 where none was noted
  std::string version;           ///< of lockstep
  std::optional<double> metric;  ///< how good it is, finite; smaller is better
  std::vector<FileRecord> files;
};

/// The manifest as JSON, with a checksum of itself.
std::string write_manifest(const Manifest& manifest);

/// The reverse. Whatever `write_manifest` does not write is refused, to the last bit.
/// @param source the file's name for messages.
/// @throws CorruptData saying what is wrong; Unsupported for a format of a later version.
Manifest parse_manifest(std::string_view text, std::string_view source);

}  // namespace lockstep::checkpoint
