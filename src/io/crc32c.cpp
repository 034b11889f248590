#include "lockstep/io/crc32c.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "io/crc32c_paths.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::io {
namespace {

// Polynomials modulo P, Castagnoli's, over two elements, reflected: the highest bit is x^0.
constexpr std::uint32_t polynomial = 0x82F63B78, one = 0x80000000;

constexpr std::uint32_t times_x(std::uint32_t a) { return a >> 1 ^ (a & 1 ? polynomial : 0); }

constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (std::uint32_t bit = one; bit != 0; bit >>= 1, b = times_x(b))
    if (a & bit) sum ^= b;
  return sum;
}

// x^(2^k)
constexpr auto squares = [] {
  std::array<std::uint32_t, 67> all{};
  all[0] = times_x(one);
  for (std::size_t k = 1; k < all.size(); ++k) all[k] = product(all[k - 1], all[k - 1]);
  return all;
}();

// x^(n * 2^k)
constexpr std::uint32_t power(std::uint64_t n, std::size_t k = 0) {
  std::uint32_t result = one;
  for (; n != 0; n >>= 1, ++k)
    if (n & 1) result = product(result, squares[k]);
  return result;
}

// A checksum that is not inverted, behind which so many zeros follow: 2^3 bits a byte.
constexpr std::uint32_t moved_over(std::uint64_t zeros, std::uint32_t crc) {
  return product(power(zeros, 3), crc);
}

// table[k][b]: of byte b with k bytes of zeros behind it.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr Tables tables = [] {
  Tables all{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = times_x(crc);
    all[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      all[k][byte] = all[k - 1][byte] >> 8 ^ all[0][all[k - 1][byte] & 0xFF];
  return all;
}();

// Eight bytes at a time (Kounavis and Berry, "Novel table lookup-based algorithms for
// high-performance CRC generation", 2008).
std::uint32_t by_tables(const std::byte* bytes, std::size_t size, std::uint32_t crc) {
  for (; size >= 8; size -= 8, bytes += 8) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < 8; ++i) word |= std::to_integer<std::uint64_t>(bytes[i]) << 8 * i;
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= tables[7 - i][word >> 8 * i & 0xFF];
  }
  for (; size > 0; --size, ++bytes)
    crc = crc >> 8 ^ tables[0][(crc ^ std::to_integer<std::uint32_t>(*bytes)) & 0xFF];
  return crc;
}

#if defined(__x86_64__)

// The instruction takes a word each cycle, and three to be done: three lanes side by side keep it
// busy (Gopal and others, "Fast CRC computation for iSCSI polynomial using CRC32 instruction",
// Intel, 2011). A lane's checksum is then moved over the lane behind it by a product: as
// polynomials the instruction makes v to v * x^32, and the carry-less product of two reflected ones
// is x times theirs.
constexpr std::size_t lane_words = 512, lane = lane_words * 8;
constexpr std::uint32_t over_a_lane = power(8 * lane - 33);

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

__attribute__((target("sse4.2,pclmul"))) std::uint64_t moved_over_a_lane(std::uint64_t crc) {
  const __m128i factors =
      _mm_set_epi64x(static_cast<long long>(over_a_lane), static_cast<long long>(crc & 0xFFFFFFFF));
  const __m128i moved = _mm_clmulepi64_si128(factors, factors, 0x10);
  return _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(moved)));
}

__attribute__((target("sse4.2,pclmul"))) std::uint32_t by_instructions(const std::byte* bytes,
                                                                       std::size_t size,
                                                                       std::uint32_t before) {
  std::uint64_t crc = before;
  for (; size >= 3 * lane; size -= 3 * lane, bytes += 3 * lane) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < lane; i += 8) {
      crc = _mm_crc32_u64(crc, word_at(bytes + i));
      second = _mm_crc32_u64(second, word_at(bytes + lane + i));
      third = _mm_crc32_u64(third, word_at(bytes + 2 * lane + i));
    }
    crc = moved_over_a_lane(moved_over_a_lane(crc) ^ second) ^ third;
  }
  for (; size >= 8; size -= 8, bytes += 8) crc = _mm_crc32_u64(crc, word_at(bytes));
  auto rest = static_cast<std::uint32_t>(crc);
  for (; size > 0; --size, ++bytes)
    rest = _mm_crc32_u8(rest, std::to_integer<unsigned char>(*bytes));
  return rest;
}

// Folding (Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel, 2009): what 256 bytes contribute is moved over the next 256 and added to
// them, until the last ones have the checksum of all. Each lane of 128 bits is moved by a product
// for its first half, which has 64 zeros more behind it, and one for its second; as the product of
// two reflected polynomials is x times theirs, factors have a power less.
constexpr std::size_t registers = 4, register_bytes = 64, fold_bytes = registers * register_bytes;

constexpr long long factor_over(std::size_t bits) {
  return static_cast<long long>(std::uint64_t{power(bits - 1)} << 32);
}

__attribute__((target("avx512f,vpclmulqdq,sse4.2,pclmul"))) std::uint32_t by_folding(
    const std::byte* bytes, std::size_t size, std::uint32_t before) {
  if (size < 2 * fold_bytes) return by_instructions(bytes, size, before);
  constexpr long long lower = factor_over(8 * fold_bytes + 64), upper = factor_over(8 * fold_bytes);
  const __m512i factors = _mm512_set4_epi64(upper, lower, upper, lower);
  const __m512i first = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(before)));
  __m512i sums[registers];
#pragma GCC unroll 4
  for (std::size_t k = 0; k < registers; ++k)
    sums[k] = _mm512_loadu_si512(bytes + k * register_bytes);
  sums[0] = _mm512_xor_si512(sums[0], first);
  for (bytes += fold_bytes, size -= fold_bytes; size >= fold_bytes;
       bytes += fold_bytes, size -= fold_bytes)
#pragma GCC unroll 4
    for (std::size_t k = 0; k < registers; ++k)
      sums[k] = _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sums[k], factors, 0x00),
                                          _mm512_clmulepi64_epi128(sums[k], factors, 0x11),
                                          _mm512_loadu_si512(bytes + k * register_bytes),
                                          0x96);  // the sum of all three
  std::array<std::byte, fold_bytes> left;
#pragma GCC unroll 4
  for (std::size_t k = 0; k < registers; ++k)
    _mm512_storeu_si512(left.data() + k * register_bytes, sums[k]);
  return by_instructions(bytes, size, by_instructions(left.data(), left.size(), 0));
}

bool has_instructions() {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

bool can_fold() {
  return has_instructions() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("vpclmulqdq");
}

#endif

}  // namespace

std::vector<Crc32cPath> crc32c_paths() {
  std::vector<Crc32cPath> paths;
#if defined(__x86_64__)
  if (can_fold()) paths.push_back({"folding", by_folding});
  if (has_instructions()) paths.push_back({"instructions", by_instructions});
#endif
  paths.push_back({"tables", by_tables});
  return paths;
}

namespace {

// Of a checksum that is not inverted.
std::uint32_t updated(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
  static const auto update = crc32c_paths().front().update;
  return update(bytes.data(), bytes.size(), crc);
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  return ~updated(bytes, ~before);
}

std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second,
                             std::uint64_t size) noexcept {
  return moved_over(size, first) ^ second;
}

std::uint32_t crc32c_contribution(std::span<const std::byte> bytes, std::uint64_t behind) noexcept {
  return moved_over(behind, updated(bytes, 0));
}

std::uint32_t crc32c_of_zeros(std::uint64_t size) noexcept { return ~moved_over(size, ~0u); }

std::optional<FlippedBit> find_flipped_bit(std::uint32_t expected, std::uint32_t found,
                                           std::uint64_t size) noexcept {
  // A bit with n bits behind it, the lowest of a byte being its first, contributes x^(n + 32).
  std::uint32_t contribution = power(32);
  for (std::uint64_t behind = 0; behind < 8 * size; ++behind, contribution = times_x(contribution))
    if (contribution == (expected ^ found))
      return FlippedBit{.byte = size - 1 - behind / 8, .bit = static_cast<int>(7 - behind % 8)};
  return std::nullopt;
}

}  // namespace lockstep::io
