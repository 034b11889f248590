#include "support/mnist_files.hpp"

namespace examples {
namespace {

namespace fs = std::filesystem;

/// `name` or `name.gz` in a folder; empty if there is neither.
fs::path find(const fs::path& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"})
    if (fs::exists(folder / (name + suffix))) return folder / (name + suffix);
  return {};
}

}  // namespace

ImageSets read_mnist(const fs::path& folder, lockstep::data::ImageDataset::Options options) {
  const auto read = [&](const std::string& kind) {
    const fs::path images = find(folder, kind + "-images-idx3-ubyte");
    const fs::path labels = find(folder, kind + "-labels-idx1-ubyte");
    LOCKSTEP_CHECK(!images.empty() && !labels.empty(), lockstep::InvalidArgument, folder.string(),
                   " lacks ", kind, "-images-idx3-ubyte or ", kind, "-labels-idx1-ubyte (.gz)");
    return lockstep::data::ImageDataset(lockstep::io::read_labelled_images(images, labels),
                                        options);
  };
  const lockstep::data::ImageDataset test = read("t10k");
  if (!find(folder, "train-images-idx3-ubyte").empty()) return {read("train"), test};
  const std::int64_t cut = test.size() * 8 / 10;
  return {test.range(0, cut), test.range(cut, test.size())};
}

}  // namespace examples
