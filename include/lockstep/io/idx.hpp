#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// IDX, the format of the MNIST database: http://yann.lecun.com/exdb/mnist/ describes it.

namespace lockstep::io {

/// Reads an IDX file, plain or compressed by gzip, into a tensor on the CPU of the file's element
/// type: u8, i32, f32 or f64.
/// @throws FileError; CorruptData naming the place; Unsupported for 8- and 16-bit signed integers
/// and for more than `max_rank` dimensions.
Tensor read_idx(const std::filesystem::path& path);

/// The same for a file's contents in memory.
/// @param source the file's name for messages.
Tensor parse_idx(std::span<const std::byte> contents, std::string_view source);

/// Images and their classes.
struct LabelledImages {
  /// u8 [count, height, width].
  Tensor images;
  /// i64 [count].
  Tensor labels;
};

/// Reads a pair of IDX files such as MNIST's.
/// @param images path of a u8 file of 3 dimensions.
/// @param labels path of a u8 file of 1 dimension.
/// @param classes number of classes; labels go from 0 to classes - 1.
/// @throws CorruptData also if the counts differ, the files are empty, or a label is out of range.
LabelledImages read_labelled_images(const std::filesystem::path& images,
                                    const std::filesystem::path& labels, int classes = 10);

}  // namespace lockstep::io
