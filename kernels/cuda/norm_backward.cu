#include "arguments/norm.hpp"
#include "cuda/columns.hpp"
#include "cuda/kept_rows.hpp"
#include "cuda/norm_dtypes.hpp"
#include "cuda/scratch.hpp"
#include "functional/norm.hpp"

namespace lockstep::cuda_kernels {
namespace {

using functional::NormStatistics;
using functional::NormSums;

/// Y is the dtype of what the norm returned, X that of all else.
template <class X, class Y>
struct NormGradientPointers {
  X* dx;  // may be null
  const Y* dy;
  const X* x;
  const X* weight;  // may be null
  const AccumulateType<X>* mean;
  const AccumulateType<X>* rstd;
  bool add_dx;
};

/// Of one row.
template <bool centred, class X, class Y>
__device__ NormStatistics<AccumulateType<X>> statistics_of(const NormGradientPointers<X, Y>& p,
                                                           std::int64_t row) {
  return {centred ? p.mean[row] : AccumulateType<X>(0), p.rstd[row]};
}

/// dx alone, for rows of any length.
template <class Group, bool centred, class X, class Y>
__global__ void __launch_bounds__(row_threads)
    norm_backward_kernel(std::int64_t rows, std::int64_t columns, NormGradientPointers<X, Y> p) {
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const std::int64_t start = row * columns;
    functional::norm_backward_row<centred, AccumulateType<X>>(
        group, p.dx + start, p.dy + start, p.x + start, p.weight, columns,
        statistics_of<centred>(p, row), p.add_dx);
  }
}

/// Sums over the rows that one block took of what they add to dweight (product) and dbias (plain):
/// [blocks, columns] each.
template <class A>
struct PartialSums {
  A* plain;  // null for RMS norm
  A* product;
  std::int64_t columns;
  __device__ NormSums<A> operator()(std::int64_t block, std::int64_t column) const {
    const std::int64_t at = block * columns + column;
    return {plain ? plain[at] : A(0), product[at]};
  }
  /// `width` of them from a column on, which is a multiple of it.
  template <int width>
  __device__ Pack<NormSums<A>, width> pack(std::int64_t block, std::int64_t column) const {
    const std::int64_t at = block * columns + column;
    const auto products = load_vector<width>(product + at);
    Vector<A, width> plains{};
    if (plain) plains = load_vector<width>(plain + at);
    Pack<NormSums<A>, width> sums;
    LOCKSTEP_UNROLL
    for (int j = 0; j < width; ++j) sums[j] = {plains.lane[j], products.lane[j]};
    return sums;
  }
  template <int width>
  __device__ void put(std::int64_t block, std::int64_t column,
                      const Pack<NormSums<A>, width>& sums) const {
    const std::int64_t at = block * columns + column;
    Vector<A, width> plains, products;
    LOCKSTEP_UNROLL
    for (int j = 0; j < width; ++j) {
      plains.lane[j] = sums[j].plain;
      products.lane[j] = sums[j].product;
    }
    store_vector<width>(product + at, products);
    if (plain) store_vector<width>(plain + at, plains);
  }
};

/// True for all threads of the last of `blocks` blocks to come here, which sees what they wrote.
__device__ inline bool comes_last(std::uint32_t& arrivals, unsigned blocks) {
  bool is_last = false;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(&arrivals, 1u) + 1 == blocks;
    if (is_last) arrivals = 0;
  }
  if (!__syncthreads_or(is_last)) return false;
  __threadfence();
  return true;
}

/// One block reads what many have left: it waits for memory as seldom as registers allow.
constexpr unsigned loads_at_once = 16;

/// Adds up what every `step`-th block from `first` on has left, and calls `store(column, sums)`
/// with a pack of columns.
template <class A, class Store>
__device__ void add_blocks(const PartialSums<A>& partial, unsigned first, unsigned step,
                           unsigned last, const Store& store) {
  constexpr int width = lanes_of<A>;
  for (std::int64_t column = std::int64_t{threadIdx.x} * width; column < partial.columns;
       column += blockDim.x * width) {
    Pack<NormSums<A>, width> sums{};
    for (unsigned begin = first; begin < last; begin += loads_at_once * step) {
      Pack<NormSums<A>, width> own[loads_at_once]{};
      LOCKSTEP_UNROLL
      for (unsigned k = 0; k < loads_at_once; ++k)
        if (begin + k * step < last)
          own[k] = partial.template pack<width>(begin + k * step, column);
      LOCKSTEP_UNROLL
      for (const auto& each : own)
        for (int j = 0; j < width; ++j) sums[j] = sums[j] + each[j];
    }
    store(column, sums);
  }
}

/// What sum_columns does, in the same order, by the last blocks to leave their sums: the last of
/// those whose rows one of its threads would add, and of these the last.
template <class A, class Store>
__device__ void finish_sums(const PartialSums<A>& partial, std::uint32_t* arrivals,
                            const Store& store) {
  static_assert(final_height + 1 == kernels::norm_arrivals);
  constexpr int width = lanes_of<A>;
  const unsigned blocks = gridDim.x, own = blockIdx.x % final_height;
  const unsigned groups = blocks < final_height ? blocks : final_height;
  if (!comes_last(arrivals[own], (blocks - own + final_height - 1) / final_height)) return;
  add_blocks(partial, own, final_height, blocks, [&](std::int64_t column, const auto& sums) {
    partial.template put<width>(own, column, sums);
  });
  if (!comes_last(arrivals[final_height], groups)) return;
  add_blocks(partial, 0, 1, groups, [&](std::int64_t column, const auto& sums) {
    LOCKSTEP_UNROLL
    for (int j = 0; j < width; ++j) store(column + j, sums[j]);
  });
}

// So many threads of a multiprocessor have the registers.
constexpr int resident_threads = 384;

/// Writes a block's sums of the columns from `first` on that its warps have one pack each of; its
/// warps' are added up in their order.
template <int width, class A>
__device__ void leave_sums(const WideGroup<WarpGroup, width>& group, const Pack<A, width>& sums,
                           A* out, std::int64_t first, std::int64_t columns) {
  // Lane by lane, with gaps: neither writing nor reading has two lanes in one bank.
  constexpr int pitch = warp_size + warp_size / width, warps = kept_warps_threads / warp_size;
  __shared__ A tile[warps][width * pitch];
  __syncthreads();  // the former pack's readers are done
  LOCKSTEP_UNROLL
  for (int j = 0; j < width; ++j) tile[threadIdx.x / warp_size][j * pitch + group.rank()] = sums[j];
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < warp_size * width; c += kept_warps_threads) {
    if (first + c >= columns) break;
    const int at = c % width * pitch + c / width;
    A total = tile[0][at];
    for (int warp = 1; warp < warps; ++warp) total += tile[warp][at];
    out[first + c] = total;
  }
}

/// The same for a block that is one group.
template <int width, class A>
__device__ void leave_sums(const WideGroup<BlockGroup, width>& group, const Pack<A, width>& sums,
                           A* out, std::int64_t first, std::int64_t columns) {
  const std::int64_t at = first + static_cast<std::int64_t>(group.rank()) * width;
  if (at >= columns) return;
  LOCKSTEP_UNROLL
  for (int j = 0; j < width; j += lanes_of<A>) {
    Vector<A, lanes_of<A>> stored;
    for (int lane = 0; lane < lanes_of<A>; ++lane) stored.lane[lane] = sums[j + lane];
    store_vector<lanes_of<A>>(out + at + j, stored);
  }
}

template <class T>
struct StoreWeightGradients {
  T* dweight;
  T* dbias;
  bool add_dweight, add_dbias;
  __device__ void operator()(std::int64_t column, const NormSums<AccumulateType<T>>& sums) const {
    if (dweight) store(dweight + column, sums.product, add_dweight);
    if (dbias) store(dbias + column, sums.plain, add_dbias);
  }

 private:
  __device__ static void store(T* to, AccumulateType<T> value, bool add) {
    *to = convert<T>(add ? convert<AccumulateType<T>>(*to) + value : value);
  }
};

/// What a thread reads of a row.
template <class X, class Y, int width, int vectors>
struct NormGradientRow {
  Words<X, width> x[vectors], dx[vectors];
  Words<Y, width> dy[vectors];
  AccumulateType<X> mean, rstd;

  template <class Group>
  __device__ void load(const Group& group, const NormGradientPointers<X, Y>& p, std::int64_t row,
                       std::int64_t columns) {
    const std::int64_t start = row * columns;
    for_each_kept<vectors>(group, columns, [&](int k, std::int64_t at) {
      x[k] = load_words<width>(p.x + start + at);
      dy[k] = load_words<width>(p.dy + start + at);
      if (p.add_dx) dx[k] = load_words<width>(p.dx + start + at);
    });
    mean = p.mean ? p.mean[row] : AccumulateType<X>(0);
    rstd = p.rstd[row];
  }
};

/// dx, and dweight and dbias or the sums for them, with each element read once.
/// @param arrivals null: sums are left
template <class Group, bool centred, class X, class Y>
__global__ void __launch_bounds__(kept_block<Group, resident_threads>,
                                  resident_threads / kept_block<Group, resident_threads>)
    norm_backward_one_pass_kernel(std::int64_t rows, std::int64_t columns,
                                  NormGradientPointers<X, Y> p,
                                  PartialSums<AccumulateType<X>> partial, std::uint32_t* arrivals,
                                  StoreWeightGradients<X> weight_gradients) {
  using A = AccumulateType<X>;
  constexpr int width = Group::width, vectors = kept_elements<X> / width;
  const Group group;
  const auto for_each = [&](const auto& visit) { for_each_kept<vectors>(group, columns, visit); };
  Words<X, width> weight[vectors];
  for_each([&](int k, std::int64_t at) {
    Vector<X, width> own;
    LOCKSTEP_UNROLL
    for (int j = 0; j < width; ++j) own.lane[j] = convert<X>(A(1));
    if (p.weight) own = load_vector<width>(p.weight + at);
    weight[k] = std::bit_cast<Words<X, width>>(own);
  });
  Pack<A, width> product[vectors] = {}, plain[vectors] = {};
  // What a row needs is fetched while the row before is worked on, where there are registers.
  constexpr bool ahead = std::is_same_v<X, BFloat16> && std::is_same_v<Y, BFloat16>;
  NormGradientRow<X, Y, width, vectors> kept;
  if (ahead && first_row<Group>() < rows) kept.load(group, p, first_row<Group>(), columns);
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    if (!ahead) kept.load(group, p, row, columns);
    const NormGradientRow<X, Y, width, vectors> own = kept;
    if (const std::int64_t next = row + row_step<Group>(); ahead && next < rows)
      kept.load(group, p, next, columns);
    const NormStatistics<A> statistics{own.mean, own.rstd};
    NormSums<A> sums{0, 0};
    for_each([&](int k, std::int64_t) {
      const auto slopes = unpack(own.dy[k]);
      const auto values = unpack(own.x[k]), weights = unpack(weight[k]);
      LOCKSTEP_UNROLL
      for (int j = 0; j < width; ++j) {
        const A slope = slopes[j], g = slope * weights[j];
        const A normal = statistics.normalise(values[j]);
        product[k][j] += slope * normal;
        if constexpr (centred) plain[k][j] += slope;
        sums = sums + NormSums<A>{centred ? g : A(0), g * normal};
      }
    });
    if (!p.dx) continue;
    sums = group.reduce(sums, Sum{});
    const A mean_g = sums.plain / static_cast<A>(columns);
    const A mean_gx = sums.product / static_cast<A>(columns);
    for_each([&](int k, std::int64_t at) {
      const auto slopes = unpack(own.dy[k]);
      const auto values = unpack(own.x[k]), weights = unpack(weight[k]);
      auto dx = p.add_dx ? unpack(own.dx[k]) : Pack<A, width>{};
      LOCKSTEP_UNROLL
      for (int j = 0; j < width; ++j) {
        const A g = slopes[j] * weights[j];
        const A normal = statistics.normalise(values[j]);
        const A slope = statistics.rstd * (g - mean_g - normal * mean_gx);
        dx[j] = p.add_dx ? dx[j] + slope : slope;
      }
      store_vector<width>(p.dx + row * columns + at, packed<X>(dx));
    });
  }
  LOCKSTEP_UNROLL
  for (int k = 0; k < vectors; ++k) {
    const std::int64_t at = static_cast<std::int64_t>(k) * group.size() * width;
    leave_sums(group, product[k], partial.product + blockIdx.x * columns, at, columns);
    if constexpr (centred)
      leave_sums(group, plain[k], partial.plain + blockIdx.x * columns, at, columns);
  }
  if (arrivals) finish_sums(partial, arrivals, weight_gradients);
}

/// What a row adds to dweight and dbias of one column.
template <class X, class Y>
struct WeightTerms {
  const Y* dy;
  const X* x;
  const AccumulateType<X>* mean;
  const AccumulateType<X>* rstd;
  std::int64_t columns;
  __device__ NormSums<AccumulateType<X>> operator()(std::int64_t row, std::int64_t column) const {
    using A = AccumulateType<X>;
    const A g = convert<A>(dy[row * columns + column]);
    const NormStatistics<A> statistics{mean ? mean[row] : A(0), rstd[row]};
    return {g, g * statistics.normalise(convert<A>(x[row * columns + column]))};
  }
};

template <class X, class Y>
NormGradientPointers<X, Y> gradient_pointers(const kernels::LayerNormBackwardArguments& a) {
  using A = AccumulateType<X>;
  return {.dx = a.dx.as<X>(),
          .dy = a.dy.as<Y>(),
          .x = a.x.as<X>(),
          .weight = a.weight.as<X>(),
          .mean = a.mean.as<A>(),
          .rstd = a.rstd.as<A>(),
          .add_dx = a.add_dx};
}

template <class T>
StoreWeightGradients<T> weight_gradients(const kernels::LayerNormBackwardArguments& a) {
  return {a.dweight.as<T>(), a.dbias.as<T>(), a.add_dweight, a.add_dbias};
}

template <class X, class Y>
bool is_wide(const kernels::LayerNormBackwardArguments& a) {
  return rows_are_wide<X>(a.x.shape[1], a.dx.data, a.dy.data, a.x.data, a.weight.data);
}

/// dx alone.
template <bool centred, class X, class Y>
void backward_rows(const kernels::LayerNormBackwardArguments& a, StreamRef stream) {
  with_lanes<X>(is_wide<X, Y>(a), [&](auto lanes) {
    launch_rows(stream, a.x.shape[0], a.x.shape[1],
                norm_backward_kernel<WideGroup<WarpGroup, lanes>, centred, X, Y>,
                norm_backward_kernel<WideGroup<BlockGroup, lanes>, centred, X, Y>,
                gradient_pointers<X, Y>(a));
  });
}

template <bool centred, class X, class Y>
void backward_in_one_pass(const kernels::LayerNormBackwardArguments& a, const KeptRows& plan,
                          StreamRef stream) {
  using A = AccumulateType<X>;
  constexpr int lanes = lanes_of<X>;
  const std::int64_t rows = a.x.shape[0], columns = a.x.shape[1];
  const std::int64_t sums = plan.blocks * columns;
  const Scratch scratch(sizeof(A) * static_cast<std::size_t>(2 * sums), stream);
  A* const product = static_cast<A*>(scratch.data());
  const PartialSums<A> partial{centred ? product + sums : nullptr, product, columns};
  const auto kernel =
      plan.by_warps ? norm_backward_one_pass_kernel<WideGroup<WarpGroup, lanes>, centred, X, Y>
                    : norm_backward_one_pass_kernel<WideGroup<BlockGroup, lanes>, centred, X, Y>;
  auto* const arrivals = a.arrivals.as<std::uint32_t>();
  launch(stream, plan.blocks, plan.threads, 0, kernel, rows, columns, gradient_pointers<X, Y>(a),
         partial, arrivals, weight_gradients<X>(a));
  if (!arrivals)
    sum_columns<NormSums<A>>(stream, plan.blocks, columns, partial, weight_gradients<X>(a));
}

/// dweight and dbias alone, of rows of any length.
template <class X, class Y>
void backward_columns(const kernels::LayerNormBackwardArguments& a, StreamRef stream) {
  using A = AccumulateType<X>;
  const std::int64_t rows = a.x.shape[0], columns = a.x.shape[1];
  const Scratch scratch(column_scratch<NormSums<A>>(rows, columns), stream);
  reduce_columns<NormSums<A>>(
      stream, rows, columns, static_cast<NormSums<A>*>(scratch.data()),
      WeightTerms<X, Y>{a.dy.as<Y>(), a.x.as<X>(), a.mean.as<A>(), a.rstd.as<A>(), columns},
      weight_gradients<X>(a));
}

template <bool centred, class X, class Y>
void backward(const kernels::LayerNormBackwardArguments& a, StreamRef stream) {
  const bool has_weights = a.dweight || a.dbias;
  // A block's sums take as long to write and to read again as some of its rows.
  constexpr std::int64_t least_rows = 32;
  const auto plan =
      keep_rows<X, resident_threads>(stream.device.index, a.x.shape[0], a.x.shape[1], least_rows);
  if (has_weights && plan && is_wide<X, Y>(a))
    return backward_in_one_pass<centred, X, Y>(a, *plan, stream);
  if (a.dx) backward_rows<centred, X, Y>(a, stream);
  if (has_weights) backward_columns<X, Y>(a, stream);
}

/// Gradients of layer norm where `mean` is given, else of RMS norm.
void normalise_backward(const kernels::LayerNormBackwardArguments& a, const char* op,
                        StreamRef stream) {
  dispatch_norm(a.x.dtype, a.dy.dtype, op, [&]<class X, class Y>(TypeTag<X>, TypeTag<Y>) {
    a.mean ? backward<true, X, Y>(a, stream) : backward<false, X, Y>(a, stream);
  });
}

}  // namespace

void norm::layer_norm_backward(const kernels::LayerNormBackwardArguments& a, StreamRef stream) {
  normalise_backward(a, "layer_norm_backward", stream);
}

// RMS norm is layer norm without mean and bias, and so are its kernels.
void norm::rms_norm_backward(const kernels::RmsNormBackwardArguments& a, StreamRef stream) {
  normalise_backward({.dx = a.dx,
                      .dweight = a.dweight,
                      .dy = a.dy,
                      .x = a.x,
                      .weight = a.weight,
                      .rstd = a.rstd,
                      .arrivals = a.arrivals,
                      .add_dx = a.add_dx,
                      .add_dweight = a.add_dweight},
                     "rms_norm_backward", stream);
}

}  // namespace lockstep::cuda_kernels
