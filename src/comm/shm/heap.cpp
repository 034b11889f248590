#include "comm/shm/heap.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/core/error.hpp"

namespace lockstep::comm::shm {
namespace {

// So much of what is freed stays reserved at first.
constexpr std::size_t least_kept = 64 << 20;

constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

}  // namespace

/// What it was allocated from stays mapped as long as it lives.
class Heap::Piece final : public Memory {
 public:
  Piece(std::shared_ptr<Heap> heap, std::size_t begin, std::byte* data, std::size_t bytes)
      : Memory(data, bytes), heap_(std::move(heap)), begin_(begin) {}
  ~Piece() override { heap_->give_back(begin_, whole_pages(bytes())); }

 private:
  std::shared_ptr<Heap> heap_;
  std::size_t begin_;
};

Heap::Heap(const MemoryFile& file, const Parts& parts)
    : parts_(parts), file_(file.open_again()), mapped_(static_cast<std::size_t>(parts.count)) {
  free_[0] = {parts_.bytes, false};
}

Heap::~Heap() {
  for (const auto& part : mapped_)
    if (std::byte* const memory = part.load()) munmap(memory, parts_.bytes);
  ::close(file_);
}

// A dump of the process would take memory for all of it.
std::byte* Heap::map(int rank) {
  auto& mapped = mapped_[static_cast<std::size_t>(rank)];
  if (std::byte* const memory = mapped.load()) return memory;
  const std::lock_guard lock(mutex_);
  if (std::byte* const memory = mapped.load()) return memory;
  const std::size_t begin = parts_.begin + static_cast<std::size_t>(rank) * parts_.bytes;
  void* const memory = mmap(nullptr, parts_.bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE, file_, static_cast<off_t>(begin));
  LOCKSTEP_CHECK(memory != MAP_FAILED, OutOfMemory, "rank ", parts_.own,
                 " has no address space for ", parts_.bytes, " bytes of the memory of rank ", rank,
                 ": ", std::strerror(errno));
  madvise(memory, parts_.bytes, MADV_DONTDUMP);
  mapped.store(static_cast<std::byte*>(memory));
  return mapped.load();
}

// --- what is given out and taken back ------------------------------------------------------------

IntrusivePtr<Memory> Heap::allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > parts_.bytes) return nullptr;
  std::byte* memory = nullptr;
  try {
    memory = map(parts_.own);
  } catch (const OutOfMemory&) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  std::size_t begin = 0;
  if (closed_ || !take(whole_pages(bytes), begin)) return nullptr;
  given_[begin] = bytes;
  return make_intrusive<Piece>(shared_from_this(), begin, memory + begin, bytes);
}

// Of what is reserved the smallest that does, else the first that is not.
bool Heap::take(std::size_t bytes, std::size_t& begin) {
  auto best = free_.end(), fresh = free_.end();
  for (auto part = free_.begin(); part != free_.end(); ++part) {
    if (part->second.bytes < bytes) continue;
    auto& candidate = part->second.is_reserved ? best : fresh;
    if (candidate == free_.end() ||
        (part->second.is_reserved && part->second.bytes < candidate->second.bytes))
      candidate = part;
  }
  const auto part = best != free_.end() ? best : fresh;
  if (part == free_.end()) return false;
  begin = part->first;
  if (part->second.is_reserved)
    kept_bytes_ -= bytes;
  else if (reserve_in_file(
               file_, parts_.begin + static_cast<std::size_t>(parts_.own) * parts_.bytes + begin,
               bytes) != 0)
    return false;
  else
    keep_more(bytes);
  split_off(part, bytes);
  taken_bytes_ += bytes;
  most_taken_ = std::max(most_taken_, taken_bytes_);
  return true;
}

// New pages cost more than sums in them. Who gives back what is wanted again, as the buckets of
// each step, keeps it next time.
void Heap::keep_more(std::size_t bytes) {
  const std::size_t again = std::min(bytes, returned_bytes_);
  returned_bytes_ -= again;
  most_kept_ += again;
}

void Heap::split_off(FreeParts::iterator part, std::size_t bytes) {
  const auto [begin, whole] = *part;
  free_.erase(part);
  if (whole.bytes > bytes) free_[begin + bytes] = {whole.bytes - bytes, whole.is_reserved};
}

void Heap::give_back(std::size_t begin, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  given_.erase(begin);
  if (closed_) return;
  taken_bytes_ -= bytes;
  const bool is_kept =
      kept_bytes_ + bytes <= least_kept ||
      (kept_bytes_ + bytes <= most_kept_ && taken_bytes_ + kept_bytes_ + bytes <= most_taken_);
  const std::size_t place =
      parts_.begin + static_cast<std::size_t>(parts_.own) * parts_.bytes + begin;
  if (!is_kept && fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                            static_cast<off_t>(place), static_cast<off_t>(bytes)) != 0)
    return;
  (is_kept ? kept_bytes_ : returned_bytes_) += bytes;
  try {
    insert(begin, {bytes, is_kept});
  } catch (...) {
    // Out of memory for the note: nobody gets this part any more.
  }
}

// Neighbours of one kind become one.
void Heap::insert(std::size_t begin, Free part) {
  const auto next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == begin &&
        before->second.is_reserved == part.is_reserved) {
      begin = before->first;
      part.bytes += before->second.bytes;
      free_.erase(before);
    }
  }
  if (next != free_.end() && next->first == begin + part.bytes &&
      next->second.is_reserved == part.is_reserved) {
    part.bytes += next->second.bytes;
    free_.erase(next);
  }
  free_[begin] = part;
}

void Heap::close() noexcept {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

// --- what ranks tell each other ------------------------------------------------------------------

std::uint64_t Heap::place_of(const std::byte* data, std::size_t bytes, bool alone) const {
  if (bytes == 0) return 1;  // nobody will look there
  const std::byte* const first = mapped_[static_cast<std::size_t>(parts_.own)].load();
  if (!first || data < first || data >= first + parts_.bytes) return 0;
  const auto begin = static_cast<std::size_t>(data - first);
  const std::lock_guard lock(mutex_);
  const auto next = given_.upper_bound(begin);
  if (next == given_.begin()) return 0;
  const auto& [given, size] = *std::prev(next);
  if (begin + bytes > given + size) return 0;
  const bool is_alone = begin % page_bytes == 0 &&
                        ((begin + bytes) % page_bytes == 0 || begin + bytes == given + size);
  return alone && !is_alone ? 0 : begin + 1;
}

std::byte* Heap::at(int rank, std::uint64_t place) { return map(rank) + (place - 1); }

// One page range takes the place of the other at once, so that who reads there sees no gap.
void Heap::detach(std::byte* data, std::size_t bytes) noexcept {
  const std::size_t whole = whole_pages(bytes);
  void* const own =
      mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return;
  std::memcpy(own, data, bytes);
  if (mremap(own, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, data) == MAP_FAILED)
    munmap(own, whole);
}

}  // namespace lockstep::comm::shm
