#include "checkpoint/file_writer.hpp"

#include <cerrno>
#include <cstdint>
#include <utility>

#include "checkpoint/staging.hpp"
#include "io/file_calls.hpp"
#include "lockstep/io/file_error.hpp"

namespace lockstep::checkpoint {
namespace {

using io::file_calls, io::FileDescriptor, io::FileError;

FileDescriptor create(const std::filesystem::path& path) {
  FileDescriptor file(file_calls.create(path.c_str(), 0666));
  if (!file) throw FileError("create", path, errno);
  return file;
}

void close(FileDescriptor file, const std::filesystem::path& path) {
  if (file_calls.close(file.release()) != 0) throw FileError("close", path, errno);
}

bool lies_to_pages(std::uint64_t offset, std::span<const std::byte> bytes) {
  return (offset | reinterpret_cast<std::uintptr_t>(bytes.data()) | bytes.size()) % page_bytes == 0;
}

}  // namespace

void create_file(const std::filesystem::path& path, std::uint64_t size) {
  FileDescriptor file = create(path);
  const auto bytes = static_cast<off_t>(size);
  // Where space cannot be taken ahead, a full disk shows when it is written.
  if (size > 0 && file_calls.allocate(file.get(), bytes) != 0) {
    if (errno != EOPNOTSUPP && errno != ENOSYS) throw FileError("fallocate", path, errno);
    if (file_calls.resize(file.get(), bytes) != 0) throw FileError("ftruncate", path, errno);
  }
  close(std::move(file), path);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  close(create(path), path);
  FileWriter writer(path);
  writer.write(0, std::as_bytes(std::span(text)));
  writer.sync();
}

FileWriter::FileWriter(std::filesystem::path path)
    : path_(std::move(path)),
      cached_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW)),
      direct_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECT)),
      writes_directly_(static_cast<bool>(direct_)) {
  if (!cached_) throw FileError("open", path_, errno);
}

// Returns whether it wrote something; if not, the page cache is the way.
bool FileWriter::write_direct(std::uint64_t offset, std::span<const std::byte>& bytes) {
  const ssize_t written =
      file_calls.pwrite(direct_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
  if (written < 0 && errno == EINTR) return true;
  if (written < 0 && errno != EINVAL) throw FileError("pwrite", path_, errno);
  if (written <= 0) return false;
  bytes = bytes.subspan(static_cast<std::size_t>(written));
  return true;
}

void FileWriter::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t before = bytes.size();
    if (writes_directly_ && lies_to_pages(offset, bytes)) {
      if (!write_direct(offset, bytes)) writes_directly_ = false;
    } else {
      const ssize_t written =
          file_calls.pwrite(cached_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0 && errno != EINTR) throw FileError("pwrite", path_, errno);
      if (written == 0) throw FileError("pwrite", path_, ENOSPC);
      if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    offset += before - bytes.size();
  }
}

void FileWriter::sync() {
  if (file_calls.fsync(cached_.get()) != 0) throw FileError("fsync", path_, errno);
  close(std::move(cached_), path_);
}

}  // namespace lockstep::checkpoint
