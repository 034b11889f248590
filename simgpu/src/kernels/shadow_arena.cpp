#include "kernels/shadow_arena.hpp"

#include <new>

#include <sys/mman.h>

namespace simgpu {
namespace {

constexpr std::size_t most_words = std::size_t{1} << 35;
/// What is kept from launch to launch: half a gigabyte.
constexpr std::size_t kept_words = std::size_t{1} << 26;

}  // namespace

ShadowArena::ShadowArena() {
  void* const words = mmap(nullptr, most_words * sizeof(std::uint64_t), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (words == MAP_FAILED) throw std::bad_alloc();
  words_ = static_cast<std::uint64_t*>(words);
}

ShadowArena::~ShadowArena() { munmap(words_, most_words * sizeof(std::uint64_t)); }

std::uint64_t* ShadowArena::take(std::size_t count) {
  if (count > most_words - taken_) return nullptr;
  std::uint64_t* const words = words_ + taken_;
  constexpr std::size_t line = 64 / sizeof(std::uint64_t);
  taken_ += (count + line - 1) / line * line;
  if (taken_ > most_words) taken_ = most_words;
  return words;
}

void ShadowArena::release() {
  if (taken_ > kept_words) drop_from(kept_words);
  taken_ = 0;
}

void ShadowArena::clear() { drop_from(0); }

void ShadowArena::drop_from(std::size_t word) {
  madvise(words_ + word, (most_words - word) * sizeof(std::uint64_t), MADV_DONTNEED);
}

}  // namespace simgpu
