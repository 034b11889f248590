#include "checkpoint/staging.hpp"

#include <cstdlib>

#include <sys/mman.h>

#include "lockstep/core/error.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;

}  // namespace

void Staging::Free::operator()(std::byte* memory) const noexcept { std::free(memory); }

void Staging::reserve(std::uint64_t bytes, std::size_t runs) {
  used_ = 0;
  const std::uint64_t needed = bytes + 2 * runs * page_bytes;  // two pages to fit a run's place
  if (needed <= size_) return;
  const std::uint64_t size = (needed + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
  memory_.reset();
  size_ = 0;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(huge_page_bytes, size)));
  LOCKSTEP_CHECK(memory_, OutOfMemory, "no ", size,
                 " bytes for a copy of this rank's part of a checkpoint");
  size_ = size;
  ::madvise(memory_.get(), size, MADV_HUGEPAGE);  // or the first copy takes a fault for each page
}

void Staging::touch(const std::atomic<bool>& stops) noexcept {
  volatile std::byte* const memory = memory_.get();
  for (std::uint64_t at = 0; at < size_ && !stops; at += page_bytes) memory[at] = std::byte{};
}

std::span<std::byte> Staging::take(std::uint64_t bytes, std::uint64_t offset) {
  const std::uint64_t begin =
      (used_ + page_bytes - 1) / page_bytes * page_bytes + offset % page_bytes;
  LOCKSTEP_CHECK(begin + bytes <= size_, Error, "more was taken than was reserved");
  used_ = begin + bytes;
  return {memory_.get() + begin, bytes};
}

}  // namespace lockstep::checkpoint
