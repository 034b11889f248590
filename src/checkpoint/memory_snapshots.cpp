#include "checkpoint/memory_snapshots.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

#include <sys/stat.h>

#include "checkpoint/exchange.hpp"
#include "checkpoint/save.hpp"
#include "io/file_calls.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/file_error.hpp"
#include "lockstep/observe/log.hpp"

// How ranks take snapshots in memory, and give each other copies.

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The same for all who see a folder, and for nobody else.
std::string identity_of(const fs::path& folder) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) throw io::FileError("stat", folder, errno);
  return detail::concat(boot, " ", status.st_dev, " ", status.st_ino);
}

comm::Buffer bytes_of(std::span<std::byte> bytes) {
  return {bytes.data(), std::ssize(bytes), DType::u8};
}

comm::Buffer bytes_of(const std::string& text) {
  return {const_cast<char*>(text.data()), std::ssize(text), DType::u8};
}

/// What a rank sends of its part; nothing if it has none.
struct Sizes {
  std::int64_t description = 0, bytes = 0;
};

comm::Buffer bytes_of(const Sizes& sizes) { return {const_cast<Sizes*>(&sizes), 2, DType::i64}; }

/// Whole or not at all; nothing is synced, for there is no disk.
void write_description(const fs::path& path, const std::string& description) {
  const fs::path temporary = fs::path(path).concat("-new");
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << description;
  file.close();
  if (!file) throw io::FileError("write", temporary, errno);
  fs::rename(temporary, path);
}

}  // namespace

MemorySnapshots::MemorySnapshots(CommunicatorPtr group, fs::path folder, std::uint64_t generation,
                                 bool pins)
    : group_(std::move(group)), folder_(std::move(folder)), generation_(generation), pins_(pins) {
  std::string host;
  error_ = error_of([&] {
    make_folder();
    host = identity_of(folder_);
  });
  error_ = agree(*group_, error_, "a folder for snapshots in memory");
  const auto hosts = comm::all_gather_bytes(*group_, host, "who sees which memory");
  wait();
  if (!is_on_) return;
  find_neighbours(hosts);
  for (const int slot : {0, 1}) {
    memory_[slot] = Staging(file_of(group_->rank(), slot));
    for (Copy& copy : copies_) copy.memory[slot] = Staging(file_of(copy.rank, slot));
  }
}

MemorySnapshots::~MemorySnapshots() { join(); }

// Others may write where file systems in memory are, so the folder may be theirs.
void MemorySnapshots::make_folder() const {
  if (io::file_calls.make_folder(folder_.c_str(), 0700) != 0 && errno != EEXIST)
    throw io::FileError("mkdir", folder_, errno);
  struct stat status {};
  if (::lstat(folder_.c_str(), &status) != 0) throw io::FileError("lstat", folder_, errno);
  LOCKSTEP_CHECK(
      S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0,
      InvalidArgument, folder_.string(),
      " is not a folder of this user that is closed to others; remove it");
}

// Ranks of a host give their parts to those of the next one in turn.
void MemorySnapshots::find_neighbours(const std::vector<std::string>& identities) {
  std::vector<std::pair<std::size_t, std::size_t>> places;  // of each rank: its host, and where
  std::vector<std::string> known;
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    const auto host =
        static_cast<std::size_t>(std::ranges::find(known, identities[rank]) - known.begin());
    if (host == known.size()) {
      known.push_back(identities[rank]);
      hosts_.emplace_back();
    }
    places.emplace_back(host, hosts_[host].size());
    hosts_[host].push_back(static_cast<int>(rank));
  }
  if (hosts_.size() == 1) return;
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    const auto& [host, place] = places[rank];
    const std::vector<int>& next = hosts_[(host + 1) % hosts_.size()];
    const int keeper = next[place % next.size()];
    if (static_cast<int>(rank) == group_->rank()) keeper_ = keeper;
    if (keeper == group_->rank()) copies_.push_back({static_cast<int>(rank), {}});
  }
}

fs::path MemorySnapshots::file_of(int rank, int slot) const {
  return folder_ /
         detail::concat("g", generation_, "-rank-", rank, "-of-", group_->size(), "-", slot);
}

/// Of the part that is under way.
fs::path MemorySnapshots::description_of(int rank) const {
  return file_of(rank, slot_).concat(description_suffix);
}

// Of starts up to one: a later one may have begun on this host.
void MemorySnapshots::remove_files(std::uint64_t last_generation) const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    lockstep::detail::TextReader name(entry.path().filename().string().substr(1));
    std::uint64_t generation = 0;
    if (name >> generation && generation <= last_generation) fs::remove(entry.path(), error);
  }
}

void MemorySnapshots::join() noexcept {
  is_awaited_ = true;
  if (thread_.joinable()) thread_.join();
}

void MemorySnapshots::wait() {
  join();
  if (error_.empty()) return;
  if (group_->rank() == 0)
    LOCKSTEP_LOG(warning, "no more snapshots in memory: ", std::exchange(error_, {}));
  error_.clear();
  is_on_ = false;
}

void MemorySnapshots::take(const Registry& registry, std::int64_t step, std::uint64_t file_bytes) {
  wait();
  if (!is_on_) return;
  const bool is_first = !last_;
  last_ = step;
  slot_ = 1 - slot_;
  const std::string error = error_of([&] {
    const bool takes_more = states_.begin(*group_, registry);
    if (is_first) remove_files(generation_ - 1);
    fs::remove(description_of(group_->rank()));
    snapshot_ = take_snapshot(registry, step, takes_more, group_->rank(), group_->size(),
                              file_bytes, memory_[slot_], later_);
    later_.start(throttle_);
  });
  if (!error.empty()) later_.discard();
  is_awaited_ = false;
  const std::string no_thread =
      error_of([&] { thread_ = std::thread([this, error] { keep(error); }); });
  if (!no_thread.empty()) keep(detail::concat("no thread could be started: ", no_thread));
}

// Beside training, at its priority, since it waits for this before long. Whatever happens is kept
// for `wait`.
void MemorySnapshots::keep(std::string error) noexcept {
  later_.finish();
  const std::string failure = error_of([&] {
    error_ = states_.answer(*group_).difference;
    if (!error_.empty()) return;
    if (error.empty()) error = error_of([&] { later_.wait_until(nullptr); });
    error_ = agree_on_plan(*group_, snapshot_, error, "parts of a snapshot in memory");
    if (!error_.empty()) return;
    std::string own;
    error = error_of([&] {
      own = describe_part({generation_, *last_, group_->size(), group_->rank()}, snapshot_,
                          memory_[slot_].taken());
      write_description(description_of(group_->rank()), own);
    });
    error_ = keep_copies(own, error);
    if (pins_) memory_[slot_].pin(later_.device(), is_awaited_);
  });
  if (failure.empty()) return;
  group_->abort(failure);  // or the others would wait for this rank
  error_ = failure;
}

/// @return what is wrong, the same on all ranks.
std::string MemorySnapshots::keep_copies(const std::string& own, std::string error) {
  constexpr std::string_view agreement = "a snapshot in memory";
  if (keeper_ < 0) return agree(*group_, error, agreement);
  const std::span<std::byte> bytes = memory_[slot_].taken();
  Sizes sizes;
  if (error.empty()) sizes = {std::ssize(own), std::ssize(bytes)};
  std::vector<Sizes> of_others(copies_.size());
  constexpr auto label = "a part of a snapshot in memory";
  group_
      ->batch([&] {
        group_->send(bytes_of(sizes), keeper_, {.label = label});
        for (std::size_t i = 0; i < copies_.size(); ++i)
          group_->receive(bytes_of(of_others[i]), copies_[i].rank, {.label = label});
      })
      .wait();
  std::vector<std::string> descriptions(copies_.size());
  std::vector<std::span<std::byte>> places(copies_.size());
  if (error.empty())
    error = error_of([&] {
      for (std::size_t i = 0; i < copies_.size(); ++i) {
        fs::remove(description_of(copies_[i].rank));
        const auto size = static_cast<std::uint64_t>(of_others[i].bytes);
        copies_[i].memory[slot_].reserve(size, 0);
        places[i] = copies_[i].memory[slot_].take(size, 0);
        descriptions[i].resize(static_cast<std::size_t>(of_others[i].description));
      }
    });
  error = agree(*group_, error, "memory for copies of a snapshot");
  if (!error.empty()) return error;
  const auto send = [&](const comm::Buffer& buffer) {
    if (buffer.count > 0) group_->send(buffer, keeper_, {.label = label});
  };
  const auto receive = [&](const comm::Buffer& buffer, int from) {
    if (buffer.count > 0) group_->receive(buffer, from, {.label = label});
  };
  group_
      ->batch([&] {
        send(bytes_of(bytes));
        send(bytes_of(own));
        for (std::size_t i = 0; i < copies_.size(); ++i) {
          receive(bytes_of(places[i]), copies_[i].rank);
          receive(bytes_of(descriptions[i]), copies_[i].rank);
        }
      })
      .wait();
  error = error_of([&] {
    for (std::size_t i = 0; i < copies_.size(); ++i)
      write_description(description_of(copies_[i].rank), descriptions[i]);
  });
  return agree(*group_, error, agreement);
}

void MemorySnapshots::forget() {
  wait();
  last_.reset();
  if (hosts_.empty()) return;  // no memory was found at the start
  remove_descriptions(group_->rank());
  for (const Copy& copy : copies_) remove_descriptions(copy.rank);
}

void MemorySnapshots::remove_descriptions(int rank) const {
  std::error_code error;
  for (const int slot : {0, 1}) fs::remove(file_of(rank, slot).concat(description_suffix), error);
}

void MemorySnapshots::remove() noexcept {
  join();
  error_of([this] {
    if (!hosts_.empty()) remove_files(generation_);
    fs::remove(folder_);  // nothing is in it
  });
}

}  // namespace lockstep::checkpoint
