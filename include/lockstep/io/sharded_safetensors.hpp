#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/io/safetensors.hpp"

/// @file
/// Models whose tensors lie in several safetensors files, as Hugging Face has them:
/// model-00001-of-00003.safetensors and so on, and an index that says which file holds what.

namespace lockstep::io {

/// All tensors of a folder: of its model.safetensors, or else of the files that its
/// model.safetensors.index.json names. So are the weights of Hugging Face's models stored, and
/// those of lockstep's checkpoints. Mapped, not read; several threads may read.
///
///     const auto found = checkpoint::newest("runs/a");
///     model->load_state_dict(io::ShardedSafetensors::open(found->path).tensors());
class ShardedSafetensors {
 public:
  /// @param name of the files: in a checkpoint that of a state, such as "optimizer".
  /// @throws FileError; CorruptData for an index that is broken, names a file outside its folder,
  /// or a tensor that the file lacks.
  static ShardedSafetensors open(const std::filesystem::path& folder,
                                 std::string_view name = "model");
  /// One file alone. @throws as SafetensorsFile::open.
  static ShardedSafetensors open_file(const std::filesystem::path& file);

  /// Names of all tensors, sorted.
  std::vector<std::string> names() const;
  /// A copy on the CPU. @throws as SafetensorsFile::tensor.
  Tensor tensor(std::string_view name) const;
  /// Copies of all tensors whose names begin with `prefix`, sorted, under the rest of their names:
  /// what `load_state_dict` takes. @throws as SafetensorsFile::tensor.
  NamedTensors tensors(std::string_view prefix = {}) const;
  /// Number of elements of all tensors.
  double element_count() const;

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;
};

/// Writes tensors to a folder: to model.safetensors if they fit `shard_bytes`, else to several
/// files with an index. All are written beside an earlier save's before the first takes its place,
/// so that a full disk leaves that as it was; the index comes last, and what an earlier save left
/// that would be read instead is removed.
/// @param shard_bytes most bytes of tensors in a file; a larger tensor gets a file of its own.
/// @throws InvalidArgument, FileError as save_safetensors.
void save_sharded_safetensors(const std::filesystem::path& folder,
                              std::span<const std::pair<std::string, Tensor>> tensors,
                              std::uint64_t shard_bytes, const Metadata& metadata = {});

}  // namespace lockstep::io
