#include "lockstep/io/atomic_file.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <string>
#include <utility>

#include <sys/stat.h>

#include "io/file_calls.hpp"
#include "io/file_descriptor.hpp"
#include "io/sync_folder.hpp"
#include "lockstep/io/file_error.hpp"
#include "runtime/background_failure.hpp"

namespace lockstep::io {
namespace {

// Small writes are gathered up to this size; larger ones go straight through.
constexpr std::size_t buffer_size = std::size_t{1} << 20;

// The name's beginning stays, as far as a file's name may be long.
std::filesystem::path temporary_name(const std::filesystem::path& target) {
  static std::atomic<unsigned> counter{0};
  const std::string suffix = detail::concat(".tmp-", ::getpid(), "-", counter++);
  const std::string name = target.filename().string().substr(0, NAME_MAX - 1 - suffix.size());
  return target.parent_path() / detail::concat(".", name, suffix);
}

// What a path leads to: a rename over a symbolic link would replace the link.
std::filesystem::path behind_links(std::filesystem::path path) {
  std::error_code error;
  for (int followed = 0; followed < 40; ++followed) {  // as many as Linux follows
    if (!std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) return path;
    const std::filesystem::path next = std::filesystem::read_symlink(path, error);
    if (error) throw FileError("readlink", path, error.value());
    path = path.parent_path() / next;
  }
  throw FileError("readlink", path, ELOOP);
}

// Gives a new file the owner, group and mode of the one it will replace. Where the group is not
// ours to give, it gets no more rights than everybody.
void copy_rights(const struct stat& from, int to, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(to, &status) != 0) throw FileError("fstat", path, errno);
  mode_t mode = from.st_mode & 0777;
  const bool is_same_owner = status.st_uid == from.st_uid && status.st_gid == from.st_gid;
  const bool is_given = is_same_owner || ::fchown(to, from.st_uid, from.st_gid) == 0 ||
                        ::fchown(to, static_cast<uid_t>(-1), from.st_gid) == 0;
  if (!is_given) mode &= ~S_IRWXG | (mode & S_IRWXO) << 3;
  if ((status.st_mode & 0777) == mode || ::fchmod(to, mode) == 0) return;
  // Where a file system lets nobody change them, the file has those of a new one, no more.
  const bool is_refused = errno == EPERM || errno == EACCES || errno == ENOTSUP || errno == ENOSYS;
  if (!is_refused) throw FileError("fchmod", path, errno);
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target) : target_(behind_links(std::move(target))) {
  std::error_code ignored;
  const auto status = std::filesystem::status(target_, ignored);
  // A rename over a device such as /dev/null would replace it for the whole machine.
  LOCKSTEP_CHECK(!std::filesystem::exists(status) || std::filesystem::is_regular_file(status),
                 InvalidArgument, target_.string(),
                 " exists and is not a regular file; give the path of a file");
  LOCKSTEP_CHECK(target_.has_filename(), InvalidArgument, "'", target_.string(),
                 "' names no file; give the path of a file");
  struct stat replaced {};
  const bool replaces = ::stat(target_.c_str(), &replaced) == 0;
  do {
    temporary_ = temporary_name(target_);
    // Nobody else may read a private file's new contents, not for a moment.
    descriptor_ = file_calls.create(temporary_.c_str(), replaces ? 0600 : 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) throw FileError("create", target_, errno);
  try {
    if (replaces) copy_rights(replaced, descriptor_, temporary_);
  } catch (...) {
    discard();
    throw;
  }
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) file_calls.close(std::exchange(descriptor_, -1));
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::check_open() const {
  LOCKSTEP_CHECK(descriptor_ >= 0, InvalidArgument, target_.string(),
                 ": this save was committed, or failed; another one needs a new AtomicFile");
}

// A second try could commit half a file, or one whose bytes the system has given up.
void AtomicFile::fail(const char* call) {
  const int code = errno;
  discard();
  throw FileError(call, temporary_, code);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  check_open();
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
    if (written < 0) fail("write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::finish() {
  check_open();
  raise_background_failure();  // what was written may be garbage, and the old file is not
  flush();
  buffer_ = {};
  if (file_calls.fsync(descriptor_) != 0) fail("fsync");
  if (file_calls.close(std::exchange(descriptor_, -1)) != 0) fail("close");
  finished_ = true;
}

void AtomicFile::commit() {
  if (!finished_) finish();
  finished_ = false;
  if (file_calls.rename(temporary_.c_str(), target_.c_str()) != 0)
    throw FileError("rename", target_, errno);
  committed_ = true;
  sync_folder(target_.has_parent_path() ? target_.parent_path() : ".");
}

}  // namespace lockstep::io
