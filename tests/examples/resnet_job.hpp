#pragma once

#include "examples/jobs.hpp"

/// @file
/// Runs of train_resnet.

namespace examples::testing {

/// A ResNet that takes a step in some hundredths of a second.
inline std::string tiny_resnet(const std::string& more) {
  return command("train_resnet",
                 "--width 8 --size 24 --images 640 --global-batch 16 --warmup 5 "
                 "--threads 1 --device cpu " +
                     more);
}

}  // namespace examples::testing
