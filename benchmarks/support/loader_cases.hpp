#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/token_dataset.hpp"
#include "lockstep/tensor/named_tensors.hpp"
#include "support/crop_dataset.hpp"
#include "support/loader_epoch.hpp"
#include "support/random_words.hpp"

/// @file
/// The loaders that are measured: data sets and batches of fixed sizes. Their data does not fit in
/// a last-level cache.

namespace lockstep::benchmark {

/// A data set behind a loader for each number of workers.
struct LoaderCase {
  std::function<Epoch(int workers, const Consumer&)>
      run;                   ///< reads batches in the order `state` has
  NamedTensors state;        ///< what a peer needs beside the files: order, images
  std::int64_t samples = 0;  ///< of an epoch
  std::int64_t batches = 0;  ///< of an epoch
  double bytes_read = 0;     ///< of a batch
  double bytes_written = 0;  ///< of a batch
  double step_seconds = 0;   ///< about what a step on such a batch takes an H100
};

/// Fills in what follows from a data set and the size of its batches.
template <data::Dataset D>
LoaderCase make_loader_case(const D& dataset, std::int64_t batch_size) {
  using Loader = data::DataLoader<D>;
  const data::RandomSampler sampler(dataset.size());
  LoaderCase result;
  result.samples = dataset.size() / batch_size * batch_size;
  result.batches = dataset.size() / batch_size;
  result.state.emplace_back("order", tensor(sampler.order(0)));
  const auto loaders = std::make_shared<std::map<int, std::unique_ptr<Loader>>>();
  result.run = [=](int workers, const Consumer& consumer) {
    auto& loader = (*loaders)[workers];
    const data::DataLoaderOptions options{
        .batch_size = batch_size, .drop_last = true, .num_workers = workers};
    if (!loader) loader = std::make_unique<Loader>(dataset, sampler, options);
    return run_epoch(*loader, consumer);
  };
  return result;
}

/// 8 sequences of 1024 tokens with their targets, from a file of 64 Mi 16-bit tokens.
inline LoaderCase token_loader_case(const std::filesystem::path& folder) {
  constexpr std::int64_t context = 1024, batch = 8;
  const auto file = folder / "tokens.bin";
  {
    const auto words = random_words(std::size_t{128} << 20);
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(words.data()),
               static_cast<std::streamsize>(words.size() * sizeof words[0]));
  }
  auto result =
      make_loader_case(data::TokenDataset::from_token_file(file, {.context = context}), batch);
  result.bytes_read = batch * (context + 1) * 2.0;
  result.bytes_written = batch * context * 16.0;
  result.step_seconds = 12.5e-3;
  return result;
}

/// 64 squares of 224 pixels out of 1024 images of 256 x 256 x 3 bytes in memory.
inline LoaderCase image_loader_case() {
  constexpr std::int64_t count = 1024, side = 256, crop = 224, batch = 64;
  const auto words = random_words(count * side * side * 3);
  const Tensor images = from_span<std::uint8_t>(
      {reinterpret_cast<const std::uint8_t*>(words.data()), words.size() * 8},
      {count, side, side, 3});
  std::mt19937 engine(2);
  std::vector<std::int32_t> crops;
  for (std::int64_t i = 0; i < count; ++i)
    for (const unsigned limit : {side - crop + 1, side - crop + 1, std::int64_t{2}})
      crops.push_back(static_cast<std::int32_t>(engine() % limit));
  const Tensor crop_of = from_span<std::int32_t>(crops, {count, 3}), labels = arange(count);
  auto result = make_loader_case(CropDataset(images, labels, crop_of, crop), batch);
  result.state.insert(result.state.end(),
                      {{"images", images}, {"crops", crop_of}, {"labels", labels}});
  result.bytes_read = batch * crop * crop * 3.0;
  result.bytes_written = batch * crop * crop * 3 * 4.0;
  result.step_seconds = 25e-3;
  return result;
}

/// The case of a name: tokens, images. @param folder where files of data may be written.
/// @throws InvalidArgument for another name.
inline LoaderCase loader_case(const std::string& name, const std::filesystem::path& folder) {
  if (name == "tokens") return token_loader_case(folder);
  if (name == "images") return image_loader_case();
  LOCKSTEP_THROW(InvalidArgument, "no loader case '", name,
                 "'; there are tokens, images and, not to be served, order");
}

}  // namespace lockstep::benchmark
