#include "checkpoint/stream_copy.hpp"

#include <algorithm>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "checkpoint/staging.hpp"

namespace lockstep::checkpoint {
namespace {

#if defined(__SSE2__)

constexpr std::size_t line_bytes = 64, pages_at_once = 4;
constexpr std::size_t ahead_bytes = 4 * line_bytes;  // is fetched while a line is copied

void stream_line(std::byte* to, const std::byte* from) noexcept {
  _mm_prefetch(reinterpret_cast<const char*>(from + ahead_bytes), _MM_HINT_T0);
  const auto* const source = reinterpret_cast<const __m128i*>(from);
  auto* const target = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1),
                c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, a);
  _mm_stream_si128(target + 1, b);
  _mm_stream_si128(target + 2, c);
  _mm_stream_si128(target + 3, d);
}

/// @return how many bytes were copied: a multiple of `pages_at_once` pages.
std::size_t stream_pages(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t at_once = pages_at_once * page_bytes;
  std::size_t at = 0;
  for (; at + at_once <= bytes; at += at_once)
    for (std::size_t line = at; line < at + page_bytes; line += line_bytes)
      for (std::size_t page = 0; page < at_once; page += page_bytes)
        stream_line(to + line + page, from + line + page);
  _mm_sfence();
  return at;
}

#endif

}  // namespace

void stream_copy(std::span<std::byte> to, const std::byte* from) noexcept {
  std::size_t copied = 0;
#if defined(__SSE2__)
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(to.data()) % line_bytes;
  copied = std::min((line_bytes - beyond) % line_bytes, to.size());
  std::copy_n(from, copied, to.data());
  copied += stream_pages(to.data() + copied, from + copied, to.size() - copied);
#endif
  std::copy_n(from + copied, to.size() - copied, to.data() + copied);
}

}  // namespace lockstep::checkpoint
