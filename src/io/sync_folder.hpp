#pragma once

#include <filesystem>

namespace lockstep::io {

/// Has a folder's names reach the disk. Some file systems sync no folders, and say so.
/// @throws FileError.
void sync_folder(const std::filesystem::path& folder);

}  // namespace lockstep::io
