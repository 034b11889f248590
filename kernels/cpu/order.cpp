#include "arguments/order.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/line_sort.hpp"
#include "cpu/lines.hpp"
#include "lockstep/core/parallel.hpp"

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

/// Bytes below which a line of them is not worth counting, and those that a thread counts at once.
constexpr std::int64_t bytes_to_count = 64, bytes_of_part = 1 << 16;

/// A line of bytes, of which each stands for a number that is turned by exclusive or.
template <bool truth>
struct ByteLine {
  const std::uint8_t* data;
  std::int64_t step;
  std::uint8_t turned;

  static constexpr std::size_t numbers = truth ? 2 : 256;
  std::size_t operator[](std::int64_t i) const {
    const auto number = static_cast<std::uint8_t>(data[i * step] ^ turned);
    return truth ? number & 1U : number;
  }
};

/// The positions of bytes by their number, by one thread.
template <bool truth>
void count_few_bytes(const ByteLine<truth>& line, std::int64_t n, std::int64_t* out,
                     std::int64_t stride) {
  std::array<std::int64_t, ByteLine<truth>::numbers + 1> place{};
  for (std::int64_t i = 0; i < n; ++i) ++place[line[i] + 1];
  for (std::size_t b = 1; b < place.size(); ++b) place[b] += place[b - 1];
  for (std::int64_t i = 0; i < n; ++i) out[place[line[i]]++ * stride] = i;
}

/// The same by all threads, where the line is long: its parts are counted, and then each knows
/// where its own positions go.
template <bool truth>
void count_bytes(const ByteLine<truth>& line, std::int64_t n, std::int64_t* out,
                 std::int64_t stride) {
  using Places = std::array<std::int64_t, ByteLine<truth>::numbers>;
  if (n <= bytes_of_part) return count_few_bytes(line, n, out, stride);
  const std::int64_t parts = (n + bytes_of_part - 1) / bytes_of_part;
  std::vector<Places> places(static_cast<std::size_t>(parts));
  const auto for_each_part = [&](const auto& visit) {
    parallel_for(parts, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part)
        visit(places[static_cast<std::size_t>(part)], part * bytes_of_part,
              std::min(n, (part + 1) * bytes_of_part));
    });
  };
  for_each_part([&](Places& counts, std::int64_t begin, std::int64_t end) {
    if constexpr (truth) {
      std::int64_t ones = 0;
      for (std::int64_t i = begin; i < end; ++i) ones += static_cast<std::int64_t>(line[i]);
      counts = {end - begin - ones, ones};
    } else {
      for (std::int64_t i = begin; i < end; ++i) ++counts[line[i]];
    }
  });
  std::int64_t place = 0;
  for (std::size_t number = 0; number < ByteLine<truth>::numbers; ++number)
    for (Places& counts : places) place += std::exchange(counts[number], place);
  for_each_part([&](Places& shared, std::int64_t begin, std::int64_t end) {
    Places at = shared;  // those of two numbers stay in registers
    for (std::int64_t i = begin; i < end; ++i) {
      const std::size_t number = line[i];
      if constexpr (truth) {
        out[(number ? at[1] : at[0]) * stride] = i;
        at[0] += number ? 0 : 1;
        at[1] += number ? 1 : 0;
      } else {
        out[at[number]++ * stride] = i;
      }
    }
  });
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
      if (sizeof(T) == 1 && length >= bytes_to_count) {
        const ByteLine<std::is_same_v<T, bool>> bytes{reinterpret_cast<const std::uint8_t*>(line),
                                                      step, static_cast<std::uint8_t>(turned)};
        return count_bytes(bytes, length, to, out.strides[dim]);
      }
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
