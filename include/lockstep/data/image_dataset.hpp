#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "lockstep/io/idx.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Small grey images in memory, normalised as they are fetched.

namespace lockstep::data {

/// Images with their classes.
struct ImageBatch {
  /// f32 [batch, 1, height, width].
  Tensor images;
  /// i64 [batch].
  Tensor labels;
  /// For DataLoader, which puts them on a device.
  void visit_tensors(auto&& visit) {
    visit(images);
    visit(labels);
  }
};

/// Labelled images that are kept as bytes: a pixel p becomes (p / 255 - mean) / deviation.
class ImageDataset {
 public:
  /// How pixels become numbers; the defaults are MNIST's own mean and deviation.
  struct Options {
    float mean = 0.1307f;
    float deviation = 0.3081f;
  };

  /// @param data images u8 [count, height, width], labels i64 [count], on the CPU.
  /// @throws InvalidArgument for other shapes, dtypes or devices, an empty set, or a deviation of
  /// 0.
  ImageDataset(io::LabelledImages data, Options options);
  /// The same with MNIST's mean and deviation.
  explicit ImageDataset(io::LabelledImages data) : ImageDataset(std::move(data), Options()) {}

  /// Number of images.
  std::int64_t size() const { return data_.labels.numel(); }
  /// A number that follows from the options, the number of images and some of their bytes.
  std::uint64_t signature() const;
  /// The images from `begin` to `end` - 1, sharing memory: to split training from test images.
  /// @throws InvalidArgument for an empty range or one outside the set.
  ImageDataset range(std::int64_t begin, std::int64_t end) const;
  /// Normalised copies. Any number of threads may call it.
  /// @throws InvalidArgument for an index out of range.
  ImageBatch fetch(std::span<const std::int64_t> indices) const;

 private:
  io::LabelledImages data_;
  std::array<float, 256> value_of_pixel_{};
};

}  // namespace lockstep::data
