#include "lockstep/data/image_dataset.hpp"

#include <bit>
#include <utility>

#include "data/signature.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::data {

ImageDataset::ImageDataset(io::LabelledImages data, Options options) : data_(std::move(data)) {
  const Tensor &images = data_.images, &labels = data_.labels;
  LOCKSTEP_CHECK(images.device().is_cpu() && labels.device().is_cpu(), InvalidArgument,
                 "an ImageDataset lives on the cpu; the images are on ", images.device(),
                 " and the labels on ", labels.device());
  LOCKSTEP_CHECK(images.dtype() == DType::u8 && images.dim() == 3 && labels.dtype() == DType::i64 &&
                     labels.dim() == 1 && labels.size(0) == images.size(0),
                 InvalidArgument, "images ", images.dtype(), " ", images.shape(), " with labels ",
                 labels.dtype(), " ", labels.shape(),
                 "; u8 [count, height, width] with i64 [count] would be right");
  LOCKSTEP_CHECK(images.numel() > 0, InvalidArgument, "the data set is empty: images ",
                 images.shape());
  LOCKSTEP_CHECK(options.deviation > 0, InvalidArgument, "deviation is ", options.deviation,
                 "; it must be above 0");
  data_ = {images.contiguous(), labels.contiguous()};
  for (std::size_t pixel = 0; pixel < value_of_pixel_.size(); ++pixel)
    value_of_pixel_[pixel] =
        (static_cast<float>(pixel) / 255.0f - options.mean) / options.deviation;
}

ImageDataset ImageDataset::range(std::int64_t begin, std::int64_t end) const {
  LOCKSTEP_CHECK(begin >= 0 && begin < end && end <= size(), InvalidArgument, "images ", begin,
                 " to ", end, " are not a part of ", size(), " images");
  ImageDataset part = *this;
  part.data_ = {data_.images.slice(0, begin, end), data_.labels.slice(0, begin, end)};
  return part;
}

ImageBatch ImageDataset::fetch(std::span<const std::int64_t> indices) const {
  const std::int64_t height = data_.images.size(1), width = data_.images.size(2);
  const auto count = static_cast<std::int64_t>(indices.size());
  ImageBatch batch{empty({count, 1, height, width}), empty({count}, {.dtype = DType::i64})};
  float* pixel = batch.images.data<float>();
  std::int64_t* label = batch.labels.data<std::int64_t>();
  for (const auto index : indices) {
    LOCKSTEP_CHECK(index >= 0 && index < size(), InvalidArgument, "image ", index,
                   " is outside 0 to ", size() - 1);
    const std::uint8_t* from = data_.images.data<std::uint8_t>() + index * height * width;
    for (std::int64_t i = 0; i < height * width; ++i) *pixel++ = value_of_pixel_[from[i]];
    *label++ = data_.labels.data<std::int64_t>()[index];
  }
  return batch;
}

std::uint64_t ImageDataset::signature() const {
  return signature_of("images", signature_of_tensor(data_.images),
                      signature_of_tensor(data_.labels),
                      std::bit_cast<std::uint32_t>(value_of_pixel_.front()),
                      std::bit_cast<std::uint32_t>(value_of_pixel_.back()));
}

}  // namespace lockstep::data
