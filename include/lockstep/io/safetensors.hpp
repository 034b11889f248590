#pragma once

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/array_view.hpp"
#include "lockstep/io/mapped_file.hpp"
#include "lockstep/io/safetensors_header.hpp"
#include "lockstep/tensor/named_tensors.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Reading and writing safetensors files (https://github.com/huggingface/safetensors). They hold
/// numbers and names only: nothing in them can be run.

namespace lockstep::io {

/// Free text that a file carries beside its tensors.
using Metadata = std::map<std::string, std::string, std::less<>>;

/// An open safetensors file. Its contents are mapped, not read: opening costs as much as the
/// header. Several threads may read from one object.
class SafetensorsFile {
 public:
  /// Opens a file and checks its header completely.
  /// @throws FileError, CorruptData naming the place, Unsupported for more than 8 dimensions.
  static SafetensorsFile open(const std::filesystem::path& path);

  /// The path it was opened by.
  const std::filesystem::path& path() const noexcept { return file_.path(); }
  /// Names of all tensors, in the order of their bytes.
  std::vector<std::string> names() const;
  /// Number of tensors.
  std::size_t size() const noexcept { return header_.entries.size(); }
  /// True if the file has a tensor of that name.
  bool contains(std::string_view name) const { return index_.contains(name); }
  /// The file's free text.
  const Metadata& metadata() const noexcept { return header_.metadata; }
  /// Place, shape and type of one tensor. @throws InvalidArgument for an unknown name.
  const SafetensorsEntry& entry(std::string_view name) const;

  /// A tensor's bytes where they are mapped: valid while this object lives, and read-only, whatever
  /// the pointer's type says (a write is a segmentation fault).
  /// @throws InvalidArgument for an unknown name; Unsupported for a dtype that lockstep lacks or
  /// for bytes not aligned to their type (`tensor` reads those); CorruptData for a BOOL that is
  /// neither 0 nor 1.
  ArrayView view(std::string_view name) const;
  /// A copy on the CPU, contiguous. @throws as `view` does, alignment aside; OutOfMemory.
  Tensor tensor(std::string_view name) const;
  /// Copies of all tensors whose names begin with `prefix`, under the rest of their names: what
  /// `load_state_dict` takes. @throws as `tensor`.
  NamedTensors tensors(std::string_view prefix = {}) const;

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header);
  ArrayView unaligned_view(std::string_view name) const;

  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string_view, std::size_t, std::less<>> index_;
};

/// Writes tensors and free text, replacing the file at once and durably (see AtomicFile). The file
/// is laid out as Python's `safetensors` does: largest element types first, then by name. Tensors
/// may be views and on any device; they are brought to the CPU one at a time.
/// @param tensors names and tensors; names must differ.
/// @throws InvalidArgument for an undefined tensor, a doubled or reserved name, or text that is not
/// UTF-8; FileError, with the old file still in place.
void save_safetensors(const std::filesystem::path& path,
                      std::span<const std::pair<std::string, Tensor>> tensors,
                      const Metadata& metadata = {});
/// The same for a braced list.
inline void save_safetensors(const std::filesystem::path& path,
                             std::initializer_list<std::pair<std::string, Tensor>> tensors,
                             const Metadata& metadata = {}) {
  save_safetensors(path, std::span(tensors.begin(), tensors.size()), metadata);
}

}  // namespace lockstep::io
