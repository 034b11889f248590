#include <bit>
#include <type_traits>

#include "arguments/order.hpp"
#include "cuda/launch.hpp"
#include "cuda/lines.hpp"
#include "cuda/radix_sort.hpp"
#include "cuda/vector.hpp"

namespace lockstep::cuda_kernels {
namespace {

constexpr int threads = 256;

/// The unsigned integer that sorts as a dtype's values do.
template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
template <class T>
inline constexpr int key_bits = sizeof(T) == 1 ? 8 : 8 * static_cast<int>(sizeof(KeyOf<T>));

/// Both zeros have one key, all NaNs the largest.
template <class T>
__device__ KeyOf<T> key_of(T element) {
  using Key = KeyOf<T>;
  constexpr Key sign = Key{1} << (8 * sizeof(Key) - 1);
  if constexpr (is_floating_type<T>) {
    const auto value = convert<AccumulateType<T>>(element);
    if (value != value) return static_cast<Key>(-1);
    const Key bits = value == 0 ? Key{0} : std::bit_cast<Key>(value);
    return bits & sign ? ~bits : bits | sign;
  } else if constexpr (sizeof(T) == 1) {
    return static_cast<Key>(element);
  } else {
    return static_cast<Key>(element) ^ sign;
  }
}

template <class T>
__global__ void __launch_bounds__(threads)
    line_key_kernel(const __grid_constant__ Lines<2> lines, Keyed<KeyOf<T>>* keys, const T* in,
                    bool descending) {
  const std::int64_t length = lines.length[1], count = length * lines.starts.count;
  for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i / length));
    const KeyOf<T> key = key_of(in[at.of[1] + i % length * lines.stride[1]]);
    keys[i] = {descending ? ~key : key, static_cast<std::uint32_t>(i)};
  }
}

/// Entries are in the order of their lines, which are of one length.
template <class Key>
__global__ void __launch_bounds__(threads)
    place_kernel(const __grid_constant__ Lines<2> lines, std::int64_t* out,
                 const Keyed<Key>* sorted) {
  const std::int64_t length = lines.length[0], count = length * lines.starts.count;
  for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i / length));
    out[at.of[0] + i % length * lines.stride[0]] = sorted[i].position % length;
  }
}

/// Digits of the line that an entry stands in.
struct LineDigit {
  std::uint32_t length;
  template <class Entry>
  __device__ int operator()(const Entry& entry, int shift) const {
    return static_cast<int>(entry.position / length >> shift) & (digits - 1);
  }
};

template <class T>
__device__ bool rises(T a, T b) {
  return a < b || (b != b && a == a);
}

template <class T>
__global__ void __launch_bounds__(threads)
    search_kernel(const __grid_constant__ Lines<3> lines, std::int64_t* out, const T* sorted,
                  const T* values, bool right) {
  using A = AccumulateType<T>;
  const std::int64_t length = lines.length[0], count = length * lines.starts.count;
  for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i / length));
    const std::int64_t place = i % length;
    const A value = convert<A>(values[at.of[2] + place * lines.stride[2]]);
    std::int64_t first = 0, left = lines.length[1];
    while (left > 0) {
      const std::int64_t half = left / 2;
      const A middle = convert<A>(sorted[at.of[1] + (first + half) * lines.stride[1]]);
      const bool before = right ? !rises(value, middle) : rises(middle, value);
      first = before ? first + half + 1 : first;
      left = before ? left - half - 1 : half;
    }
    out[at.of[0] + place * lines.stride[0]] = first;
  }
}

}  // namespace

void order::argsort(const kernels::ArgsortArguments& arguments, StreamRef stream) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  const std::int64_t n = in.numel();
  if (n == 0) return;
  LOCKSTEP_CHECK(n < INT32_MAX, Unsupported, "argsort: ", n,
                 " elements on device cuda; they must be below 2^31");
  const auto lines = lines_along<2>(arguments.dim, {&out, &in});
  const auto length = static_cast<std::uint32_t>(in.shape[arguments.dim]);
  dispatch_all(in.dtype, "argsort", [&]<class T>(TypeTag<T>) {
    using Entry = Keyed<KeyOf<T>>;
    RadixSort<Entry> sort(stream, n);
    launch(stream, grid_for(n, threads), threads, 0, line_key_kernel<T>, lines, sort.entries(),
           in.as<T>(), arguments.descending);
    // The line last: the sort is stable, so each keeps the order of its keys.
    sort.by(KeyDigit{}, key_bits<T>);
    sort.by(LineDigit{length}, std::bit_width(lines.starts.count - 1));
    launch(stream, grid_for(n, threads), threads, 0, place_kernel<KeyOf<T>>, lines,
           out.as<std::int64_t>(), sort.entries());
  });
}

void order::search(const kernels::SearchArguments& arguments, StreamRef stream) {
  const ArrayView &out = arguments.out, &sorted = arguments.sorted, &values = arguments.values;
  if (out.numel() == 0) return;
  const auto lines = lines_along<3>(out.rank() - 1, {&out, &sorted, &values});
  dispatch_numeric(values.dtype, "searchsorted", [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(out.numel(), threads), threads, 0, search_kernel<T>, lines,
           out.as<std::int64_t>(), sorted.as<T>(), values.as<T>(), arguments.right);
  });
}

}  // namespace lockstep::cuda_kernels
