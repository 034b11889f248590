#include "support/image_sets.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace examples {
namespace {

namespace ls = lockstep;

ls::data::ImageDataset rings(std::int64_t count, std::int64_t size, std::int64_t classes,
                             std::uint64_t seed) {
  const ls::Tensor images = ls::empty({count, size, size}, {.dtype = ls::DType::u8});
  const ls::Tensor labels = ls::empty({count}, {.dtype = ls::DType::i64});
  ls::Generator generator(seed);
  const auto draw = [&] { return ls::uniform_from_bits(generator.next().word(0)); };
  auto* pixel = images.data<std::uint8_t>();
  for (std::int64_t& label : labels.flat<std::int64_t>()) {
    label = static_cast<std::int64_t>(draw() * static_cast<double>(classes));
    const double length = static_cast<double>(size) / static_cast<double>(label + 1);
    const double x = draw() * static_cast<double>(size), y = draw() * static_cast<double>(size);
    for (std::int64_t row = 0; row < size; ++row)
      for (std::int64_t column = 0; column < size; ++column) {
        const double radius =
            std::hypot(static_cast<double>(row) - y, static_cast<double>(column) - x);
        const double wave = std::cos(2 * std::numbers::pi * radius / length);
        *pixel++ = static_cast<std::uint8_t>(127.5 + 80 * wave + 20 * (2 * draw() - 1));
      }
  }
  return ls::data::ImageDataset({images, labels}, {.mean = 0.5f, .deviation = 0.2f});
}

/// Copies one plane [height, width] moved by some pixels, mirrored or not.
void cut_plane(const float* from, float* to, std::int64_t height, std::int64_t width,
               std::int64_t down, std::int64_t right, bool mirrored) {
  for (std::int64_t row = 0; row < height; ++row)
    for (std::int64_t column = 0; column < width; ++column) {
      const std::int64_t y = row + down, x = (mirrored ? width - 1 - column : column) + right;
      const bool inside = y >= 0 && y < height && x >= 0 && x < width;
      *to++ = inside ? from[y * width + x] : 0.0f;
    }
}

}  // namespace

ImageSets generate_images(std::int64_t count, std::int64_t size, std::int64_t classes,
                          std::uint64_t seed) {
  return {rings(count, size, classes, 2 * seed),
          rings(std::max<std::int64_t>(1, count / 5), size, classes, 2 * seed + 1)};
}

void check_same_images(ls::Communicator& world, const ImageSets& sets) {
  const std::vector<std::pair<std::string, std::string>> sizes{
      {"the number of training images", std::to_string(sets.train.size())},
      {"the number of test images", std::to_string(sets.test.size())}};
  ls::parallel::check_same_settings(world, sizes);
}

std::string test_accuracy(double error) {
  return ls::detail::concat("test accuracy ", 100 * (1 - error), " %");
}

ls::data::ImageBatch CroppedImages::fetch(std::span<const std::int64_t> indices,
                                          const ls::data::SampleRandom& random) const {
  ls::data::ImageBatch batch = images_.fetch(indices);
  const ls::Tensor whole = batch.images;
  batch.images = ls::empty(whole.shape());
  const std::int64_t height = whole.size(2), width = whole.size(3);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    ls::Generator generator = random.of(indices[i]);
    const auto bits = generator.next();
    const auto shift = [&](int word) {
      const double share = ls::uniform_from_bits(bits.word(word));
      return static_cast<std::int64_t>(share * static_cast<double>(2 * border_ + 1)) - border_;
    };
    const std::int64_t at = static_cast<std::int64_t>(i) * height * width;
    cut_plane(whole.data<float>() + at, batch.images.data<float>() + at, height, width, shift(0),
              shift(1), mirror_ && ls::uniform_from_bits(bits.word(2)) < 0.5);
  }
  return batch;
}

}  // namespace examples
