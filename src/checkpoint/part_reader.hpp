#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/file_reader.hpp"
#include "checkpoint/former_values.hpp"
#include "checkpoint/reading.hpp"
#include "checkpoint/share.hpp"

/// @file
/// How one rank reads its part of a checkpoint.

namespace lockstep::checkpoint {

/// Bytes of a file, and where they go.
struct PartOfFile {
  std::size_t reading;  ///< whose file it is
  std::size_t file;
  std::uint64_t offset;
  std::span<std::byte> to;
  std::byte* former;  ///< gets what `to` has now, before it changes; null: it has nothing
  std::size_t round;  ///< what `wait_for` waits for
};

/// Reads on threads of its own, if there is enough to read and they are to be had: one computes
/// checksums while others wait for the disk.
class PartReader {
 public:
  /// Begins. @param parts by their rounds.
  /// @param with_headers whether the headers, which are there, count into the checksums.
  /// @param former of each reading what was kept of it, once this has died.
  PartReader(std::filesystem::path checkpoint, std::span<const Reading> readings,
             std::vector<PartOfFile> parts, bool with_headers, std::span<FormerValues> former);
  PartReader(const PartReader&) = delete;
  PartReader& operator=(const PartReader&) = delete;
  /// Gives up what was not read yet.
  ~PartReader();

  /// Returns when the bytes of a round are there, or never will be.
  void wait_for(std::size_t round);
  /// Waits for all. @return what the bytes add to the checksums of each reading's files.
  /// @throws what reading failed with.
  std::vector<Contributions> sums();

 private:
  void run() noexcept;
  void read_all();
  bool next(PartOfFile& chunk);
  bool next_ahead(PartOfFile& part);
  void read(const PartOfFile& chunk, std::span<std::byte> memory);
  void read_ahead();
  void keep_former(const PartOfFile& chunk);
  void is_read(const PartOfFile& chunk);
  const FileReader& file_of(const PartOfFile& part);
  std::vector<Contributions> no_sums() const;
  void join();

  std::filesystem::path checkpoint_;
  std::span<const Reading> readings_;
  std::mutex mutex_;  // of what follows, while threads run
  std::condition_variable progressed_;
  std::vector<PartOfFile> parts_;        // what nobody has begun of each
  std::vector<std::uint64_t> ends_;      // of them, in bytes of all from the first one on
  std::size_t first_ = 0;                // of them that is not done
  std::size_t ahead_ = 0;                // of them that the disk was not asked for in full
  std::uint64_t begun_ = 0, asked_ = 0;  // bytes
  std::vector<std::uint64_t> left_;      // bytes of each round that are not there
  std::vector<Contributions> sums_;      // of each reading
  std::span<FormerValues> former_;       // of each reading
  std::map<std::pair<std::size_t, std::size_t>, FileReader> files_;
  std::exception_ptr failure_;  // the first
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::checkpoint
