#include "io/sync_folder.hpp"

#include <cerrno>

#include "io/file_calls.hpp"
#include "io/file_descriptor.hpp"
#include "lockstep/io/file_error.hpp"

namespace lockstep::io {

void sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor) throw FileError("open", folder, errno);
  if (file_calls.fsync(descriptor.get()) != 0 && errno != EINVAL)
    throw FileError("fsync", folder, errno);
}

}  // namespace lockstep::io
