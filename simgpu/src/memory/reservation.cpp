#include "memory/reservation.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "memory/layout.hpp"
#include "memory/patterns.hpp"
#include "memory/protection.hpp"

namespace simgpu {
namespace {

constexpr std::size_t chunk = std::size_t{4} << 20;

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

/// A file in memory with a chunk each of fresh bytes, freed bytes and set bits. Private mappings of
/// it share these pages until they are written.
int make_pattern_file() {
  const int file = memfd_create("simgpu patterns", MFD_CLOEXEC);
  if (file < 0) return -1;
  std::vector<std::byte> content(chunk);
  for (const std::uint64_t pattern : {Pattern::fresh, Pattern::freed, all_set}) {
    // A vector's memory is aligned to eight bytes, as the file's pages will be.
    fill_pattern(content.data(), chunk, pattern);
    if (write(file, content.data(), chunk) != static_cast<ssize_t>(chunk)) return -1;
  }
  return file;
}

int pattern_file() {
  static const int file = make_pattern_file();
  return file;
}

bool map_pattern(void* pages, std::size_t bytes, std::size_t offset) {
  for (std::size_t at = 0; at < bytes; at += chunk) {
    void* const here = static_cast<std::byte*>(pages) + at;
    if (mmap(here, std::min(chunk, bytes - at), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
             pattern_file(), static_cast<off_t>(offset)) == MAP_FAILED)
      return false;
  }
  return true;
}

}  // namespace

bool reserve_address_space() {
  static const bool reserved =
      reserve(Layout::begin, Layout::bytes, PROT_NONE) &&
      reserve(Layout::initialized_bits, Layout::bits_bytes, PROT_READ | PROT_WRITE) &&
      reserve(Layout::live_bits, Layout::bits_bytes, PROT_READ | PROT_WRITE) && pattern_file() >= 0;
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
