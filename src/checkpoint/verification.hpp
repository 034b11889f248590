#pragma once

#include <filesystem>

#include "checkpoint/manifest.hpp"

/// @file
/// What is known of a checkpoint that was read, for those who start again.

namespace lockstep::checkpoint {

/// What reading all bytes of a checkpoint has shown.
enum class Verification { unknown, whole, damaged };

/// What was noted last of the checkpoint that a manifest is of. A note of one that it has replaced
/// does not count, nor one that is damaged itself or cannot be read.
Verification noted_verification(const std::filesystem::path& checkpoint, const Manifest& manifest);

/// Notes it beside the manifest, whole or not at all, unless that is what is there.
/// @throws io::FileError.
void note_verification(const std::filesystem::path& checkpoint, const Manifest& manifest,
                       Verification found);

}  // namespace lockstep::checkpoint
