#include "arguments/norm.hpp"
#include "cuda/kept_rows.hpp"
#include "cuda/norm_dtypes.hpp"
#include "functional/norm.hpp"

namespace lockstep::cuda_kernels {
namespace {

using functional::NormStatistics;

template <class X, class Y>
struct NormPointers {
  Y* y;
  AccumulateType<X>* mean;
  AccumulateType<X>* rstd;
  const X* x;
  const X* weight;
  const X* bias;
  AccumulateType<X> eps;
};

template <class Group, bool centred, class X, class Y>
__global__ void __launch_bounds__(row_threads)
    norm_kernel(std::int64_t rows, std::int64_t columns, NormPointers<X, Y> p) {
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const auto statistics = functional::norm_row<centred, AccumulateType<X>>(
        group, p.y + row * columns, p.x + row * columns, p.weight, p.bias, columns, p.eps);
    if (group.rank() != 0) continue;
    if constexpr (centred) p.mean[row] = statistics.mean;
    p.rstd[row] = statistics.rstd;
  }
}

// So many threads of a multiprocessor have the registers.
constexpr int resident_threads = 512;

/// The same with each element read once.
template <class Group, bool centred, class X, class Y>
__global__ void __launch_bounds__(kept_block<Group, resident_threads>,
                                  resident_threads / kept_block<Group, resident_threads>)
    norm_one_read_kernel(std::int64_t rows, std::int64_t columns, NormPointers<X, Y> p) {
  using A = AccumulateType<X>;
  constexpr int width = Group::width, vectors = kept_elements<X> / width;
  const Group group;
  const auto for_each = [&](const auto& visit) { for_each_kept<vectors>(group, columns, visit); };
  Words<X, width> weight[vectors], bias[vectors], fetched[vectors];
  for_each([&](int k, std::int64_t at) {
    if (p.weight) weight[k] = load_words<width>(p.weight + at);
    if (p.bias) bias[k] = load_words<width>(p.bias + at);
  });
  // A row is fetched while the row before is worked on, where there are registers.
  constexpr bool ahead = sizeof(X) == 2;
  const auto fetch = [&](std::int64_t row) {
    for_each(
        [&](int k, std::int64_t at) { fetched[k] = load_words<width>(p.x + row * columns + at); });
  };
  if (ahead && first_row<Group>() < rows) fetch(first_row<Group>());
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    if (!ahead) fetch(row);
    Words<X, width> x[vectors];
    for_each([&](int k, std::int64_t) { x[k] = fetched[k]; });
    if (const std::int64_t next = row + row_step<Group>(); ahead && next < rows) fetch(next);
    /// Over the row, of `term(element)`.
    const auto mean_of = [&](const auto& term) {
      A sum = 0;
      for_each([&](int k, std::int64_t) {
        const Pack<A, width> values = unpack(x[k]);
        LOCKSTEP_UNROLL
        for (int j = 0; j < width; ++j) sum += term(values[j]);
      });
      return group.reduce(sum, Sum{}) / static_cast<A>(columns);
    };
    A mean = 0;
    if constexpr (centred) mean = mean_of([](A value) { return value; });
    const A squares = mean_of([&](A value) { return (value - mean) * (value - mean); });
    const NormStatistics<A> statistics{mean, A(1) / functional::math::sqrt(squares + p.eps)};
    for_each([&](int k, std::int64_t at) {
      Pack<A, width> y = unpack(x[k]);
      LOCKSTEP_UNROLL
      for (int j = 0; j < width; ++j) y[j] = statistics.normalise(y[j]);
      if (p.weight) {
        const Pack<A, width> weights = unpack(weight[k]);
        LOCKSTEP_UNROLL
        for (int j = 0; j < width; ++j) y[j] *= weights[j];
      }
      if (p.bias) {
        const Pack<A, width> biases = unpack(bias[k]);
        LOCKSTEP_UNROLL
        for (int j = 0; j < width; ++j) y[j] += biases[j];
      }
      store_vector<width>(p.y + row * columns + at, packed<Y>(y));
    });
    if (group.rank() != 0) continue;
    if constexpr (centred) p.mean[row] = mean;
    p.rstd[row] = statistics.rstd;
  }
}

template <bool centred, class X, class Y>
void norm_rows(const kernels::LayerNormArguments& a, StreamRef stream) {
  using A = AccumulateType<X>;
  constexpr int lanes = lanes_of<X>;
  const std::int64_t rows = a.x.shape[0], columns = a.x.shape[1];
  const NormPointers<X, Y> pointers{.y = a.y.as<Y>(),
                                    .mean = a.mean.as<A>(),
                                    .rstd = a.rstd.as<A>(),
                                    .x = a.x.as<X>(),
                                    .weight = a.weight.as<X>(),
                                    .bias = a.bias.as<X>(),
                                    .eps = static_cast<A>(a.eps)};
  const bool wide = rows_are_wide<X>(columns, a.y.data, a.x.data, a.weight.data, a.bias.data);
  if (const auto plan = keep_rows<X, resident_threads>(stream.device.index, rows, columns);
      wide && plan && rows > 0)
    return launch(stream, plan->blocks, plan->threads, 0,
                  plan->by_warps
                      ? norm_one_read_kernel<WideGroup<WarpGroup, lanes>, centred, X, Y>
                      : norm_one_read_kernel<WideGroup<BlockGroup, lanes>, centred, X, Y>,
                  rows, columns, pointers);
  with_lanes<X>(wide, [&](auto width) {
    launch_rows(stream, rows, columns, norm_kernel<WideGroup<WarpGroup, width>, centred, X, Y>,
                norm_kernel<WideGroup<BlockGroup, width>, centred, X, Y>, pointers);
  });
}

/// Layer norm where `mean` is given, else RMS norm.
void normalise(const kernels::LayerNormArguments& a, const char* op, StreamRef stream) {
  dispatch_norm(a.x.dtype, a.y.dtype, op, [&]<class X, class Y>(TypeTag<X>, TypeTag<Y>) {
    a.mean ? norm_rows<true, X, Y>(a, stream) : norm_rows<false, X, Y>(a, stream);
  });
}

}  // namespace

void norm::layer_norm(const kernels::LayerNormArguments& a, StreamRef stream) {
  normalise(a, "layer_norm", stream);
}

// RMS norm is layer norm without mean and bias, and so are its kernels.
void norm::rms_norm(const kernels::RmsNormArguments& a, StreamRef stream) {
  normalise({.y = a.y, .rstd = a.rstd, .x = a.x, .weight = a.weight, .eps = a.eps}, "rms_norm",
            stream);
}

}  // namespace lockstep::cuda_kernels
