#pragma once

#include <filesystem>
#include <source_location>
#include <string_view>

#include "lockstep/core/error.hpp"

/// @file
/// The exception of file operations that the operating system refused.

namespace lockstep::io {

/// A system call on a file failed; `status()` is the errno value, such as ENOSPC.
class FileError : public LibraryError {
 public:
  /// @param call name of the system call.
  /// @param path the file it was for.
  /// @param code the errno value.
  FileError(std::string_view call, const std::filesystem::path& path, int code,
            std::source_location where = std::source_location::current());

  /// The file that the call was for.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::io
