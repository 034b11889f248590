#pragma once

#include <span>
#include <string>
#include <utility>

#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/safetensors.hpp"

/// @file
/// Writing a safetensors file that is not yet in its place.

namespace lockstep::io {

/// Writes what save_safetensors does, and leaves the commit to the caller.
/// @throws as save_safetensors.
void write_safetensors(AtomicFile& file, std::span<const std::pair<std::string, Tensor>> tensors,
                       const Metadata& metadata);

}  // namespace lockstep::io
