#include "checkpoint/reading.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "checkpoint/exchange.hpp"
#include "checkpoint/file_reader.hpp"
#include "checkpoint/share.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t chunk_bytes = std::uint64_t{1} << 20;  // stays in cache for its checksum
constexpr std::uint64_t round_bytes = std::uint64_t{8} << 20;  // of each rank, before an exchange
constexpr std::size_t batch_size = 64;                         // exchanges that begin as one

/// Bytes of a tensor that one rank reads.
struct Item {
  std::size_t reading;
  Extent extent;
};

using Round = std::vector<Item>;

std::vector<std::uint64_t> sizes_of(const StemContents& contents) {
  std::vector<std::uint64_t> sizes;
  for (const FileRecord& file : contents.files) sizes.push_back(file.size);
  return sizes;
}

/// The part that a rank reads of the tensors that all want, or this rank's ranges of the others.
std::vector<Extent> extents_of(const Reading& reading, bool shared, int rank, int size) {
  auto ranges = reading.ranges;
  for (auto& range : ranges)
    if (shared && range) range = parallel::ShardRange{.whole = {}, .begin = 0, .count = 0};
  auto parts = equal_parts(sizes_of(reading.contents), rank, size);
  if (!shared)
    for (auto& [begin, end] : parts) end = begin;
  return own_extents(reading.contents.tensors, ranges, parts);
}

/// What a rank reads between one exchange and the next.
std::vector<Round> rounds_of(std::span<const Reading> readings, int rank, int size) {
  std::vector<Round> rounds;
  std::uint64_t used = round_bytes;
  for (std::size_t i = 0; i < readings.size(); ++i)
    for (Extent rest : extents_of(readings[i], true, rank, size))
      while (rest.bytes > 0) {
        if (used == round_bytes) {
          rounds.emplace_back();
          used = 0;
        }
        Extent next = rest;
        next.bytes = std::min(rest.bytes, round_bytes - used);
        rounds.back().push_back({i, next});
        used += next.bytes;
        rest.bytes -= next.bytes;
        rest.offset += next.bytes;
        rest.from += next.bytes;
      }
  return rounds;
}

std::span<std::byte> place_of(std::span<const Reading> readings, const Item& item) {
  const Tensor& tensor = readings[item.reading].tensors[item.extent.tensor];
  return {static_cast<std::byte*>(tensor.data_ptr()) + item.extent.from, item.extent.bytes};
}

/// Reads a rank's part on a thread of its own, if one is to be had.
class PartReader {
 public:
  PartReader(const fs::path& checkpoint, std::span<const Reading> readings, int rank, int size)
      : checkpoint_(checkpoint), readings_(readings), rounds_(rounds_of(readings, rank, size)) {
    for (std::size_t i = 0; i < readings.size(); ++i) {
      sums_.emplace_back(sizes_of(readings[i].contents));
      if (rank == 0) add_headers(i);
      for (const Extent& extent : extents_of(readings[i], false, rank, size))
        ranges_.push_back({i, extent});
    }
    const std::string no_thread = error_of([this] { thread_ = std::thread([this] { run(); }); });
    if (!no_thread.empty()) run();  // what it has read is exchanged later
  }
  PartReader(const PartReader&) = delete;
  PartReader& operator=(const PartReader&) = delete;
  ~PartReader() {
    stops_ = true;
    if (thread_.joinable()) thread_.join();
  }

  /// Returns when the bytes of a round are there, or never will.
  void wait_for(std::size_t round) {
    std::unique_lock lock(mutex_);
    progressed_.wait(lock, [&] { return is_done_ || read_ > round; });
  }
  /// Waits for all. @throws what reading failed with.
  std::vector<std::string> sums() {
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(failure_);
    std::vector<std::string> packed;
    for (const Contributions& each : sums_) packed.push_back(each.pack());
    return packed;
  }

 private:
  void add_headers(std::size_t reading) {
    const std::vector<std::string>& headers = readings_[reading].headers;
    for (std::size_t file = 0; file < headers.size(); ++file)
      sums_[reading].add(file, 0, std::as_bytes(std::span(headers[file])));
  }

  void run() noexcept {
    try {
      for (const Round& round : rounds_) {
        for (const Item& item : round) read(item);
        const std::lock_guard lock(mutex_);
        ++read_;
        progressed_.notify_all();
      }
      for (const Item& item : ranges_) read(item);
    } catch (...) {
      failure_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    progressed_.notify_all();
  }

  void read(const Item& item) {
    const FileReader& file = file_of(item);
    std::span<std::byte> bytes = place_of(readings_, item);
    for (std::uint64_t offset = item.extent.offset; !bytes.empty() && !stops_;) {
      const auto chunk = bytes.first(std::min<std::uint64_t>(bytes.size(), chunk_bytes));
      file.read(offset, chunk);
      sums_[item.reading].add(item.extent.file, offset, chunk);
      bytes = bytes.subspan(chunk.size());
      offset += chunk.size();
    }
  }

  const FileReader& file_of(const Item& item) {
    const std::string& name = readings_[item.reading].contents.files[item.extent.file].name;
    return files_.try_emplace({item.reading, item.extent.file}, checkpoint_ / name).first->second;
  }

  const fs::path& checkpoint_;
  std::span<const Reading> readings_;
  std::vector<Round> rounds_;
  std::vector<Item> ranges_;
  std::vector<Contributions> sums_;
  std::map<std::pair<std::size_t, std::size_t>, FileReader> files_;
  std::exception_ptr failure_;
  std::atomic<bool> stops_ = false;
  std::mutex mutex_;  // of what follows
  std::condition_variable progressed_;
  std::size_t read_ = 0;  // rounds
  bool is_done_ = false;
  std::thread thread_;
};

/// Gives all ranks what each has read in a round.
void exchange(comm::Communicator& group, std::span<const Reading> readings,
              std::span<const std::pair<int, Item>> items) {
  for (std::size_t first = 0; first < items.size(); first += batch_size)
    group
        .batch([&] {
          for (const auto& [rank, item] :
               items.subspan(first, std::min(batch_size, items.size() - first))) {
            const std::span<std::byte> place = place_of(readings, item);
            group.broadcast({place.data(), std::ssize(place), DType::u8}, rank,
                            {.label = "a tensor of a checkpoint"});
          }
        })
        .wait();
}

}  // namespace

std::vector<std::string> read_and_exchange(comm::Communicator& group, const fs::path& checkpoint,
                                           std::span<const Reading> readings) {
  PartReader own(checkpoint, readings, group.rank(), group.size());
  std::vector<std::vector<std::pair<int, Item>>> rounds;  // of all ranks
  for (int rank = 0; rank < group.size() && group.size() > 1; ++rank) {
    const std::vector<Round> its = rounds_of(readings, rank, group.size());
    rounds.resize(std::max(rounds.size(), its.size()));
    for (std::size_t i = 0; i < its.size(); ++i)
      for (const Item& item : its[i]) rounds[i].emplace_back(rank, item);
  }
  // A rank whose reads fail goes on: the others are told at the end.
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    own.wait_for(i);
    exchange(group, readings, rounds[i]);
  }
  std::vector<std::string> sums;
  run_on_all(group, "parts of a checkpoint are read", [&] { sums = own.sums(); });
  return sums;
}

}  // namespace lockstep::checkpoint
