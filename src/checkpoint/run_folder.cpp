#include "checkpoint/run_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <iterator>
#include <span>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include <sys/file.h>

#include "checkpoint/contents.hpp"
#include "checkpoint/names.hpp"
#include "checkpoint/small_file.hpp"
#include "comm/token.hpp"
#include "core/standard_streams.hpp"
#include "io/file_calls.hpp"
#include "io/in_quotes.hpp"
#include "io/sync_folder.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/file_error.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using io::file_calls, io::FileError;

/// What the lock says: "generation 3 process 17 host a run TOKEN taken OTHER". The first token is
/// the folder's, the second that of who has taken it.
std::uint64_t generation_in(const std::string& text) {
  lockstep::detail::TextReader in(text);
  std::string word;
  std::uint64_t generation = 0;
  in >> word >> generation;
  return word == "generation" ? generation : 0;
}

/// What of it is for people.
std::string owner_in(const std::string& text) { return text.substr(0, text.find(" run ")); }

/// The same, as it is printed.
std::string in_quotes_of(const std::string& text) {
  return text.empty() ? "nobody" : io::in_quotes(owner_in(text));
}

/// Empty if there is none.
std::string token_in(const std::string& text) {
  lockstep::detail::TextReader in(text.substr(0, text.find('\n')));
  for (std::string word, token; in >> word;)
    if (word == "run" && in >> token) return token;
  return {};
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

/// The largest that a checkpoint of the folder was written by: of one that was copied without its
/// hidden files. What is saved now is newer.
std::uint64_t last_generation(const fs::path& folder) {
  std::uint64_t last = 0;
  for (const Found& each : list(folder)) try {
      last = std::max(last, read_manifest(each.path).generation);
    } catch (const Error&) {  // told when it is loaded
    }
  return last;
}

/// Makes a folder and those above it, durably.
void make_folders(const fs::path& folder) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path path = fs::absolute(folder).lexically_normal();
       !fs::exists(path, error) && path.has_relative_path(); path = path.parent_path())
    missing.push_back(path);
  fs::create_directories(folder, error);
  if (error) throw FileError("mkdir", folder, error.value());
  for (const fs::path& made : missing) io::sync_folder(made.parent_path());
}

/// Text of the lock; empty if there is none, or nothing in it. @throws io::FileError: who cannot
/// read it does not know whose the folder is.
std::string read_lock(const fs::path& path) {
  for (bool again = false;; again = true) {
    try {
      return read_small_checked(path);
    } catch (const FileError& error) {
      if (error.status() == ENOENT) return {};
      if (error.status() != ESTALE || again) throw;  // NFS: opened anew, it may be there
    }
  }
}

/// Old and new change names where both are there; each stays findable at every moment.
void replace_folder(const fs::path& saved, const fs::path& place, const fs::path& old) {
  if (file_calls.exchange(saved.c_str(), place.c_str()) == 0) return;
  // EPERM: a filter of system calls that does not know this one.
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP && errno != EPERM)
    throw FileError("renameat2", place, errno);
  // Until the second rename the old one is found under its other name.
  if (file_calls.rename(place.c_str(), old.c_str()) != 0) throw FileError("rename", place, errno);
  if (file_calls.rename(saved.c_str(), place.c_str()) != 0) {
    const int code = errno;
    file_calls.rename(old.c_str(), place.c_str());
    throw FileError("rename", place, code);
  }
}

/// Gives what was saved its first name back, and the old one its place.
void undo(const fs::path& saved, const fs::path& place, const fs::path& old, bool replaced) {
  if (replaced && fs::exists(saved)) {
    file_calls.exchange(saved.c_str(), place.c_str());
    return;
  }
  if (file_calls.rename(place.c_str(), saved.c_str()) == 0 && replaced)
    file_calls.rename(old.c_str(), place.c_str());
}

/// Half-written notes of a checkpoint, which nobody comes to finish.
void find_half_notes(const fs::path& checkpoint, std::vector<fs::path>& found) {
  const std::string begin = detail::concat(".", verification_name, ".tmp-");
  std::error_code error;  // what cannot be looked into is told when it is read
  for (fs::directory_iterator entry(checkpoint, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().filename().string().starts_with(begin)) found.push_back(entry->path());
}

}  // namespace

void write_latest(const fs::path& folder, std::string_view name) {
  write_with_checksum(folder / latest_name, name);
}

std::optional<std::string> read_latest(const fs::path& folder) {
  auto name = read_with_checksum(folder / latest_name);
  return name && step_of_name(*name) ? std::move(name) : std::nullopt;
}

RunFolder::RunFolder(fs::path folder, int seconds) : folder_(std::move(folder)) {
  std::error_code unknown;  // told below
  LOCKSTEP_CHECK(!fs::exists(folder_ / manifest_name, unknown), InvalidArgument, folder_.string(),
                 " is a checkpoint, not a folder of them; give the one that it lies in, or that of "
                 "another run, and load this one by its name");
  make_folders(folder_);
  lock(seconds);
  clean_up();
}

RunFolder::~RunFolder() { delete_left(); }

void RunFolder::lock(int seconds) {
  const fs::path path = folder_ / lock_name;
  open_closed_standard_streams();
  lock_ = io::FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!lock_) throw FileError("open", path, errno);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK) {
      LOCKSTEP_LOG(warning, "the file system of ", folder_.string(),
                   " has no locks: nothing but what ", path.string(),
                   " says of who took it last keeps two jobs from one folder");
      break;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) throw FileError("flock", path, errno);
    LOCKSTEP_CHECK(std::chrono::steady_clock::now() < end, InvalidArgument, folder_.string(),
                   " belongs to a job that still runs (", in_quotes_of(read_small(path)),
                   "); end it, or give this one a folder of its own. Of a host that died, network "
                   "file systems keep locks for some minutes");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  kept_.keep(lock_.get());
  const std::string before = read_lock(path);
  const std::uint64_t last = generation_in(before);
  generation_ = (last > 0 ? last : last_generation(folder_)) + 1;
  token_ = token_in(before);
  if (token_.empty()) token_ = comm::make_token();
  own_ = detail::concat("generation ", generation_, " process ", ::getpid(), " host ", host_name(),
                        " run ", token_, " taken ", comm::make_token(), "\n");
  // In this order: who is killed between them leaves a first line that is whole.
  if (file_calls.pwrite(lock_.get(), own_.data(), own_.size(), 0) != std::ssize(own_) ||
      file_calls.resize(lock_.get(), std::ssize(own_)) != 0 || file_calls.fsync(lock_.get()) != 0)
    throw FileError("write", path, errno);
}

void RunFolder::check_is_there() const {
  std::error_code error;
  const bool is_there = fs::exists(folder_ / lock_name, error) || error;
  LOCKSTEP_CHECK(
      is_there, InvalidArgument, "the folder ", folder_.string(),
      fs::exists(folder_, error) ? " has lost what this run wrote there" : " is gone",
      ": it was deleted or moved while the run has it, or its file system is not mounted "
      "any more; put it back, and the next save goes there, or start the run again, "
      "which begins anew in a new folder");
}

void RunFolder::check_is_own() const {
  check_is_there();
  const std::string now = read_lock(folder_ / lock_name);
  if (now == own_) return;
  LOCKSTEP_CHECK(token_in(now) == token_, InvalidArgument, folder_.string(),
                 " is another folder than this run has taken, which was moved, deleted or linked "
                 "elsewhere: this one has been taken by ",
                 in_quotes_of(now), ", and this run must not write there");
  LOCKSTEP_THROW(InvalidArgument, folder_.string(), " was taken by generation ", generation_in(now),
                 " of the run (", in_quotes_of(now), "), and this is ", generation_, " (",
                 in_quotes_of(own_), "), which must not write there");
}

void check_same_folder(const fs::path& folder, const std::string& token,
                       std::chrono::duration<double> timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const auto found = [&] { return token_in(read_small(folder / lock_name)); };
  std::string own = found();
  while (own.empty() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    own = found();
  }
  constexpr const char* advice =
      ": give all ranks the same folder, in a file system that all of them see";
  LOCKSTEP_CHECK(!own.empty(), InvalidArgument, folder.string(),
                 " is not there, though rank 0 has it", advice);
  LOCKSTEP_CHECK(own == token, InvalidArgument, folder.string(),
                 " is not the folder that rank 0 has, but that of another run", advice);
  const fs::path lock = folder / lock_name;
  if (::access(lock.c_str(), W_OK) != 0) throw FileError("access", lock, errno);
}

// An old checkpoint whose successor did not come gets its place back.
void RunFolder::clean_up() const {
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(old_prefix)) {
      const std::string own = name.substr(old_prefix.size());
      if (step_of_name(own) && !fs::exists(folder_ / own)) {
        if (file_calls.rename(entry.path().c_str(), (folder_ / own).c_str()) != 0)
          throw FileError("rename", entry.path(), errno);
        continue;
      }
    }
    if (name.starts_with(saving_prefix) || name.starts_with(old_prefix) ||
        name.starts_with(deleting_prefix) ||
        name.starts_with(detail::concat(".", latest_name, ".tmp-")))
      left.push_back(entry.path());
    else if (step_of_name(name))
      find_half_notes(entry.path(), left);
  }
  if (!left.empty()) io::sync_folder(folder_);  // names that a killed save gave, before others go
  for (const fs::path& path : left) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
}

std::string RunFolder::begin(std::int64_t step) {
  check_is_own();
  delete_left();  // makes room
  const std::string name =
      detail::concat(saving_prefix, name_of_step(step), "-", generation_, "-", ++saves_);
  saving_ = folder_ / name;
  std::error_code error;
  fs::remove_all(saving_, error);
  if (file_calls.make_folder(saving_.c_str(), 0777) != 0) throw FileError("mkdir", saving_, errno);
  return name;
}

void RunFolder::make_newest(std::int64_t step) const {
  check_is_own();
  write_latest(folder_, name_of_step(step));
}

void RunFolder::commit(std::int64_t step) {
  const fs::path& saving = saving_;
  const fs::path place = folder_ / name_of_step(step),
                 old = folder_ / detail::concat(old_prefix, name_of_step(step));
  io::sync_folder(saving);
  check_is_own();
  const bool replaces = fs::exists(place);
  if (replaces)
    replace_folder(saving, place, old);
  else if (file_calls.rename(saving.c_str(), place.c_str()) != 0)
    throw FileError("rename", place, errno);
  try {
    io::sync_folder(folder_);
    write_latest(folder_, name_of_step(step));
  } catch (...) {
    undo(saving, place, old, replaces);
    throw;
  }
  if (replaces) left_.insert(left_.end(), {saving, old});  // where both were exchanged, the first
}

void RunFolder::discard() const noexcept {
  std::error_code ignored;
  if (!saving_.empty()) fs::remove_all(saving_, ignored);
}

// A checkpoint that is half deleted shall not look like one.
void RunFolder::remove(const fs::path& checkpoint) {
  const fs::path deleting =
      folder_ / detail::concat(deleting_prefix, checkpoint.filename().string());
  std::error_code ignored;
  fs::remove_all(deleting, ignored);
  if (file_calls.rename(checkpoint.c_str(), deleting.c_str()) != 0)
    throw FileError("rename", checkpoint, errno);
  left_.push_back(deleting);
}

void RunFolder::delete_left() noexcept {
  for (const fs::path& each : left_) {
    std::error_code ignored;  // the next start tries again
    fs::remove_all(each, ignored);
  }
  left_.clear();
}

void RunFolder::prune(const Retention& retention, std::int64_t newest) {
  std::vector<Found> found = list(folder_);
  std::erase_if(found, [&](const Found& each) {
    return each.step == newest ||
           (retention.keep_every > 0 && each.step % retention.keep_every == 0) ||
           each.step == retention.best || each.step == retention.kept;
  });
  // Those of later steps were left behind by a run that went back.
  std::ranges::stable_partition(found, [&](const Found& each) { return each.step > newest; });
  std::ranges::stable_partition(
      found, [&](const Found& each) { return retention.damaged.contains(each.step); });
  const auto kept = static_cast<std::size_t>(retention.keep_last - 1);
  if (found.size() <= kept) return;
  std::exception_ptr problem;
  for (const Found& each : std::span(found).first(found.size() - kept)) {
    if (retention.whole.contains(each.step)) continue;
    try {
      remove(each.path);
    } catch (const FileError&) {  // the others go all the same
      if (!problem) problem = std::current_exception();
    }
  }
  if (problem) std::rethrow_exception(problem);
}

}  // namespace lockstep::checkpoint
