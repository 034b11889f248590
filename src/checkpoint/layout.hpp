#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/dtype.hpp"
#include "lockstep/core/shape.hpp"

/// @file
/// Where the tensors of a checkpoint lie in its files.

namespace lockstep::checkpoint {

/// What a layout follows from.
struct TensorSpec {
  std::string name;
  DType dtype;
  Shape shape;
};

/// A file of tensors, as it will be.
struct PlannedFile {
  std::string name;    ///< "model-00001-of-00002.safetensors"
  std::string header;  ///< its first bytes; tensors begin at a multiple of 4096
  std::uint64_t size;  ///< in bytes, header and all
};

/// Where a tensor lies.
struct PlannedTensor {
  TensorSpec spec;
  std::size_t file;      ///< of Layout::files
  std::uint64_t offset;  ///< of its first byte in the file
  std::uint64_t bytes;
};

/// Files for tensors: a pure function of their names, dtypes and shapes, in whatever order they are
/// given, so that every rank plans alike.
class Layout {
 public:
  /// @param stem the files' names begin with it. @param tensors of different names.
  /// @param file_bytes a file holds at most so many bytes of tensors, unless one tensor alone has
  /// more.
  /// @throws InvalidArgument for doubled or reserved names, or ones that are not UTF-8.
  Layout(std::string_view stem, std::vector<TensorSpec> tensors, std::uint64_t file_bytes);

  const std::vector<PlannedFile>& files() const noexcept { return files_; }
  /// In the order of their bytes, file after file.
  const std::vector<PlannedTensor>& tensors() const noexcept { return tensors_; }
  /// Hugging Face's index: which file holds which tensor.
  std::string index() const;

 private:
  std::vector<PlannedFile> files_;
  std::vector<PlannedTensor> tensors_;
};

}  // namespace lockstep::checkpoint
