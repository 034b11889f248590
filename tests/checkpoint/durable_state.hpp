#pragma once

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include "io/file_calls.hpp"
#include "io/file_descriptor.hpp"
#include "support/temporary_folder.hpp"

/// @file
/// What a crash of the machine leaves of a folder: what was synced, whatever else was written.

namespace lockstep::testing {

/// How much of what nobody synced a crash leaves.
enum class Unsynced : unsigned char {
  lost,           ///< nothing: no name, no rename, no deletion, no byte
  names_empty,    ///< all names as they were; files that were not synced are empty
  names_zero,     ///< the same; such files have their sizes, and zeros
  deletions_only  ///< deletions alone, of what renames behind them leave under its old name
};

/// Files and folders by their path, as a crash leaves them; a folder has no bytes.
using FolderAfterCrash = std::map<std::string, std::optional<std::string>>;

/// Writes it anew.
inline void write_folder(const std::filesystem::path& folder, const FolderAfterCrash& contents) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const auto& [path, bytes] : contents)
    if (bytes)
      std::ofstream(folder / path, std::ios::binary) << *bytes;
    else
      std::filesystem::create_directory(folder / path);
}

/// Notes behind each call that changes the file system what of a folder is durable: the bytes of a
/// file since the last fsync of the file, and a name in a folder since the last of the folder, as
/// POSIX has it. There is one at a time; ranks may be threads.
class DurableState {
 public:
  /// @param folder made here, and durable from the beginning.
  explicit DurableState(std::filesystem::path folder) : folder_(std::move(folder)) {
    ours = this;
    std::filesystem::create_directories(folder_);
    sync(inode_of(folder_));
    auto& calls = io::file_calls;
    using Calls = io::FileCalls;
    calls.create = [](const char* path, mode_t mode) {
      return noted([&] { return Calls().create(path, mode); });
    };
    calls.write = [](int file, const void* data, size_t size) {
      return noted([&] { return ::write(file, data, size); });
    };
    calls.pwrite = [](int file, const void* data, size_t size, off_t offset) {
      return noted([&] { return ::pwrite(file, data, size, offset); });
    };
    calls.allocate = [](int file, off_t size) {
      return noted([&] { return Calls().allocate(file, size); });
    };
    calls.resize = [](int file, off_t size) {
      return noted([&] { return ::ftruncate(file, size); });
    };
    calls.close = [](int file) { return noted([&] { return ::close(file); }); };
    calls.rename = [](const char* from, const char* to) {
      return noted([&] { return ::rename(from, to); });
    };
    calls.exchange = [](const char* one, const char* other) {
      return noted([&] {
        if (ours->exchanges_) return Calls().exchange(one, other);
        errno = EINVAL;
        return -1;
      });
    };
    calls.make_folder = [](const char* path, mode_t mode) {
      return noted([&] { return ::mkdir(path, mode); });
    };
    calls.fsync = [](int file) {
      return noted([&] {
        ours->sync(inode_of("/proc/self/fd/" + std::to_string(file)));
        return 0;  // the disk itself need not know
      });
    };
  }
  ~DurableState() { io::file_calls = {}; }
  DurableState(const DurableState&) = delete;
  DurableState& operator=(const DurableState&) = delete;

  /// The file system cannot exchange two names at once.
  void refuse_exchanges() { exchanges_ = false; }
  /// What crashes would have left behind each call since this was called last, each once.
  std::vector<FolderAfterCrash> take_crashes() {
    const std::lock_guard lock(mutex_);
    return std::exchange(crashes_, {});
  }
  /// What a crash now leaves, in each of the ways.
  std::vector<FolderAfterCrash> crash_now() {
    take_crashes();
    const std::lock_guard lock(mutex_);
    look();
    note();
    return std::exchange(crashes_, {});
  }

 private:
  struct Inode {
    io::FileDescriptor held;  // so that no other file gets its number
    std::optional<std::string> bytes;
    std::map<std::string, ino_t> names;  // of a folder
    bool is_synced = false;
  };

  template <class Call>
  static std::invoke_result_t<Call> noted(const Call& call) {
    const std::lock_guard lock(ours->mutex_);
    const auto result = call();
    const int code = errno;
    ours->look();
    ours->note();
    errno = code;
    return result;
  }
  static ino_t inode_of(const std::filesystem::path& path) {
    struct stat status {};
    ::stat(path.c_str(), &status);
    return status.st_ino;
  }

  /// Finds what is there now, also what was made by calls that nobody notes.
  void look() {
    present_.clear();
    find(folder_, "");
  }
  void find(const std::filesystem::path& path, const std::string& name) {
    Inode& inode = inodes_[inode_of(path)];
    if (!inode.held) inode.held = io::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!name.empty()) present_[name] = inode_of(path);
    if (!std::filesystem::is_directory(path)) return;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      find(entry.path(), (name.empty() ? "" : name + "/") + entry.path().filename().string());
  }
  /// What is there becomes durable, of a file or of a folder.
  void sync(ino_t number) {
    look();
    const auto inode = inodes_.find(number);
    if (inode == inodes_.end()) return;  // of a folder above
    inode->second.is_synced = true;
    const std::filesystem::path path = "/proc/self/fd/" + std::to_string(inode->second.held.get());
    if (!std::filesystem::is_directory(path)) {
      inode->second.bytes = read_file(path);
      return;
    }
    inode->second.names.clear();
    for (const auto& entry : std::filesystem::directory_iterator(path))
      inode->second.names[entry.path().filename()] = inode_of(entry.path());
  }

  bool is_deleted(const Inode& inode) const {
    struct stat status {};
    return ::fstat(inode.held.get(), &status) == 0 && status.st_nlink == 0;
  }
  static bool is_folder(const Inode& inode) {
    struct stat status {};
    return ::fstat(inode.held.get(), &status) == 0 && S_ISDIR(status.st_mode);
  }
  std::optional<std::string> bytes_of(const Inode& inode, Unsynced kept) const {
    if (is_folder(inode)) return std::nullopt;
    if (inode.is_synced) return inode.bytes;
    struct stat status {};
    ::fstat(inode.held.get(), &status);
    return std::string(kept == Unsynced::names_zero ? static_cast<std::size_t>(status.st_size) : 0,
                       '\0');
  }
  void add_synced(FolderAfterCrash& folder, const Inode& inode, const std::string& path,
                  Unsynced kept) const {
    for (const auto& [name, number] : inode.names) {
      const Inode& entry = inodes_.at(number);
      if (kept == Unsynced::deletions_only && is_deleted(entry)) continue;
      folder[path + name] = bytes_of(entry, kept);
      add_synced(folder, entry, path + name + "/", kept);
    }
  }
  void note() {
    for (const Unsynced kept : {Unsynced::lost, Unsynced::deletions_only}) {
      FolderAfterCrash folder;
      add_synced(folder, inodes_.at(inode_of(folder_)), "", kept);
      add(std::move(folder));
    }
    for (const Unsynced kept : {Unsynced::names_empty, Unsynced::names_zero}) {
      FolderAfterCrash folder;
      for (const auto& [path, number] : present_) folder[path] = bytes_of(inodes_.at(number), kept);
      add(std::move(folder));
    }
  }
  void add(FolderAfterCrash folder) {
    for (const FolderAfterCrash& each : crashes_)
      if (each == folder) return;
    crashes_.push_back(std::move(folder));
  }

  static inline DurableState* ours = nullptr;

  const std::filesystem::path folder_;
  std::mutex mutex_;  // of all that follows
  bool exchanges_ = true;
  std::map<ino_t, Inode> inodes_;
  std::map<std::string, ino_t> present_;
  std::vector<FolderAfterCrash> crashes_;
};

}  // namespace lockstep::testing
