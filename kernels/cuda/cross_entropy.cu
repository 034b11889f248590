#include "arguments/cross_entropy.hpp"
#include "arguments/elementwise.hpp"
#include "cuda/kept_logits.hpp"
#include "cuda/pointwise.hpp"
#include "cuda/scratch.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class Group, class T>
__global__ void __launch_bounds__(row_threads)
    cross_entropy_kernel(std::int64_t rows, std::int64_t classes, LossRows<T> losses,
                         LogitRows<T> logits) {
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const auto result = functional::cross_entropy_row(group, logits.row(row, classes));
    if (group.rank() != 0) continue;
    losses.loss[row] = result.loss;
    losses.statistics[row] = {result.maximum, result.sum};
    losses.row_weight[row] = result.row_weight;
  }
}

template <class T>
struct LossGradient {
  const AccumulateType<T>* dloss;
  std::int64_t stride;
  const functional::SoftmaxStatistics<AccumulateType<T>>* statistics;
};

template <class Group, class T>
__global__ void __launch_bounds__(row_threads)
    cross_entropy_backward_kernel(std::int64_t rows, std::int64_t classes, T* dlogits,
                                  LossGradient<T> given, LogitRows<T> logits) {
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>())
    functional::cross_entropy_backward_row(group, dlogits + row * classes,
                                           given.dloss[row * given.stride], given.statistics[row],
                                           logits.row(row, classes));
}

/// Threads of a block that goes over a long row twice: so many that the rows of all blocks on the
/// device fit into its L2.
constexpr int gradient_threads = 1024;

template <class Group>
constexpr int threads_of = std::is_base_of_v<WarpGroup, Group> ? row_threads : gradient_threads;

template <class Group, class T>
__global__ void __launch_bounds__(threads_of<Group>)
    cross_entropy_gradient_kernel(std::int64_t rows, std::int64_t classes, T* in_place,
                                  std::int64_t padding, LossRows<T> losses,
                                  const AccumulateType<T>* dloss, std::int64_t dloss_stride,
                                  LogitRows<T> logits) {
  using A = AccumulateType<T>;
  const Group group;
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    T* const own = in_place + row * logits.pitch;
    const auto result = functional::cross_entropy_gradient_row(
        group, own, padding, dloss ? dloss[row * dloss_stride] : A(1),
        functional::online_softmax_statistics<A>(group, own, classes), logits.row(row, classes));
    if (group.rank() != 0) continue;
    losses.loss[row] = result.loss;
    losses.row_weight[row] = result.row_weight;
  }
}

template <class Out, class Unit>
struct ScaleGradient {
  using A = AccumulateType<Out>;
  const A* dloss;    ///< null: 1
  const A* counted;  ///< null: 1

  __device__ A scaled(Unit unit) const {
    return convert<A>(unit) *
           functional::gradient_factor(dloss ? *dloss : A(1), counted ? *counted : A(1));
  }
  __device__ Out operator()(Unit unit) const { return convert<Out>(scaled(unit)); }
  __device__ Out operator()(Unit unit, Out held) const {
    return convert<Out>(convert<A>(held) + scaled(unit));
  }
};

template <class Out, class Unit>
void scale_gradient_of(const kernels::ScaleGradientArguments& a, StreamRef stream) {
  using A = AccumulateType<Out>;
  const ScaleGradient<Out, Unit> op{a.dloss ? a.dloss.as<A>() : nullptr,
                                    a.counted ? a.counted.as<A>() : nullptr};
  if (a.accumulate)
    pointwise<Out, Unit, Out>(stream, op, a.out, a.unit, a.out);
  else
    pointwise<Out, Unit>(stream, op, a.out, a.unit);
}

template <class T, class Arguments>
LogitRows<T> logit_rows(const Arguments& arguments, const ArrayView& weight) {
  using A = AccumulateType<T>;
  return {arguments.logits.template as<T>(),
          weight ? weight.as<A>() : nullptr,
          arguments.targets.template as<std::int64_t>(),
          arguments.logits.strides[0],
          arguments.options.ignore_index,
          static_cast<A>(arguments.options.label_smoothing)};
}

/// Class weights in the statistics dtype: the array itself, or a converted copy.
class ClassWeights {
 public:
  ClassWeights(const ArrayView& given, StreamRef stream)
      : converted_(given && given.dtype != DType::f64 && given.dtype != DType::f32),
        scratch_(converted_ ? static_cast<std::size_t>(given.numel()) * sizeof(float) : 0, stream),
        view_(given) {
    if (!converted_) return;
    view_ = {scratch_.data(), DType::f32, given.shape, contiguous_strides(given.shape)};
    elementwise::copy({.out = view_, .in = given}, stream);
  }
  const ArrayView& view() const { return view_; }

 private:
  bool converted_;
  Scratch scratch_;
  ArrayView view_;
};

}  // namespace

void cross_entropy::forward(const kernels::CrossEntropyArguments& arguments, StreamRef stream) {
  const std::int64_t rows = arguments.logits.shape[0];
  const std::int64_t classes = arguments.logits.shape[1];
  const ClassWeights weight(arguments.weight, stream);
  dispatch_floating(arguments.logits.dtype, "cross_entropy", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    const LossRows<T> losses{arguments.loss.as<A>(), arguments.row_weight.as<A>(),
                             arguments.statistics.as<functional::SoftmaxStatistics<A>>()};
    const auto logits = logit_rows<T>(arguments, weight.view());
    with_lanes<T>(rows_are_wide<T>(logits.pitch, arguments.logits.data), [&](auto lanes) {
      launch_rows(stream, rows, classes, cross_entropy_kernel<WideGroup<WarpGroup, lanes>, T>,
                  cross_entropy_kernel<WideGroup<BlockGroup, lanes>, T>, losses, logits);
    });
  });
}

void cross_entropy::backward(const kernels::CrossEntropyBackwardArguments& arguments,
                             StreamRef stream) {
  const std::int64_t rows = arguments.logits.shape[0];
  const std::int64_t classes = arguments.logits.shape[1];
  const ClassWeights weight(arguments.weight, stream);
  dispatch_floating(arguments.logits.dtype, "cross_entropy_backward", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    const LossGradient<T> given{arguments.dloss.as<A>(), arguments.dloss.strides[0],
                                arguments.statistics.as<functional::SoftmaxStatistics<A>>()};
    const auto logits = logit_rows<T>(arguments, weight.view());
    const bool wide = rows_are_wide<T>(classes, arguments.dlogits.data, arguments.logits.data);
    with_lanes<T>(wide, [&](auto lanes) {
      launch_rows(stream, rows, classes,
                  cross_entropy_backward_kernel<WideGroup<WarpGroup, lanes>, T>,
                  cross_entropy_backward_kernel<WideGroup<BlockGroup, lanes>, T>,
                  arguments.dlogits.as<T>(), given, logits);
    });
  });
}

void cross_entropy::gradient(const kernels::CrossEntropyGradientArguments& arguments,
                             StreamRef stream) {
  const std::int64_t rows = arguments.logits.shape[0], classes = arguments.classes;
  if (rows == 0) return;
  const std::int64_t padding = arguments.logits.shape[1] - classes;
  const bool by_warps = classes <= most_columns_of_warp;
  dispatch_floating(arguments.logits.dtype, "cross_entropy", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    const LossRows<T> losses{arguments.loss.as<A>(), arguments.row_weight.as<A>(), nullptr};
    const auto logits = logit_rows<T>(arguments, {});
    const A* const dloss = arguments.dloss ? arguments.dloss.as<A>() : nullptr;
    const std::int64_t dloss_stride = dloss ? arguments.dloss.strides[0] : 0;
    const bool wide = rows_are_wide<T>(logits.pitch, arguments.logits.data);
    if constexpr (is_16_bit_float<T>) {
      const std::size_t bytes = kept_logits_bytes<T>(stream.device.index, classes);
      if (wide && !by_warps && bytes > 0) {
        const auto kernel =
            cross_entropy_gradient_kept_kernel<WideGroup<BlockGroup, lanes_of<T>>, T>;
        allow_shared_bytes(stream, kernel, most_kept_logits_bytes(stream.device.index));
        const std::int64_t most = kept_logits_blocks * multiprocessors_of(stream.device.index);
        return launch(stream, static_cast<unsigned>(std::min(rows, most)), kept_logits_threads,
                      bytes, kernel, rows, static_cast<int>(classes), arguments.logits.as<T>(),
                      padding, losses, dloss, dloss_stride, logits);
      }
    }
    const unsigned grid = by_warps ? grid_for(rows * warp_size, row_threads)
                                   : static_cast<unsigned>(std::min<std::int64_t>(rows, 65535));
    with_lanes<T>(wide, [&](auto lanes) {
      launch(stream, grid, by_warps ? row_threads : gradient_threads, 0,
             by_warps ? cross_entropy_gradient_kernel<WideGroup<WarpGroup, lanes>, T>
                      : cross_entropy_gradient_kernel<WideGroup<BlockGroup, lanes>, T>,
             rows, classes, arguments.logits.as<T>(), padding, losses, dloss, dloss_stride, logits);
    });
  });
}

void cross_entropy::scale_gradient(const kernels::ScaleGradientArguments& a, StreamRef stream) {
  dispatch_floating(a.out.dtype, "scale_gradient", [&]<class Out>(TypeTag<Out>) {
    using A = AccumulateType<Out>;
    if (a.unit.dtype == a.out.dtype)
      scale_gradient_of<Out, Out>(a, stream);
    else
      scale_gradient_of<Out, A>(a, stream);
  });
}

}  // namespace lockstep::cuda_kernels
