#include <optional>
#include <span>

#include "arguments/norm.hpp"
#include "arguments/norm_byproducts.hpp"
#include "cuda/norm_byproducts.hpp"
#include "cuda/norm_dtypes.hpp"
#include "cuda/norm_sums.hpp"
#include "cuda/scratch.hpp"
#include "functional/norm.hpp"

namespace lockstep::cuda_kernels {
namespace {

using functional::NormStatistics;

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

// So many threads of a multiprocessor have the registers.
constexpr int resident_threads = 384;

template <class T>
struct StoreWeightGradients {
  T* dweight;
  T* dbias;
  bool add_dweight, add_dbias;
  __device__ void operator()(std::int64_t column, const NormSums<AccumulateType<T>>& sums) const {
    if (dweight) store_sum(dweight + column, sums.product, add_dweight);
    if (dbias) store_sum(dbias + column, sums.plain, add_dbias);
  }
};

/// kernels::NormByproducts, each of which may be null.
template <class X, class Y>
struct Byproducts {
  AccumulateType<X>* partial;  ///< sums of dx, a block's each
  X* dx_sums;
  AccumulateType<X>* dx_totals;
  Y* dx_copy;
  bool add_dx_sums;
  Summands<Y, X> summands;
  __device__ void operator()(std::int64_t column, const NormSums<AccumulateType<X>>& sums) const {
    if (dx_totals) dx_totals[column] = sums.product;
    if (dx_sums) store_sum(dx_sums + column, sums.product, add_dx_sums);
  }
};

/// Of a kernel without: its registers are for what it does.
struct NoByproducts {};

/// What a thread reads of a row.
template <class X, class Y, int width, int vectors>
struct NormGradientRow {
  Words<X, width> x[vectors], dx[vectors];
  Words<Y, width> dy[vectors];
  AccumulateType<X> mean, rstd;

  template <class Group>
  __device__ void load(const Group& group, const NormGradientPointers<X, Y>& p, std::int64_t row,
                       std::int64_t columns, bool with_dx) {
    const std::int64_t start = row * columns;
    for_each_kept<vectors>(group, columns, [&](int k, std::int64_t at) {
      x[k] = load_words<width>(p.x + start + at);
      dy[k] = load_words<width>(p.dy + start + at);
      if (with_dx && p.add_dx) dx[k] = load_words<width>(p.dx + start + at);
    });
    mean = p.mean ? p.mean[row] : AccumulateType<X>(0);
    rstd = p.rstd[row];
  }
};

/// A norm's weights of the columns that a thread keeps: in registers, or where those are for sums
/// of dx, read again for each row.
template <class T, int width, int vectors, bool kept>
struct KeptWeights {
  const T* weight;  // may be null
  Words<T, width> words[kept ? vectors : 1];

  __device__ static Words<T, width> at_column(const T* weight, std::int64_t at) {
    Vector<T, width> own;
    LOCKSTEP_UNROLL
    for (int j = 0; j < width; ++j) own.lane[j] = convert<T>(AccumulateType<T>(1));
    if (weight) own = load_vector<width>(weight + at);
    return std::bit_cast<Words<T, width>>(own);
  }
  template <class Group>
  __device__ KeptWeights(const Group& group, const T* of, std::int64_t columns) : weight(of) {
    if constexpr (kept)
      for_each_kept<vectors>(group, columns,
                             [&](int k, std::int64_t at) { words[k] = at_column(of, at); });
  }
  __device__ auto operator()(int k, std::int64_t at) const {
    return unpack(kept ? words[kept ? k : 0] : at_column(weight, at));
  }
};

/// dx, and dweight and dbias or the sums for them, with each element read once.
template <class Group, bool centred, class X, class Y, class Besides>
__global__ void __launch_bounds__(kept_block<Group, resident_threads>,
                                  resident_threads / kept_block<Group, resident_threads>)
    norm_backward_one_pass_kernel(std::int64_t rows, std::int64_t columns,
                                  NormGradientPointers<X, Y> p,
                                  PartialSums<AccumulateType<X>> partial, std::uint32_t* arrivals,
                                  StoreWeightGradients<X> weight_gradients, Besides besides) {
  using A = AccumulateType<X>;
  constexpr int width = Group::width, vectors = kept_elements<X> / width;
  constexpr bool has_byproducts = !std::is_same_v<Besides, NoByproducts>;
  const Group group;
  const auto for_each = [&](const auto& visit) { for_each_kept<vectors>(group, columns, visit); };
  if constexpr (has_byproducts)
    for (int i = 0; i < besides.summands.count; ++i)
      add_columns<kept_block<Group, resident_threads> / warp_size>(besides.summands.parts[i],
                                                                   arrivals + row_arrivals);
  const KeptWeights<X, width, vectors, !has_byproducts> weight(group, p.weight, columns);
  Pack<A, width> product[vectors] = {}, plain[vectors] = {};
  Pack<A, width> dx_sums[has_byproducts ? vectors : 1] = {};
  // What a row needs is fetched while the row before is worked on, where there are registers.
  constexpr bool ahead = std::is_same_v<X, BFloat16> && std::is_same_v<Y, BFloat16>;
  constexpr bool dx_ahead = ahead && !has_byproducts;
  NormGradientRow<X, Y, width, vectors> kept;
  if (ahead && first_row<Group>() < rows)
    kept.load(group, p, first_row<Group>(), columns, dx_ahead);
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    if (!ahead) kept.load(group, p, row, columns, true);
    NormGradientRow<X, Y, width, vectors> own = kept;
    if (ahead && !dx_ahead && p.add_dx)
      for_each([&](int k, std::int64_t at) {
        own.dx[k] = load_words<width>(p.dx + row * columns + at);
      });
    if (const std::int64_t next = row + row_step<Group>(); ahead && next < rows)
      kept.load(group, p, next, columns, dx_ahead);
    const NormStatistics<A> statistics{own.mean, own.rstd};
    NormSums<A> sums{0, 0};
    for_each([&](int k, std::int64_t at) {
      const auto slopes = unpack(own.dy[k]);
      const auto values = unpack(own.x[k]), weights = weight(k, at);
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
      const auto values = unpack(own.x[k]), weights = weight(k, at);
      auto dx = p.add_dx ? unpack(own.dx[k]) : Pack<A, width>{};
      LOCKSTEP_UNROLL
      for (int j = 0; j < width; ++j) {
        const A g = slopes[j] * weights[j];
        const A normal = statistics.normalise(values[j]);
        const A slope = statistics.rstd * (g - mean_g - normal * mean_gx);
        dx[j] = p.add_dx ? dx[j] + slope : slope;
        if constexpr (has_byproducts) dx_sums[k][j] += dx[j];
      }
      store_vector<width>(p.dx + row * columns + at, packed<X>(dx));
      if constexpr (has_byproducts)
        if (besides.dx_copy)
          store_vector<width>(besides.dx_copy + row * columns + at, packed<Y>(dx));
    });
  }
  LOCKSTEP_UNROLL
  for (int k = 0; k < vectors; ++k) {
    const std::int64_t at = static_cast<std::int64_t>(k) * group.size() * width;
    leave_sums(group, product[k], partial.product + blockIdx.x * columns, at, columns);
    if constexpr (centred)
      leave_sums(group, plain[k], partial.plain + blockIdx.x * columns, at, columns);
    if constexpr (has_byproducts)
      leave_sums(group, dx_sums[k], besides.partial + blockIdx.x * columns, at, columns);
  }
  const FinishedSums<A, StoreWeightGradients<X>> gradients{partial, weight_gradients};
  if constexpr (has_byproducts)
    finish_sums<A>(arrivals, gradients,
                   FinishedSums<A, Besides>{{nullptr, besides.partial, columns}, besides});
  else
    finish_sums<A>(arrivals, gradients);
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

template <bool centred, class X, class Y, class Besides>
void launch_one_pass(const kernels::LayerNormBackwardArguments& a, const KeptRows& plan,
                     const PartialSums<AccumulateType<X>>& partial, const Besides& besides,
                     StreamRef stream) {
  constexpr int lanes = lanes_of<X>;
  const auto kernel =
      plan.by_warps
          ? norm_backward_one_pass_kernel<WideGroup<WarpGroup, lanes>, centred, X, Y, Besides>
          : norm_backward_one_pass_kernel<WideGroup<BlockGroup, lanes>, centred, X, Y, Besides>;
  const Arrivals arrivals(stream);
  launch(stream, plan.blocks, plan.threads, 0, kernel, a.x.shape[0], a.x.shape[1],
         gradient_pointers<X, Y>(a), partial, arrivals.data(), weight_gradients<X>(a), besides);
}

/// Whether the kernel of a norm has by-products at all: not that of RMS norm, whose models have no
/// biases, nor where gradients are of 32 bits and more, which leave no registers.
template <bool centred, class Y>
inline constexpr bool offers_byproducts = centred && sizeof(Y) == 2;

/// A part of a call's summand, as its kernel takes it, but for `out`, `partial` and counters;
/// nothing if that cannot be.
template <class Y, class X>
std::optional<Summand<Y, X>> summand_of(const kernels::SummandPart& part, bool accumulate) {
  using A = AccumulateType<Y>;
  if (!part.rows) return Summand<Y, X>{.columns = part.columns, .accumulate = accumulate};
  const std::int64_t rows = part.rows.shape[0], pitch = part.rows.strides[0];
  const bool fits = part.columns > 0 && rows > 0 && rows < std::int64_t{1} << 31 &&
                    part.rows.strides[1] == 1 && pitch % lanes_of<Y> == 0 &&
                    rows_are_wide<Y>(part.columns, part.rows.data) &&
                    (!part.weights || part.weights.strides[0] == 1);
  if (!fits) return std::nullopt;
  return Summand<Y, X>{.in = part.rows.as<Y>(),
                       .weights = part.weights.as<A>(),
                       .rows = rows,
                       .columns = part.columns,
                       .pitch = pitch,
                       .tiles = static_cast<unsigned>(Summand<Y, X>::tiles_of(part.columns)),
                       .accumulate = accumulate};
}

/// What a launch of so many blocks adds up for `more.sums`; nothing if it cannot.
template <class Y, class X>
std::optional<Summands<Y, X>> summands_of(std::span<const kernels::SummandPart> parts,
                                          const kernels::NormByproducts& more, unsigned blocks) {
  Summands<Y, X> found;
  std::int64_t columns = 0, tiles = 0;
  for (const kernels::SummandPart& part : parts) {
    if (part.columns == 0) continue;
    const auto summand = summand_of<Y, X>(part, more.add_sums);
    if (!summand || summand->tiles > blocks) return std::nullopt;
    Summand<Y, X>& own = found.parts[found.count++] = *summand;
    own.out = more.sums.as<X>() + columns;
    own.first_arrivals = static_cast<unsigned>(tiles);
    columns += own.columns, tiles += own.tiles;
  }
  const bool all = columns == more.summand.shape[1] && tiles <= most_summand_tiles;
  return all ? std::optional(found) : std::nullopt;
}

/// The by-products' summands of a call: parts where they are known and fit, else the array. Nothing
/// if the kernel takes no by-products of it.
template <class X, class Y>
std::optional<Summands<Y, X>> take_byproducts(const kernels::LayerNormBackwardArguments& a,
                                              const KeptRows& plan) {
  const kernels::NormByproducts& more = a.byproducts;
  if (!more || !rows_are_wide<Y>(lanes_of<Y>, more.dx_copy.data)) return std::nullopt;
  if (!more.summand) return Summands<Y, X>{};
  if (const auto known = summands_of<Y, X>(more.parts, more, plan.blocks)) return known;
  const kernels::SummandPart whole{.columns = more.summand.shape[1], .rows = more.summand};
  return summands_of<Y, X>({&whole, 1}, more, plan.blocks);
}

template <bool centred, class X, class Y>
void backward_in_one_pass(const kernels::LayerNormBackwardArguments& a, const KeptRows& plan,
                          std::optional<Summands<Y, X>> summands, StreamRef stream) {
  using A = AccumulateType<X>;
  const std::int64_t columns = a.x.shape[1], sums = plan.blocks * columns;
  const kernels::NormByproducts& more = a.byproducts;
  const auto shared_by_blocks = [&](const Summand<Y, X>& of) {
    return of.tiles ? (plan.blocks + of.tiles - 1) / of.tiles * of.columns : std::int64_t{0};
  };
  std::int64_t elements = (summands ? 3 : 2) * sums;
  for (int i = 0; summands && i < summands->count; ++i)
    elements += shared_by_blocks(summands->parts[i]);
  const Scratch scratch(sizeof(A) * static_cast<std::size_t>(elements), stream);
  A* const product = static_cast<A*>(scratch.data());
  const PartialSums<A> partial{centred ? product + sums : nullptr, product, columns};
  if constexpr (offers_byproducts<centred, Y>)
    if (summands) {
      A* own = product + 3 * sums;
      for (Summand<Y, X>& part : summands->parts) {
        part.partial = own;
        own += shared_by_blocks(part);
      }
      return launch_one_pass<centred, X, Y>(a, plan, partial,
                                            Byproducts<X, Y>{.partial = product + 2 * sums,
                                                             .dx_sums = more.dx_sums.as<X>(),
                                                             .dx_totals = more.dx_totals.as<A>(),
                                                             .dx_copy = more.dx_copy.as<Y>(),
                                                             .add_dx_sums = more.add_dx_sums,
                                                             .summands = *summands},
                                            stream);
    }
  launch_one_pass<centred, X, Y>(a, plan, partial, NoByproducts{}, stream);
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
  const bool one_pass = has_weights && plan && is_wide<X, Y>(a);
  std::optional<Summands<Y, X>> besides;
  if (one_pass && offers_byproducts<centred, Y>) besides = take_byproducts<X, Y>(a, *plan);
  if (one_pass) {
    backward_in_one_pass<centred, X, Y>(a, *plan, besides, stream);
  } else {
    if (a.dx) backward_rows<centred, X, Y>(a, stream);
    if (has_weights) backward_columns<X, Y>(a, stream);
  }
  if (besides) return;
  kernels::compute_byproducts(
      a, [&](const kernels::CopyArguments& copy) { elementwise::copy(copy, stream); },
      [&](const kernels::ReduceArguments& sums) { reduction::reduce(sums, stream); });
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
                      .add_dx = a.add_dx,
                      .add_dweight = a.add_dweight},
                     "rms_norm_backward", stream);
}

}  // namespace lockstep::cuda_kernels
