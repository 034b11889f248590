#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <lockstep/lockstep.hpp>

/// @file
/// What the programs that train on labelled images share.

namespace examples {

/// Images to learn from, and others to test with.
struct ImageSets {
  lockstep::data::ImageDataset train, test;
};

/// Images of `size` x `size` pixels whose class is the number of rings around some centre, from 1
/// to `classes`, under noise: turned, mirrored and shifted, they keep it.
/// @param count how many to train with; a fifth as many test.
ImageSets generate_images(std::int64_t count, std::int64_t size, std::int64_t classes,
                          std::uint64_t seed);

/// Ranks that read different files would wait for each other.
/// @throws lockstep::InvalidArgument on every rank, naming both numbers, unless they agree.
void check_same_images(lockstep::Communicator& world, const ImageSets& sets);

/// Cuts images anew each time: a square of their size from anywhere in the image with a border of
/// mean grey, and half of them mirrored.
class CroppedImages {
 public:
  /// @param border pixels on each side; 0 cuts nothing off.
  CroppedImages(lockstep::data::ImageDataset images, std::int64_t border, bool mirror)
      : images_(std::move(images)), border_(border), mirror_(mirror) {}

  std::int64_t size() const { return images_.size(); }
  /// Where each is cut depends on the epoch and the image, not on the rank or the thread.
  lockstep::data::ImageBatch fetch(std::span<const std::int64_t> indices,
                                   const lockstep::data::SampleRandom& random) const;

 private:
  lockstep::data::ImageDataset images_;
  std::int64_t border_;
  bool mirror_;
};

/// "test accuracy 97 %", from the share of test images that are named wrongly.
std::string test_accuracy(double error);

/// Share of the test images that a model names rightly, over all ranks, when it is ready to be
/// evaluated (train::Step::evaluation).
template <class Model>
double accuracy(Model& model, const lockstep::data::ImageDataset& test,
                const lockstep::Session& session) {
  namespace ls = lockstep;
  ls::data::DataLoader<ls::data::ImageDataset> loader(test,
                                                      ls::data::SequentialSampler(test.size()),
                                                      {.batch_size = 256 * session.size(),
                                                       .rank = session.rank(),
                                                       .world_size = session.size(),
                                                       .device = session.device()});
  ls::parallel::MeanMetric right(session.device());
  for (const auto& batch : loader) {
    const ls::Tensor hits = ls::eq(ls::argmax(model.forward(batch.images), 1), batch.labels);
    right.add(hits.to(ls::DType::f64).sum(), static_cast<double>(hits.numel()));
  }
  return right.value(*session.world());
}

}  // namespace examples
