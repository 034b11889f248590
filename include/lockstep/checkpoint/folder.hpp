#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

/// @file
/// What lies in a folder of checkpoints.

namespace lockstep::checkpoint {

/// A checkpoint that was saved whole.
struct Found {
  std::int64_t step;
  std::filesystem::path path;
};

/// All of a folder, by step; none if there is no such folder. Reads no file.
/// @throws io::FileError.
std::vector<Found> list(const std::filesystem::path& folder);

/// The one that was saved last: "latest" says so, and where that is damaged or missing, what the
/// manifests say of the order of saves. @throws io::FileError.
std::optional<Found> newest(const std::filesystem::path& folder);

/// The metric that a checkpoint was saved with; nothing where there was none.
/// @throws CorruptData if its manifest is wrong, io::FileError if that cannot be read.
std::optional<double> metric_of(const std::filesystem::path& checkpoint);

/// The one with the smallest metric; nothing if none has one. Those that are known to be damaged do
/// not count. @throws io::FileError.
std::optional<Found> best(const std::filesystem::path& folder);

/// Whether the run that saved a checkpoint has read it back and found damage, and nobody has found
/// it whole since, or its manifest is wrong. Reads no more than that.
/// @throws io::FileError if the manifest cannot be read.
bool is_known_damaged(const std::filesystem::path& checkpoint);

/// What is wrong with a block of a file of a checkpoint, or with the file.
struct Damage {
  std::string file;
  std::vector<std::string> tensors;  ///< that have bytes in it
  /// "missing", "100 bytes long instead of 120", "not what a save wrote", "bytes 0 to 1048575", or,
  /// where one bit makes the difference, "bit 3 of byte 4711".
  std::string where;
};

/// "FILE is damaged in bit 3 of byte 4711: tensor 'weight'"
std::string describe(const Damage& damage);

/// Reads all of a checkpoint and compares it with its checksums. One that is whole is not known to
/// be damaged any more.
/// @return what is wrong; nothing if it is whole.
/// @throws CorruptData if its manifest is wrong, io::FileError if that cannot be read.
std::vector<Damage> verify(const std::filesystem::path& checkpoint);

/// Checks what a folder of checkpoints says of which was saved last.
/// @return what is wrong; nothing if that is whole, or missing.
std::vector<Damage> verify_latest(const std::filesystem::path& folder);

/// Deletes all but the newest checkpoints of a folder, and what dead saves left in it. The one that
/// was saved last stays if it is whole; if not, the newest that is, too. Others that are known to
/// be damaged go first.
/// @param keep at least 1. @param keep_best the one with the smallest metric stays, too.
/// @throws InvalidArgument if a job has the folder, or it is itself a checkpoint; io::FileError.
void prune(const std::filesystem::path& folder, int keep, bool keep_best = true);

}  // namespace lockstep::checkpoint
