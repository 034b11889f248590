#include "cuda/columns.hpp"
#include "cuda/norm.hpp"
#include "cuda/row_access.hpp"
#include "functional/math.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class T>
struct NormPointers {
  T* y;
  AccumulateType<T>* mean;
  AccumulateType<T>* rstd;
  const T* x;
  const T* weight;
  const T* bias;
  AccumulateType<T> eps;
  bool wide;
};

/// Sum over the row of f(x).
template <int N, class Group, class T, class F>
__device__ AccumulateType<T> row_sum(const Group& group, const T* row, std::int64_t columns,
                                     bool wide, const F& f) {
  AccumulateType<T> sum = 0;
  for_each_chunk<N>(group, columns, [&](std::int64_t at) {
    const auto x = load_row<N>(row, at, columns, wide);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j)
      if (wide || at + j < columns) sum += f(x.value[j]);
  });
  return group.reduce(sum, Sum{});
}

template <class Group, class T>
__global__ void __launch_bounds__(row_threads)
    norm_kernel(std::int64_t rows, std::int64_t columns, NormPointers<T> p) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T>;
  const Group group;
  const A count = static_cast<A>(columns);
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const T* const in = p.x + row * columns;
    A mean = 0;
    if (p.mean) mean = row_sum<N>(group, in, columns, p.wide, [](A x) { return x; }) / count;
    const A variance =
        row_sum<N>(group, in, columns, p.wide, [&](A x) { return (x - mean) * (x - mean); }) /
        count;
    const A rstd = 1 / functional::math::sqrt(variance + p.eps);
    for_each_chunk<N>(group, columns, [&](std::int64_t at) {
      auto x = load_row<N>(in, at, columns, p.wide);
      LOCKSTEP_UNROLL
      for (int j = 0; j < N; ++j) x.value[j] = (x.value[j] - mean) * rstd;
      if (p.weight) {
        const auto weight = load_row<N>(p.weight, at, columns, p.wide);
        LOCKSTEP_UNROLL
        for (int j = 0; j < N; ++j) x.value[j] *= weight.value[j];
      }
      if (p.bias) {
        const auto bias = load_row<N>(p.bias, at, columns, p.wide);
        LOCKSTEP_UNROLL
        for (int j = 0; j < N; ++j) x.value[j] += bias.value[j];
      }
      store_row<N>(p.y + row * columns, at, columns, p.wide, x);
    });
    if (group.rank() != 0) continue;
    if (p.mean) p.mean[row] = mean;
    p.rstd[row] = rstd;
  }
}

template <class T>
struct NormGradientPointers {
  T* dx;
  const T* dy;
  const T* x;
  const T* weight;
  const AccumulateType<T>* mean;
  const AccumulateType<T>* rstd;
  bool wide;
};

/// Two sums that travel together.
template <class A>
struct Pair {
  A first, second;
  __device__ friend Pair operator+(const Pair& a, const Pair& b) {
    return {a.first + b.first, a.second + b.second};
  }
};

/// The gradient of the normalised values, and the values themselves, of N elements.
template <int N, class T>
struct NormTerms {
  Lanes<T, N> g, normal;

  __device__ NormTerms(const NormGradientPointers<T>& p, std::int64_t row, std::int64_t at,
                       std::int64_t columns)
      : g(load_row<N>(p.dy + row * columns, at, columns, p.wide)),
        normal(load_row<N>(p.x + row * columns, at, columns, p.wide)) {
    const auto mean = p.mean ? p.mean[row] : AccumulateType<T>(0);
    const auto rstd = p.rstd[row];
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j)
      normal.value[j] =
          p.wide || at + j < columns ? (normal.value[j] - mean) * rstd : AccumulateType<T>(0);
    if (!p.weight) return;
    const auto weight = load_row<N>(p.weight, at, columns, p.wide);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j) g.value[j] *= weight.value[j];
  }
};

template <class Group, class T>
__global__ void __launch_bounds__(row_threads)
    norm_backward_kernel(std::int64_t rows, std::int64_t columns, NormGradientPointers<T> p) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T>;
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    Pair<A> sums{0, 0};
    for_each_chunk<N>(group, columns, [&](std::int64_t at) {
      const NormTerms<N, T> terms(p, row, at, columns);
      LOCKSTEP_UNROLL
      for (int j = 0; j < N; ++j)
        sums = sums + Pair<A>{terms.g.value[j], terms.g.value[j] * terms.normal.value[j]};
    });
    sums = group.reduce(sums, Sum{});
    const A offset = p.mean ? sums.first / static_cast<A>(columns) : A(0);
    const A slope = sums.second / static_cast<A>(columns);
    const A rstd = p.rstd[row];
    for_each_chunk<N>(group, columns, [&](std::int64_t at) {
      NormTerms<N, T> terms(p, row, at, columns);
      LOCKSTEP_UNROLL
      for (int j = 0; j < N; ++j)
        terms.g.value[j] = rstd * (terms.g.value[j] - offset - terms.normal.value[j] * slope);
      store_row<N>(p.dx + row * columns, at, columns, p.wide, terms.g);
    });
  }
}

/// What a row adds to dweight and dbias of one column.
template <class T>
struct WeightTerms {
  const T* dy;
  const T* x;
  const AccumulateType<T>* mean;
  const AccumulateType<T>* rstd;
  std::int64_t columns;
  __device__ Pair<AccumulateType<T>> operator()(std::int64_t row, std::int64_t column) const {
    using A = AccumulateType<T>;
    const A g = convert<A>(dy[row * columns + column]);
    const A centred = convert<A>(x[row * columns + column]) - (mean ? mean[row] : A(0));
    return {g * centred * rstd[row], g};
  }
};

template <class T>
struct StoreWeightGradients {
  T* dweight;
  T* dbias;
  bool accumulate;
  __device__ void operator()(std::int64_t column, const Pair<AccumulateType<T>>& sums) const {
    if (dweight) store(dweight + column, sums.first);
    if (dbias) store(dbias + column, sums.second);
  }

 private:
  __device__ void store(T* to, AccumulateType<T> value) const {
    *to = convert<T>(accumulate ? convert<AccumulateType<T>>(*to) + value : value);
  }
};

template <class T>
const T* or_null(const ArrayView& view) {
  return view ? view.as<T>() : nullptr;
}

template <class T>
void norm_typed(const kernels::LayerNormArguments& arguments, StreamRef stream) {
  using A = AccumulateType<T>;
  const std::int64_t rows = arguments.x.shape[0];
  const std::int64_t columns = arguments.x.shape[1];
  const bool wide = rows_are_wide<T>(columns, arguments.y.data, arguments.x.data,
                                     arguments.weight.data, arguments.bias.data);
  const NormPointers<T> pointers{
      arguments.y.as<T>(),           arguments.mean ? arguments.mean.as<A>() : nullptr,
      arguments.rstd.as<A>(),        arguments.x.as<T>(),
      or_null<T>(arguments.weight),  or_null<T>(arguments.bias),
      static_cast<A>(arguments.eps), wide};
  launch_rows(stream, rows, columns, norm_kernel<WarpGroup, T>, norm_kernel<BlockGroup, T>,
              pointers);
}

template <class T>
void norm_backward_typed(const kernels::LayerNormBackwardArguments& arguments, void* scratch,
                         StreamRef stream) {
  using A = AccumulateType<T>;
  const std::int64_t rows = arguments.x.shape[0];
  const std::int64_t columns = arguments.x.shape[1];
  const A* const mean = or_null<A>(arguments.mean);
  if (arguments.dx) {
    const bool wide = rows_are_wide<T>(columns, arguments.dx.data, arguments.dy.data,
                                       arguments.x.data, arguments.weight.data);
    launch_rows(
        stream, rows, columns, norm_backward_kernel<WarpGroup, T>,
        norm_backward_kernel<BlockGroup, T>,
        NormGradientPointers<T>{arguments.dx.as<T>(), arguments.dy.as<T>(), arguments.x.as<T>(),
                                or_null<T>(arguments.weight), mean, arguments.rstd.as<A>(), wide});
  }
  if (!arguments.dweight && !arguments.dbias) return;
  reduce_columns<Pair<A>>(
      stream, rows, columns, static_cast<Pair<A>*>(scratch),
      WeightTerms<T>{arguments.dy.as<T>(), arguments.x.as<T>(), mean, arguments.rstd.as<A>(),
                     columns},
      StoreWeightGradients<T>{arguments.dweight ? arguments.dweight.as<T>() : nullptr,
                              arguments.dbias ? arguments.dbias.as<T>() : nullptr,
                              arguments.accumulate});
}

}  // namespace

void layer_norm(const kernels::LayerNormArguments& arguments, StreamRef stream) {
  dispatch_floating(arguments.x.dtype, "layer_norm",
                    [&]<class T>(TypeTag<T>) { norm_typed<T>(arguments, stream); });
}

std::size_t norm_scratch_bytes(const kernels::LayerNormBackwardArguments& arguments) {
  if (!arguments.dweight && !arguments.dbias) return 0;
  return column_scratch<Pair<double>>(arguments.x.shape[0], arguments.x.shape[1]);
}

void layer_norm_backward(const kernels::LayerNormBackwardArguments& arguments, void* scratch,
                         StreamRef stream) {
  dispatch_floating(arguments.x.dtype, "layer_norm_backward", [&]<class T>(TypeTag<T>) {
    norm_backward_typed<T>(arguments, scratch, stream);
  });
}

}  // namespace lockstep::cuda_kernels
