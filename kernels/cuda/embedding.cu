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
                     const std::int64_t* index, std::int64_t entries, const T* addend,
                     std::int64_t addend_rows, bool wide) {
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
      if (addend) {
        const auto term = load_row<N>(addend + row % addend_rows * columns, at, columns, wide);
        for (int j = 0; j < N; ++j) value[j] += term[j];
      }
      store_row<N>(out + row * columns, at, columns, wide, value);
    });
  }
}

/// Keys for the sort: entries of the table, and `entries` itself for what adds nothing.
struct TableKeys {
  const std::int64_t* index;
  std::int64_t entries, padding_index;

  __device__ KeyAt operator()(std::int64_t i) const {
    const std::int64_t entry = index[i];
    const bool counts = entry >= 0 && entry < entries && entry != padding_index;
    return {static_cast<std::uint32_t>(counts ? entry : entries), static_cast<std::uint32_t>(i)};
  }
};

constexpr std::int64_t max_grid_y = 65'535;
/// Most pairs of an entry and an index for which no sort pays.
constexpr std::int64_t most_pairs = std::int64_t{1} << 22;
/// Sorted indices of a warp: longer runs of one entry are cut, for that of a frequent token is
/// long.
constexpr std::int64_t chunk = 32;

/// The gradient of the table's rows, and the rows that are added to it.
template <class T>
struct RowSums {
  T* dtable;
  const T* dy;
  std::int64_t columns;
  bool wide;

  static constexpr int lanes = lanes_of<T>;
  using Sum = Pack<AccumulateType<T>, lanes>;

  /// Calls `visit(column)` for the lane's share of the columns, lanes of them a call; each
  /// gridDim.y takes others. All lanes of a warp get as many calls, some of them beyond the last
  /// column.
  template <class Visit>
  __device__ void for_each_column(const Visit& visit) const {
    const std::int64_t own = std::int64_t{threadIdx.x % warp_size} * lanes;
    const std::int64_t width = std::int64_t{warp_size} * lanes;
    for (std::int64_t first = blockIdx.y * width; first < columns; first += gridDim.y * width)
      visit(first + own);
  }
  __device__ void add_row(Sum& sum, std::int64_t row, std::int64_t column) const {
    if (column >= columns) return;
    const Sum value = load_row<lanes>(dy + row * columns, column, columns, wide);
    for (int j = 0; j < lanes; ++j) sum[j] += value[j];
  }
  /// The lane's elements of a row of `dy` or `dtable`, for later; 0 beyond the last column.
  __device__ Words<T, lanes> fetch(const T* array, std::int64_t row, std::int64_t column) const {
    const T* const from = array + row * columns + column;
    if (wide && column < columns) return load_words<lanes>(from);
    Vector<T, lanes> values{};
    for (int j = 0; j < lanes; ++j)
      if (column + j < columns) values.lane[j] = from[j];
    return std::bit_cast<Words<T, lanes>>(values);
  }
  __device__ Sum held(std::int64_t entry, std::int64_t column) const {
    return column < columns ? load_row<lanes>(dtable + entry * columns, column, columns, wide)
                            : Sum{};
  }
  __device__ void store(std::int64_t entry, std::int64_t column, const Sum& sum) const {
    if (column < columns) store_row<lanes>(dtable + entry * columns, column, columns, wide, sum);
  }
  __device__ void add(std::int64_t entry, std::int64_t column, const Sum& sum) const {
    add_to(held(entry, column), entry, column, sum);
  }
  __device__ void add_to(Sum total, std::int64_t entry, std::int64_t column, const Sum& sum) const {
    for (int j = 0; j < lanes; ++j) total[j] += sum[j];
    store(entry, column, total);
  }
  /// Blocks for a number of warps, each of which goes over a row.
  dim3 grid(std::int64_t warps) const {
    const std::int64_t width = std::int64_t{warp_size} * lanes;
    return {grid_for(warps * warp_size, row_threads),
            static_cast<unsigned>(std::min(max_grid_y, (columns + width - 1) / width))};
  }
};

/// Each warp looks for the rows of one entry of the table, and adds them in order.
template <class T>
__global__ void __launch_bounds__(row_threads)
    add_matches_kernel(std::int64_t entries, RowSums<T> rows, const std::int64_t* index,
                       std::int64_t n, std::int64_t padding_index, bool accumulate) {
  for (std::int64_t entry = first_row<WarpGroup>(); entry < entries; entry += row_step<WarpGroup>())
    rows.for_each_column([&](std::int64_t column) {
      typename RowSums<T>::Sum sum{};
      bool is_held = !accumulate;
      for (std::int64_t first = 0; first < n; first += warp_size) {
        const std::int64_t own = first + threadIdx.x % warp_size;
        const bool matches = own < n && index[own] == entry && entry != padding_index;
        unsigned found = __ballot_sync(0xFFFFFFFFu, matches);
        if (found && !is_held) sum = rows.held(entry, column), is_held = true;
        for (; found; found &= found - 1)
          rows.add_row(sum, first + __ffs(static_cast<int>(found)) - 1, column);
      }
      if (is_held) rows.store(entry, column, sum);
    });
}

/// Runs of equal keys in a sorted list, as chunks cut them.
struct SortedKeys {
  const KeyAt* sorted;
  std::int64_t n;
  std::uint32_t entries;  ///< the key of what adds nothing

  __device__ bool begins_run(std::int64_t i) const {
    return i == 0 || sorted[i - 1].key != sorted[i].key;
  }
  __device__ bool ends_run(std::int64_t i) const {
    return i + 1 == n || sorted[i + 1].key != sorted[i].key;
  }
  __device__ std::int64_t end_of_chunk(std::int64_t first) const {
    return first + chunk < n ? first + chunk : n;
  }
};

/// Sums of the pieces of runs that chunks cut: of each chunk the one that began before it, and the
/// one that goes on after it; a piece that does both is the former.
template <class T>
struct Pieces {
  AccumulateType<T>* sums;
  std::int64_t columns;

  __device__ AccumulateType<T>* at(std::int64_t number, bool begins) const {
    return sums + (2 * number + begins) * columns;
  }
};

/// Rows that a warp waits for at a time, and as many of the table.
constexpr int rows_at_once = 4;

/// Each warp adds the rows of a chunk in order, and those of whole runs to the table. Its lanes
/// know the chunk's entries, one each: where its rows lie is known before they are needed.
template <class T>
__global__ void __launch_bounds__(row_threads)
    add_chunks_kernel(std::int64_t chunks, RowSums<T> rows, SortedKeys keys, Pieces<T> pieces) {
  static_assert(chunk == warp_size);
  constexpr int N = RowSums<T>::lanes;
  constexpr unsigned all = 0xFFFFFFFFu;
  for (std::int64_t number = first_row<WarpGroup>(); number < chunks;
       number += row_step<WarpGroup>()) {
    const std::int64_t first = number * chunk, own = first + threadIdx.x % warp_size;
    const KeyAt entry = own < keys.n ? keys.sorted[own] : KeyAt{keys.entries, 0};
    const unsigned ends = __ballot_sync(all, own < keys.n && keys.ends_run(own));
    const int last = static_cast<int>(keys.end_of_chunk(first) - first);
    // What adds nothing comes behind all else.
    const int count = __popc(__ballot_sync(all, entry.key != keys.entries));
    const bool first_begins = keys.begins_run(first);
    rows.for_each_column([&](std::int64_t column) {
      typename RowSums<T>::Sum sum{};
      bool begins = first_begins;
      for (int done = 0; done < count; done += rows_at_once) {
        Words<T, N> added[rows_at_once], held[rows_at_once];
        std::uint32_t key[rows_at_once];
        LOCKSTEP_UNROLL
        for (int k = 0; k < rows_at_once; ++k) {
          const int i = done + k < count ? done + k : done;
          key[k] = __shfl_sync(all, entry.key, i);
          added[k] = rows.fetch(rows.dy, __shfl_sync(all, entry.position, i), column);
          if (ends >> i & 1) held[k] = rows.fetch(rows.dtable, key[k], column);
        }
        LOCKSTEP_UNROLL
        for (int k = 0; k < rows_at_once; ++k) {
          const int i = done + k;
          if (i >= count) break;
          const auto terms = unpack(added[k]);
          for (int j = 0; j < N; ++j) sum[j] += terms[j];
          const bool ended = ends >> i & 1;
          if (!ended && i + 1 < last) continue;
          if (begins && ended)
            rows.add_to(unpack(held[k]), key[k], column, sum);
          else if (column < rows.columns)
            store_row<N>(pieces.at(number, begins), column, rows.columns, false, sum);
          sum = {};
          begins = true;
        }
      }
    });
  }
}

/// The warp of the chunk in which a run begins that goes on after it adds its pieces in order.
template <class T>
__global__ void __launch_bounds__(row_threads)
    add_pieces_kernel(std::int64_t chunks, RowSums<T> rows, SortedKeys keys, Pieces<T> pieces) {
  constexpr int N = RowSums<T>::lanes;
  for (std::int64_t number = first_row<WarpGroup>(); number < chunks;
       number += row_step<WarpGroup>()) {
    const std::int64_t last = keys.end_of_chunk(number * chunk) - 1;
    const std::uint32_t key = keys.sorted[last].key;
    const std::int64_t before = number * chunk - 1;
    const bool began_before = before >= 0 && keys.sorted[before].key == key;
    if (key == keys.entries || keys.ends_run(last) || began_before) continue;
    rows.for_each_column([&](std::int64_t column) {
      if (column >= rows.columns) return;
      auto sum = load_row<N>(pieces.at(number, true), column, rows.columns, false);
      for (std::int64_t next = number + 1;; ++next) {
        const auto piece = load_row<N>(pieces.at(next, false), column, rows.columns, false);
        for (int j = 0; j < N; ++j) sum[j] += piece[j];
        const std::int64_t end = keys.end_of_chunk(next * chunk) - 1;
        if (keys.sorted[end].key != key || keys.ends_run(end)) break;
      }
      rows.add(key, column, sum);
    });
  }
}

/// Where there are too many pairs: the indices sorted, and the rows of equal ones added.
void add_sorted(const kernels::EmbeddingBackwardArguments& arguments, StreamRef stream) {
  const ArrayView &dtable = arguments.dtable, &dy = arguments.dy, &index = arguments.index;
  const std::int64_t n = index.numel(), entries = dtable.shape[0], columns = dtable.shape[1];
  LOCKSTEP_CHECK(n < INT32_MAX && entries < INT32_MAX, Unsupported, "embedding_backward: ", n,
                 " indices into ", entries, " entries; both must be below 2^31 on device cuda");
  if (!arguments.accumulate) elementwise::fill({.out = dtable, .value = 0.0}, stream);
  RadixSort<KeyAt> sort(stream, n);
  sort.by(TableKeys{index.as<std::int64_t>(), entries, arguments.padding_index}, KeyDigit{},
          std::bit_width(static_cast<std::uint32_t>(entries)));
  const SortedKeys keys{sort.entries(), n, static_cast<std::uint32_t>(entries)};
  const std::int64_t chunks = (n + chunk - 1) / chunk;
  dispatch_floating(dy.dtype, "embedding_backward", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    const Scratch scratch(static_cast<std::size_t>(2 * chunks * columns) * sizeof(A), stream);
    const Pieces<T> pieces{static_cast<A*>(scratch.data()), columns};
    const RowSums<T> rows{dtable.as<T>(), dy.as<T>(), columns,
                          rows_are_wide<T>(columns, dtable.data, dy.data)};
    launch(stream, rows.grid(chunks), row_threads, 0, add_chunks_kernel<T>, chunks, rows, keys,
           pieces);
    launch(stream, rows.grid(chunks), row_threads, 0, add_pieces_kernel<T>, chunks, rows, keys,
           pieces);
  });
}

void add_matches(const kernels::EmbeddingBackwardArguments& arguments, StreamRef stream) {
  const ArrayView &dtable = arguments.dtable, &dy = arguments.dy, &index = arguments.index;
  const std::int64_t entries = dtable.shape[0], columns = dtable.shape[1];
  dispatch_floating(dy.dtype, "embedding_backward", [&]<class T>(TypeTag<T>) {
    const RowSums<T> rows{dtable.as<T>(), dy.as<T>(), columns,
                          rows_are_wide<T>(columns, dtable.data, dy.data)};
    launch(stream, rows.grid(entries), row_threads, 0, add_matches_kernel<T>, entries, rows,
           index.as<std::int64_t>(), index.numel(), arguments.padding_index, arguments.accumulate);
  });
}

}  // namespace

void embedding::forward(const kernels::EmbeddingArguments& arguments, StreamRef stream) {
  const auto& [out, table, index, addend] = arguments;
  const std::int64_t columns = table.shape[1];
  dispatch_floating(out.dtype, "embedding", [&]<class T>(TypeTag<T>) {
    launch_rows(stream, index.numel(), columns, embedding_kernel<WarpGroup, T>,
                embedding_kernel<BlockGroup, T>, out.as<T>(), table.as<T>(),
                index.as<std::int64_t>(), table.shape[0], addend.as<T>(),
                addend ? addend.shape[0] : 0,
                rows_are_wide<T>(columns, out.data, table.data, addend.data));
  });
}

void embedding::backward(const kernels::EmbeddingBackwardArguments& arguments, StreamRef stream) {
  const std::int64_t n = arguments.index.numel(), entries = arguments.dtable.shape[0];
  if (n == 0 || arguments.dtable.numel() == 0) {
    if (!arguments.accumulate) elementwise::fill({.out = arguments.dtable, .value = 0.0}, stream);
  } else if (n <= most_pairs / entries) {
    add_matches(arguments, stream);
  } else {
    add_sorted(arguments, stream);
  }
}

}  // namespace lockstep::cuda_kernels
