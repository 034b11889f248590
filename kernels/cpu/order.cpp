#include "arguments/order.hpp"

#include <array>
#include <bit>
#include <type_traits>

#include "cpu/line_sort.hpp"
#include "cpu/lines.hpp"

namespace lockstep::cpu_kernels {
namespace {

/// The unsigned number that sorts as a value does: both zeros have one, all NaNs the largest.
template <class T>
std::uint64_t key_of(T element) {
  if constexpr (std::is_integral_v<T>) {
    constexpr auto sign = std::is_signed_v<T> ? std::uint64_t{1} << 63 : 0;
    return static_cast<std::uint64_t>(element) ^ sign;
  } else {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
    const auto value = widen(element);
    const Bits bits = std::bit_cast<Bits>(value == 0 ? decltype(value){0} : value);
    if (value != value) return static_cast<Bits>(-1);
    return bits & sign ? static_cast<Bits>(~bits) : bits | sign;
  }
}

/// Bytes below which a line of them is not worth counting.
constexpr std::int64_t bytes_to_count = 64;

/// The positions of bytes by their number, which is turned by exclusive or.
void count_bytes(const std::uint8_t* line, std::int64_t step, std::int64_t n, std::uint8_t turned,
                 std::int64_t* out, std::int64_t stride) {
  std::array<std::int64_t, 257> place{};
  for (std::int64_t i = 0; i < n; ++i) ++place[(line[i * step] ^ turned) + 1U];
  for (std::size_t b = 1; b < 256; ++b) place[b] += place[b - 1];
  for (std::int64_t i = 0; i < n; ++i) out[place[line[i * step] ^ turned]++ * stride] = i;
}

/// A line that rises; NaN counts as the largest.
template <class T>
struct RisingLine {
  const T* data;
  std::int64_t stride, length;

  /// How many elements stand before the first for which `before` does not hold.
  template <class Before>
  std::int64_t count(const Before& before) const {
    std::int64_t first = 0;
    // Without branches: which half comes next, nobody can foretell.
    for (std::int64_t left = length; left > 0;) {
      const std::int64_t half = (left + 1) / 2;
      first += before(widen(data[(first + half - 1) * stride])) ? half : 0;
      left -= half;
    }
    return first;
  }
  /// How many stand before a value; equal ones do if `right`.
  std::int64_t places_before(T of, bool right) const {
    const auto value = widen(of);
    if (value != value) return right ? length : count([](auto at) { return at == at; });
    return right ? count([=](auto at) { return at <= value; })
                 : count([=](auto at) { return at < value; });
  }
};

}  // namespace

void order::argsort(const kernels::ArgsortArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  const int dim = arguments.dim;
  const std::int64_t length = in.shape[dim], step = in.strides[dim];
  const std::uint64_t turned = arguments.descending ? ~std::uint64_t{0} : 0;
  dispatch_all(in.dtype, "argsort", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(in.shape, dim, {&out.strides, &in.strides}, [&](const auto& offset) {
      thread_local LineSort sort;
      const T* const line = in.as<const T>() + offset[1];
      std::int64_t* const to = out.as<std::int64_t>() + offset[0];
      if (sizeof(T) == 1 && length >= bytes_to_count)
        return count_bytes(reinterpret_cast<const std::uint8_t*>(line), step, length,
                           static_cast<std::uint8_t>(turned), to, out.strides[dim]);
      std::uint64_t* const keys = sort.keys(length);
      for (std::int64_t i = 0; i < length; ++i) keys[i] = key_of(line[i * step]) ^ turned;
      sort.write_order(to, out.strides[dim]);
    });
  });
}

void order::search(const kernels::SearchArguments& arguments, StreamRef) {
  const ArrayView &out = arguments.out, &sorted = arguments.sorted, &values = arguments.values;
  const int dim = out.rank() - 1;
  dispatch_numeric(values.dtype, "searchsorted", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_line(values.shape, dim, {&out.strides, &sorted.strides, &values.strides},
                  [&](const auto& offset) {
                    const RisingLine<T> line{sorted.as<const T>() + offset[1], sorted.strides[dim],
                                             sorted.shape[dim]};
                    for (std::int64_t i = 0; i < values.shape[dim]; ++i)
                      out.as<std::int64_t>()[offset[0] + i * out.strides[dim]] = line.places_before(
                          values.as<const T>()[offset[2] + i * values.strides[dim]],
                          arguments.right);
                  });
  });
}

}  // namespace lockstep::cpu_kernels
