#include "lockstep/io/atomic_file.hpp"

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "io/file_calls.hpp"
#include "io/file_descriptor.hpp"
#include "lockstep/io/file_error.hpp"

namespace lockstep::io {
namespace {

// Small writes are gathered up to this size; larger ones go straight through.
constexpr std::size_t buffer_size = std::size_t{1} << 20;

std::filesystem::path temporary_name(const std::filesystem::path& target) {
  static std::atomic<unsigned> counter{0};
  const std::string name =
      detail::concat(".", target.filename().string(), ".tmp-", ::getpid(), "-", counter++);
  return target.parent_path() / name;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  std::error_code ignored;
  const auto status = std::filesystem::status(target_, ignored);
  // A rename over a device such as /dev/null would replace it for the whole machine.
  LOCKSTEP_CHECK(!std::filesystem::exists(status) || std::filesystem::is_regular_file(status),
                 InvalidArgument, target_.string(),
                 " exists and is not a regular file; give the path of a file");
  LOCKSTEP_CHECK(target_.has_filename(), InvalidArgument, "'", target_.string(),
                 "' names no file; give the path of a file");
  do {
    temporary_ = temporary_name(target_);
    descriptor_ = file_calls.create(temporary_.c_str());
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) throw FileError("create", temporary_, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) file_calls.close(descriptor_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > buffer_size) flush();
  if (bytes.size() >= buffer_size) return write_through(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void AtomicFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void AtomicFile::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = file_calls.write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw FileError("write", temporary_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  flush();
  if (file_calls.fsync(descriptor_) != 0) throw FileError("fsync", temporary_, errno);
  if (file_calls.close(std::exchange(descriptor_, -1)) != 0)
    throw FileError("close", temporary_, errno);
  if (file_calls.rename(temporary_.c_str(), target_.c_str()) != 0)
    throw FileError("rename", target_, errno);
  committed_ = true;
  sync_folder();
}

void AtomicFile::sync_folder() const {
  const auto folder = target_.has_parent_path() ? target_.parent_path() : ".";
  const FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor) throw FileError("open", folder, errno);
  if (file_calls.fsync(descriptor.get()) != 0) throw FileError("fsync", folder, errno);
}

}  // namespace lockstep::io
