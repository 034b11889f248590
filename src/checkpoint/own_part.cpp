#include "checkpoint/own_part.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "checkpoint/background_thread.hpp"
#include "checkpoint/exchange.hpp"
#include "checkpoint/file_writer.hpp"
#include "checkpoint/share.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t bytes_per_write = std::uint64_t{4} << 20;  // one write
constexpr std::uint64_t large_part = 2 * bytes_per_write;          // is worth a second thread

}  // namespace

std::string pack(const Written& written) {
  std::string message;
  append_text(message, written.sums);
  append_number(message, written.values.size());
  for (const auto& [rank, values] : written.values) {
    append_number(message, static_cast<std::uint64_t>(rank));
    append_text(message, values);
  }
  append_text(message, {reinterpret_cast<const char*>(written.parts.data()),
                        written.parts.size() * sizeof(Part)});
  for (const Edge& edge : written.edges) {
    append_number(message, edge.file);
    append_number(message, edge.offset);
    append_text(message, edge.bytes);
  }
  return message;
}

Written unpack(std::string_view message) {
  Written written;
  written.sums = take_text(message);
  for (std::uint64_t count = take_number(message); count > 0; --count) {
    const auto rank = static_cast<int>(take_number(message));
    written.values.emplace_back(rank, take_text(message));
  }
  const std::string_view parts = take_text(message);
  written.parts.resize(parts.size() / sizeof(Part));
  if (!written.parts.empty())
    std::memcpy(written.parts.data(), parts.data(), written.parts.size() * sizeof(Part));
  while (!message.empty()) {
    const std::uint64_t file = take_number(message), offset = take_number(message);
    written.edges.push_back({file, offset, std::string(take_text(message))});
  }
  return written;
}

std::vector<std::uint64_t> sizes_of(const Snapshot& snapshot) {
  std::vector<std::uint64_t> sizes;
  for (const auto& [name, size] : snapshot.files) sizes.push_back(size);
  return sizes;
}

namespace {

/// Some bytes of a segment: whole pages, or an edge.
struct Chunk {
  std::size_t file;
  std::uint64_t offset;
  std::span<const std::byte> bytes;
  bool is_edge;
};

void cut(const Segment& segment, std::vector<Chunk>& chunks) {
  const std::uint64_t begin = segment.offset, end = begin + segment.bytes.size();
  const std::uint64_t first = std::min((begin + page_bytes - 1) / page_bytes * page_bytes, end);
  const std::uint64_t last = std::max(end / page_bytes * page_bytes, first);
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t next = at < first  ? first
                               : at < last ? std::min(last, at + bytes_per_write)
                                           : end;
    chunks.push_back({.file = segment.file,
                      .offset = at,
                      .bytes = segment.bytes.subspan(at - begin, next - at),
                      .is_edge = at < first || at >= last});
    at = next;
  }
}

/// Writes chunks in their order, each once its bytes are copied. Two threads do: while one sums up
/// what it will write next, the disk has the other's. They have a low priority unless somebody
/// waits for them: else they would wait for the copies to end. The caller, who exchanges with other
/// ranks, keeps its own: it may hold what training waits for.
class PartWriter {
 public:
  PartWriter(const fs::path& saving, const Snapshot& snapshot, bool is_first, LaterCopies& later,
             Throttle& throttle)
      : writes_edges_(is_first),
        later_(later),
        throttle_(throttle),
        sums_(sizes_of(snapshot)),
        own_sums_(sums_) {
    for (const Segment& segment : snapshot.segments) {
      writers_.try_emplace(segment.file, saving / snapshot.files[segment.file].first);
      cut(segment, chunks_);
      bytes_ += segment.bytes.size();
    }
  }

  void write() {
    if (bytes_ < large_part) {
      throttle_.hurry();
      work();
    } else {
      const auto work_beside = [this] {
        if (!throttle_.hurries()) yield_to_training();
        work();
      };
      const std::jthread first(work_beside), second(work_beside);
    }
    if (failure_) std::rethrow_exception(failure_);
    for (auto& [file, writer] : writers_) writer.sync();
  }

  Written take_written() && {
    return {.sums = sums_.pack(), .edges = std::move(edges_), .values = {}, .parts = {}};
  }

 private:
  void work() noexcept {
    Contributions sums = own_sums_;
    try {
      for (std::size_t i = next_++; i < chunks_.size(); i = next_++) {
        const double before = processor_seconds();
        write(chunks_[i], sums);
        throttle_.spend(processor_seconds() - before);
        throttle_.rest();
      }
    } catch (...) {
      next_ = chunks_.size();
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      return;
    }
    const std::lock_guard lock(mutex_);
    sums_.add(sums);
  }

  void write(const Chunk& chunk, Contributions& sums) {
    later_.wait_until(chunk.bytes.data() + chunk.bytes.size());
    sums.add(chunk.file, chunk.offset, chunk.bytes);
    if (!chunk.is_edge || writes_edges_)
      return writers_.at(chunk.file).write(chunk.offset, chunk.bytes);
    const std::lock_guard lock(mutex_);
    edges_.push_back(
        {chunk.file, chunk.offset,
         std::string(reinterpret_cast<const char*>(chunk.bytes.data()), chunk.bytes.size())});
  }

  const bool writes_edges_;
  LaterCopies& later_;
  Throttle& throttle_;
  std::map<std::size_t, FileWriter> writers_;
  std::vector<Chunk> chunks_;
  std::uint64_t bytes_ = 0;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;  // of what follows
  Contributions sums_;
  const Contributions own_sums_;  // none
  std::vector<Edge> edges_;
  std::exception_ptr failure_;
};

}  // namespace

Written write_own(const fs::path& saving, const Snapshot& snapshot, bool is_first,
                  LaterCopies& later, Throttle& throttle) {
  PartWriter writer(saving, snapshot, is_first, later, throttle);
  writer.write();
  Written written = std::move(writer).take_written();
  written.values = snapshot.own_values;
  for (const Segment& segment : snapshot.segments)
    written.parts.push_back({segment.file, segment.offset, segment.offset + segment.bytes.size()});
  return written;
}

}  // namespace lockstep::checkpoint
