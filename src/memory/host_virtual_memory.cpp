#include <cstdint>

#include <sys/mman.h>

#include "memory/paged_upstream.hpp"

namespace lockstep {
namespace {

constexpr int unbacked = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

void* HostVirtualMemory::reserve(std::size_t bytes) noexcept {
  // One page more, to begin at a page's address.
  void* const got = mmap(nullptr, bytes + page, PROT_NONE, unbacked, -1, 0);
  if (got == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(got);
  const std::size_t skipped = (page - reinterpret_cast<std::uintptr_t>(got) % page) % page;
  if (skipped > 0) munmap(begin, skipped);
  if (skipped < page) munmap(begin + skipped + bytes, page - skipped);
  return begin + skipped;
}

bool HostVirtualMemory::map(void* at, std::size_t bytes) noexcept {
  if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) return false;
  madvise(at, bytes, MADV_HUGEPAGE);  // a system without them refuses, which does no harm
  return true;
}

void HostVirtualMemory::unmap(void* at, std::size_t bytes) noexcept {
  mmap(at, bytes, PROT_NONE, unbacked | MAP_FIXED, -1, 0);
}

void HostVirtualMemory::release(void* at, std::size_t bytes) noexcept { munmap(at, bytes); }

}  // namespace lockstep
