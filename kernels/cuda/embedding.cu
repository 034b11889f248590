#include <algorithm>
#include <bit>

#include "arguments/elementwise.hpp"
#include "arguments/embedding.hpp"
#include "cuda/radix_sort.hpp"
#include "cuda/row_access.hpp"

namespace lockstep::cuda_kernels {
namespace {

using KeyAt = Keyed<std::uint32_t>;

template <class T>
inline constexpr float missing_row = __builtin_nanf("");

template <class Group, class T>
__global__ void __launch_bounds__(row_threads)
    embedding_kernel(std::int64_t rows, std::int64_t columns, T* out, const T* table,
                     const std::int64_t* index, std::int64_t entries, bool wide) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T>;
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const std::int64_t entry = index[row];
    const bool valid = entry >= 0 && entry < entries;
    for_each_vector<N>(group, columns, [&](std::int64_t at) {
      Pack<A, N> value;
      if (valid)
        value = load_row<N>(table + entry * columns, at, columns, wide);
      else
        for (int j = 0; j < N; ++j) value[j] = A(missing_row<T>);
      store_row<N>(out + row * columns, at, columns, wide, value);
    });
  }
}

/// Keys for the sort: entries of the table, and `entries` itself for what adds nothing.
__global__ void key_kernel(KeyAt* keys, const std::int64_t* index, std::int64_t n,
                           std::int64_t entries, std::int64_t padding_index) {
  for (std::int64_t i = global_thread(); i < n; i += grid_threads()) {
    const std::int64_t entry = index[i];
    const bool counts = entry >= 0 && entry < entries && entry != padding_index;
    keys[i] = {static_cast<std::uint32_t>(counts ? entry : entries), static_cast<std::uint32_t>(i)};
  }
}

constexpr std::int64_t max_grid_y = 65'535;

/// Each run of equal keys belongs to the warp of its first one, which adds its rows in order: each
/// lane one column, and every gridDim.y-th group of columns from there.
template <class T>
__global__ void __launch_bounds__(row_threads)
    add_runs_kernel(std::int64_t n, std::int64_t columns, T* dtable, const T* dy,
                    const KeyAt* sorted, std::uint32_t entries) {
  using A = AccumulateType<T>;
  const WarpGroup group;
  const std::int64_t first_column = std::int64_t{blockIdx.y} * warp_size + group.rank();
  const std::int64_t column_step = std::int64_t{gridDim.y} * warp_size;
  for (std::int64_t i = first_row<WarpGroup>(); i < n; i += row_step<WarpGroup>()) {
    const std::uint32_t key = sorted[i].key;
    if (key == entries || (i > 0 && sorted[i - 1].key == key)) continue;
    for (std::int64_t column = first_column; column < columns; column += column_step) {
      T* const to = dtable + static_cast<std::int64_t>(key) * columns + column;
      A sum = convert<A>(*to);
      for (std::int64_t j = i; j < n && sorted[j].key == key; ++j)
        sum += convert<A>(dy[static_cast<std::int64_t>(sorted[j].position) * columns + column]);
      *to = convert<T>(sum);
    }
  }
}

}  // namespace

void embedding::forward(const kernels::EmbeddingArguments& arguments, StreamRef stream) {
  const ArrayView &out = arguments.out, &table = arguments.table, &index = arguments.index;
  const std::int64_t columns = table.shape[1];
  dispatch_floating(out.dtype, "embedding", [&]<class T>(TypeTag<T>) {
    launch_rows(stream, index.numel(), columns, embedding_kernel<WarpGroup, T>,
                embedding_kernel<BlockGroup, T>, out.as<T>(), table.as<T>(),
                index.as<std::int64_t>(), table.shape[0],
                rows_are_wide<T>(columns, out.data, table.data));
  });
}

void embedding::backward(const kernels::EmbeddingBackwardArguments& arguments, StreamRef stream) {
  const ArrayView &dtable = arguments.dtable, &dy = arguments.dy, &index = arguments.index;
  const std::int64_t n = index.numel();
  const std::int64_t entries = dtable.shape[0];
  const std::int64_t columns = dtable.shape[1];
  if (!arguments.accumulate) elementwise::fill({.out = dtable, .value = 0.0}, stream);
  if (n == 0 || columns == 0) return;
  LOCKSTEP_CHECK(n < INT32_MAX && entries < INT32_MAX, Unsupported, "embedding_backward: ", n,
                 " indices into ", entries, " entries; both must be below 2^31 on device cuda");
  RadixSort<KeyAt> sort(stream, n);
  launch(stream, grid_for(n, row_threads), row_threads, 0, key_kernel, sort.entries(),
         index.as<std::int64_t>(), n, entries, arguments.padding_index);
  sort.by(KeyDigit{}, std::bit_width(static_cast<std::uint32_t>(entries)));
  const KeyAt* const sorted = sort.entries();
  const dim3 grid(
      grid_for(n * warp_size, row_threads),
      static_cast<unsigned>(std::min(max_grid_y, (columns + warp_size - 1) / warp_size)));
  dispatch_floating(dy.dtype, "embedding_backward", [&]<class T>(TypeTag<T>) {
    launch(stream, grid, row_threads, 0, add_runs_kernel<T>, n, columns, dtable.as<T>(), dy.as<T>(),
           sorted, static_cast<std::uint32_t>(entries));
  });
}

}  // namespace lockstep::cuda_kernels
