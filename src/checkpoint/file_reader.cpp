#include "checkpoint/file_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "checkpoint/staging.hpp"
#include "io/file_calls.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/file_error.hpp"

namespace lockstep::checkpoint {
namespace {

/// Of a longer advice Linux follows but the beginning: as much as the disk takes at once, or as it
/// reads ahead by itself, of which many have 128 or 256 KiB.
constexpr std::uint64_t advised_bytes = std::uint64_t{256} << 10;

/// Where a request takes long to be answered, asking ahead is faster than reading past the page
/// cache: so it is for file systems of networks.
bool is_on_local_disk(int file) {
  struct statfs system {};
  if (::fstatfs(file, &system) != 0) return false;
  switch (system.f_type) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case OVERLAYFS_SUPER_MAGIC: return true;
    default: return false;
  }
}

}  // namespace

FileReader::FileReader(std::filesystem::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!file_) throw io::FileError("open", path_, errno);
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) throw io::FileError("fstat", path_, errno);
  LOCKSTEP_CHECK(S_ISREG(status.st_mode), CorruptData, path_.string(), " is no file");
  size_ = static_cast<std::uint64_t>(status.st_size);
  // The system tells others than these that all is in memory.
  knows_what_is_cached_ =
      status.st_uid == ::geteuid() || ::faccessat(AT_FDCWD, path_.c_str(), W_OK, AT_EACCESS) == 0;
  if (is_on_local_disk(file_.get()))
    direct_ = io::FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  reads_directly_ = static_cast<bool>(direct_);
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

bool FileReader::is_cached(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  if (!knows_what_is_cached_) return false;
  const std::uint64_t begin = offset / page_bytes * page_bytes;
  const std::uint64_t size = offset + bytes - begin;
  void* const pages =
      ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file_.get(), static_cast<off_t>(begin));
  if (pages == MAP_FAILED) return false;
  bool is_there = true;
  std::array<unsigned char, 64> present{};
  for (std::uint64_t at = 0; at < size && is_there; at += present.size() * page_bytes) {
    const std::uint64_t next = std::min<std::uint64_t>(size - at, present.size() * page_bytes);
    is_there = ::mincore(static_cast<std::byte*>(pages) + at, next, present.data()) == 0 &&
               std::ranges::all_of(std::span(present).first((next + page_bytes - 1) / page_bytes),
                                   [](unsigned char page) { return (page & 1U) != 0; });
  }
  ::munmap(pages, size);
  return is_there;
}

std::span<const std::byte> FileReader::read_directly(std::uint64_t offset, std::uint64_t bytes,
                                                     std::span<std::byte> memory) const noexcept {
  if (!reads_directly_) return {};
  const std::uint64_t begin = offset / page_bytes * page_bytes, before = offset - begin;
  const std::uint64_t pages = (before + bytes + page_bytes - 1) / page_bytes * page_bytes;
  ssize_t count = -1;
  do count = io::file_calls.pread(direct_.get(), memory.data(), pages, static_cast<off_t>(begin));
  while (count < 0 && errno == EINTR);
  if (count < 0) reads_directly_ = false;
  if (count < static_cast<ssize_t>(before + bytes)) return {};  // `read` tells why, or does it
  return memory.subspan(before, bytes);
}

void FileReader::read_ahead(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  for (const std::uint64_t end = offset + bytes; offset < end; offset += advised_bytes)
    io::file_calls.advise(file_.get(), static_cast<off_t>(offset),
                          static_cast<off_t>(std::min(end - offset, advised_bytes)),
                          POSIX_FADV_WILLNEED);
}

void FileReader::drop_cache(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  ::posix_fadvise(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                  POSIX_FADV_DONTNEED);
}

}  // namespace lockstep::checkpoint
