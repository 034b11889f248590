#include "checkpoint/file_reader.hpp"

#include <cerrno>
#include <utility>

#include "io/file_calls.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/file_error.hpp"

namespace lockstep::checkpoint {

FileReader::FileReader(std::filesystem::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!file_) throw io::FileError("open", path_, errno);
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) throw io::FileError("fstat", path_, errno);
  LOCKSTEP_CHECK(S_ISREG(status.st_mode), CorruptData, path_.string(), " is no file");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void FileReader::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        io::file_calls.pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw io::FileError("pread", path_, errno);
    LOCKSTEP_CHECK(count > 0, CorruptData, path_.string(), " ends at byte ", offset, ", ",
                   bytes.size(), " bytes too early");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void FileReader::read_ahead(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  ::posix_fadvise(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                  POSIX_FADV_WILLNEED);
}

void FileReader::drop_cache(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  ::posix_fadvise(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                  POSIX_FADV_DONTNEED);
}

}  // namespace lockstep::checkpoint
