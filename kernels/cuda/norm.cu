#include "arguments/norm.hpp"
#include "cuda/columns.hpp"
#include "cuda/row_access.hpp"
#include "cuda/scratch.hpp"
#include "functional/norm.hpp"

namespace lockstep::cuda_kernels {
namespace {

using functional::NormStatistics;
using functional::NormSums;

template <class T>
struct NormPointers {
  T* y;
  AccumulateType<T>* mean;
  AccumulateType<T>* rstd;
  const T* x;
  const T* weight;
  const T* bias;
  AccumulateType<T> eps;
};

template <class Group, bool centred, class T>
__global__ void __launch_bounds__(row_threads)
    norm_kernel(std::int64_t rows, std::int64_t columns, NormPointers<T> p) {
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const auto statistics = functional::norm_row<centred, AccumulateType<T>>(
        group, p.y + row * columns, p.x + row * columns, p.weight, p.bias, columns, p.eps);
    if (group.rank() != 0) continue;
    if constexpr (centred) p.mean[row] = statistics.mean;
    p.rstd[row] = statistics.rstd;
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
  bool add_dx;
};

template <class Group, bool centred, class T>
__global__ void __launch_bounds__(row_threads)
    norm_backward_kernel(std::int64_t rows, std::int64_t columns, NormGradientPointers<T> p) {
  using A = AccumulateType<T>;
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const std::int64_t start = row * columns;
    functional::norm_backward_row<centred, A>(
        group, p.dx + start, p.dy + start, p.x + start, p.weight, columns,
        NormStatistics<A>{centred ? p.mean[row] : A(0), p.rstd[row]}, p.add_dx);
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
  __device__ NormSums<AccumulateType<T>> operator()(std::int64_t row, std::int64_t column) const {
    using A = AccumulateType<T>;
    const A g = convert<A>(dy[row * columns + column]);
    const NormStatistics<A> statistics{mean ? mean[row] : A(0), rstd[row]};
    return {g, g * statistics.normalise(convert<A>(x[row * columns + column]))};
  }
};

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

template <bool centred, class T>
void norm_rows(const kernels::LayerNormArguments& a, StreamRef stream) {
  using A = AccumulateType<T>;
  const std::int64_t columns = a.x.shape[1];
  const NormPointers<T> pointers{.y = a.y.as<T>(),
                                 .mean = a.mean.as<A>(),
                                 .rstd = a.rstd.as<A>(),
                                 .x = a.x.as<T>(),
                                 .weight = a.weight.as<T>(),
                                 .bias = a.bias.as<T>(),
                                 .eps = static_cast<A>(a.eps)};
  const bool wide = rows_are_wide<T>(columns, a.y.data, a.x.data, a.weight.data, a.bias.data);
  with_lanes<T>(wide, [&](auto lanes) {
    launch_rows(stream, a.x.shape[0], columns, norm_kernel<WideGroup<WarpGroup, lanes>, centred, T>,
                norm_kernel<WideGroup<BlockGroup, lanes>, centred, T>, pointers);
  });
}

template <bool centred, class T>
void norm_backward_rows(const kernels::LayerNormBackwardArguments& a, StreamRef stream) {
  using A = AccumulateType<T>;
  const std::int64_t columns = a.x.shape[1];
  const NormGradientPointers<T> pointers{.dx = a.dx.as<T>(),
                                         .dy = a.dy.as<T>(),
                                         .x = a.x.as<T>(),
                                         .weight = a.weight.as<T>(),
                                         .mean = a.mean.as<A>(),
                                         .rstd = a.rstd.as<A>(),
                                         .add_dx = a.add_dx};
  const bool wide = rows_are_wide<T>(columns, a.dx.data, a.dy.data, a.x.data, a.weight.data);
  with_lanes<T>(wide, [&](auto lanes) {
    launch_rows(stream, a.x.shape[0], columns,
                norm_backward_kernel<WideGroup<WarpGroup, lanes>, centred, T>,
                norm_backward_kernel<WideGroup<BlockGroup, lanes>, centred, T>, pointers);
  });
}

template <class T>
void norm_backward_typed(const kernels::LayerNormBackwardArguments& arguments, StreamRef stream) {
  using A = AccumulateType<T>;
  if (arguments.dx && arguments.mean)
    norm_backward_rows<true, T>(arguments, stream);
  else if (arguments.dx)
    norm_backward_rows<false, T>(arguments, stream);
  if (!arguments.dweight && !arguments.dbias) return;
  const std::int64_t rows = arguments.x.shape[0], columns = arguments.x.shape[1];
  const Scratch scratch(column_scratch<NormSums<A>>(rows, columns), stream);
  reduce_columns<NormSums<A>>(
      stream, rows, columns, static_cast<NormSums<A>*>(scratch.data()),
      WeightTerms<T>{arguments.dy.as<T>(), arguments.x.as<T>(), arguments.mean.as<A>(),
                     arguments.rstd.as<A>(), arguments.x.shape[1]},
      StoreWeightGradients<T>{arguments.dweight.as<T>(), arguments.dbias.as<T>(),
                              arguments.add_dweight, arguments.add_dbias});
}

/// Layer norm where `mean` is given, else RMS norm.
void normalise(const kernels::LayerNormArguments& arguments, const char* op, StreamRef stream) {
  dispatch_floating(arguments.x.dtype, op, [&]<class T>(TypeTag<T>) {
    arguments.mean ? norm_rows<true, T>(arguments, stream) : norm_rows<false, T>(arguments, stream);
  });
}

/// Gradients of layer norm where `mean` is given, else of RMS norm.
void normalise_backward(const kernels::LayerNormBackwardArguments& arguments, const char* op,
                        StreamRef stream) {
  dispatch_floating(arguments.x.dtype, op,
                    [&]<class T>(TypeTag<T>) { norm_backward_typed<T>(arguments, stream); });
}

}  // namespace

void norm::layer_norm(const kernels::LayerNormArguments& a, StreamRef stream) {
  normalise(a, "layer_norm", stream);
}

void norm::layer_norm_backward(const kernels::LayerNormBackwardArguments& a, StreamRef stream) {
  normalise_backward(a, "layer_norm_backward", stream);
}

// RMS norm is layer norm without mean and bias, and so are its kernels.
void norm::rms_norm(const kernels::RmsNormArguments& a, StreamRef stream) {
  normalise({.y = a.y, .rstd = a.rstd, .x = a.x, .weight = a.weight, .eps = a.eps}, "rms_norm",
            stream);
}

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
