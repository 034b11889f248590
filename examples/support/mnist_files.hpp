#pragma once

#include <filesystem>

#include <lockstep/lockstep.hpp>

/// @file
/// MNIST as it is published: four IDX files, plain or gzip.

namespace examples {

/// The two sets of images.
struct MnistFiles {
  lockstep::data::ImageDataset train, test;
};

/// Reads a folder. Where only the 10,000 test images are there, the first 8,000 train and the
/// others test.
/// @throws lockstep::InvalidArgument for missing files.
MnistFiles read_mnist(const std::filesystem::path& folder,
                      lockstep::data::ImageDataset::Options options = {});

}  // namespace examples
