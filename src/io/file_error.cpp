#include "lockstep/io/file_error.hpp"

#include <string>
#include <system_error>

namespace lockstep::io {

FileError::FileError(std::string_view call, const std::filesystem::path& path, int code,
                     std::source_location where)
    : LibraryError("file " + path.string(), call, code, std::generic_category().message(code),
                   where),
      path_(path) {}

}  // namespace lockstep::io
