#pragma once

#include <filesystem>

#include <lockstep/lockstep.hpp>

#include "support/image_sets.hpp"

/// @file
/// MNIST as it is published: four IDX files, plain or gzip.

namespace examples {

/// Reads a folder. Where only the 10,000 test images are there, the first 8,000 train and the
/// others test.
/// @throws lockstep::InvalidArgument for missing files.
ImageSets read_mnist(const std::filesystem::path& folder,
                     lockstep::data::ImageDataset::Options options = {});

}  // namespace examples
