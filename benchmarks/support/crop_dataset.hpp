#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/data/image_dataset.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/pixel_rows.hpp"

/// @file
/// A data set as a user writes one: photographs in memory, cropped, flipped and normalised as they
/// are fetched.

namespace lockstep::benchmark {

/// Cuts a square out of each image, mirrors some of them, and turns bytes [height, width, 3] into
/// normalised f32 [3, crop, crop].
class CropDataset {
 public:
  /// @param images u8 [count, height, width, 3], @param labels i64 [count], @param crops i32
  /// [count, 3]: first row, first column, and 1 where the image is mirrored.
  CropDataset(Tensor images, Tensor labels, Tensor crops, std::int64_t crop)
      : images_(std::move(images)),
        labels_(std::move(labels)),
        crops_(std::move(crops)),
        crop_(crop) {}

  std::int64_t size() const { return images_.size(0); }

  /// f32 [batch, 3, crop, crop] with i64 [batch].
  data::ImageBatch fetch(std::span<const std::int64_t> indices) const {
    const auto count = static_cast<std::int64_t>(indices.size());
    data::ImageBatch batch{empty({count, 3, crop_, crop_}), empty({count}, {.dtype = DType::i64})};
    float* image = batch.images.data<float>();
    std::vector<std::uint8_t> rows(static_cast<std::size_t>(3 * crop_));
    std::int64_t* label = batch.labels.data<std::int64_t>();
    for (const std::int64_t index : indices) {
      transform(index, rows.data(), image);
      image += 3 * crop_ * crop_;
      *label++ = labels_.data<std::int64_t>()[index];
    }
    return batch;
  }

 private:
  // ImageNet's mean and deviation of each colour.
  static constexpr std::array<float, 3> mean{0.485f, 0.456f, 0.406f};
  static constexpr std::array<float, 3> deviation{0.229f, 0.224f, 0.225f};

  void transform(std::int64_t index, std::uint8_t* rows, float* to) const {
    const std::int64_t width = images_.size(2), image_bytes = images_.size(1) * width * 3;
    const std::int32_t* crop = crops_.data<std::int32_t>() + index * 3;
    const std::uint8_t* from = images_.data<std::uint8_t>() + index * image_bytes;
    const auto normalise_row = crop[2] ? normalise_mirrored : normalise;
    for (std::int64_t row = 0; row < crop_; ++row) {
      split_colours(from + ((crop[0] + row) * width + crop[1]) * 3, crop_, rows);
      for (std::int64_t colour = 0; colour < 3; ++colour) {
        const auto k = static_cast<std::size_t>(colour);
        normalise_row(rows + colour * crop_, crop_, 1 / (255 * deviation[k]),
                      -mean[k] / deviation[k], to + (colour * crop_ + row) * crop_);
      }
    }
  }

  Tensor images_, labels_, crops_;
  std::int64_t crop_;
};

}  // namespace lockstep::benchmark
