#include "memory/reservation.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "memory/layout.hpp"
#include "memory/patterns.hpp"
#include "memory/protection.hpp"

namespace simgpu {
namespace {

/// How much of the pattern file a mapping takes: a small chunk, of which processes that have little
/// memory write less, and a large one once they have mapped much, as a process has some 65,000
/// mappings at most.
constexpr std::size_t chunk = std::size_t{4} << 20, small_chunk = std::size_t{256} << 10;
constexpr std::size_t mapped_by_small_chunks = std::size_t{1} << 30;

/// The chunks of the pattern file.
constexpr std::size_t fresh_chunk = 0, freed_chunk = chunk, set_chunk = 2 * chunk;
constexpr std::uint64_t all_set = ~std::uint64_t{0};

bool reserve(std::uintptr_t begin, std::size_t bytes, int protection) {
  void* const wanted = reinterpret_cast<void*>(begin);
  void* const got = mmap(wanted, bytes, protection,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == wanted) {
    madvise(got, bytes, MADV_DONTDUMP);
    return true;
  }
  const int reason = got == MAP_FAILED ? errno : EEXIST;
  if (got != MAP_FAILED) munmap(got, bytes);
  std::fprintf(stderr, "simulated GPU: cannot reserve %zu GiB of addresses at %p: %s\n",
               bytes >> 30, wanted, std::strerror(reason));
  return false;
}

/// A file in memory with a chunk each of fresh bytes, freed bytes and set bits, of which the first
/// `bytes` are there. Private mappings of it share these pages until they are written.
class PatternFile {
 public:
  int get() const { return file_; }
  /// Has that much of each chunk. Any thread.
  bool fill_to(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (file_ < 0) return false;
    if (bytes <= filled_) return true;
    std::vector<std::byte> content(small_chunk);
    for (const auto& [offset, pattern] : {std::pair(fresh_chunk, Pattern::fresh),
                                          {freed_chunk, Pattern::freed},
                                          {set_chunk, all_set}}) {
      // A vector's memory is aligned to eight bytes, as the file's pages will be.
      fill_pattern(content.data(), content.size(), pattern);
      for (std::size_t at = filled_; at < bytes; at += small_chunk)
        if (pwrite(file_, content.data(), small_chunk, static_cast<off_t>(offset + at)) !=
            static_cast<ssize_t>(small_chunk))
          return false;
    }
    filled_ = bytes;
    return true;
  }

 private:
  const int file_ = memfd_create("simgpu patterns", MFD_CLOEXEC);
  std::mutex mutex_;
  std::size_t filled_ = 0;
};

PatternFile& pattern_file() {
  static auto* const file = new PatternFile;  // memory is freed until the very end
  return *file;
}

bool map_pattern(void* pages, std::size_t bytes, std::size_t offset) {
  static std::atomic<std::size_t> mapped{0};
  const std::size_t each = (mapped += bytes) > mapped_by_small_chunks ? chunk : small_chunk;
  if (!pattern_file().fill_to(each)) return false;
  for (std::size_t at = 0; at < bytes; at += each) {
    void* const here = static_cast<std::byte*>(pages) + at;
    if (mmap(here, std::min(each, bytes - at), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
             pattern_file().get(), static_cast<off_t>(offset)) == MAP_FAILED)
      return false;
  }
  return true;
}

}  // namespace

bool reserve_address_space() {
  static const bool reserved =
      reserve(Layout::begin, Layout::bytes, PROT_NONE) &&
      reserve(Layout::initialized_bits, Layout::bits_bytes, PROT_READ | PROT_WRITE) &&
      reserve(Layout::live_bits, Layout::bits_bytes, PROT_READ | PROT_WRITE) &&
      pattern_file().get() >= 0;
  return reserved;
}

bool commit_pages(void* pages, std::size_t bytes) {
  if (map_pattern(pages, bytes, fresh_chunk)) return true;
  decommit_pages(pages, bytes);
  return false;
}

void poison_pages(void* pages, std::size_t bytes) {
  if (!map_pattern(pages, bytes, freed_chunk)) decommit_pages(pages, bytes);
}

void decommit_pages(void* pages, std::size_t bytes) {
  forget_owner(pages, bytes);
  mmap(pages, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void map_bit_pages(void* pages, std::size_t bytes, bool value) {
  if (value && map_pattern(pages, bytes, set_chunk)) return;
  mmap(pages, bytes, PROT_READ | PROT_WRITE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (value) std::memset(pages, 0xFF, bytes);
}

}  // namespace simgpu
