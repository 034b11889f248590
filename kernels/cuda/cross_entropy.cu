#include "arguments/cross_entropy.hpp"
#include "arguments/elementwise.hpp"
#include "cuda/row_access.hpp"
#include "cuda/scratch.hpp"
#include "functional/cross_entropy.hpp"

namespace lockstep::cuda_kernels {
namespace {

/// Logits and targets of all rows.
template <class T>
struct LogitRows {
  const T* logits;
  const AccumulateType<T>* weight;
  const std::int64_t* targets;
  std::int64_t ignore_index;
  AccumulateType<T> smoothing;

  __device__ auto row(std::int64_t row, std::int64_t classes) const {
    return functional::CrossEntropyRow<AccumulateType<T>, T>{
        logits + row * classes,       weight,   classes, targets[row],
        targets[row] == ignore_index, smoothing};
  }
};

template <class T>
struct LossRows {
  AccumulateType<T>* loss;
  functional::SoftmaxStatistics<AccumulateType<T>>* statistics;
  AccumulateType<T>* row_weight;
};

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

template <class T, class Arguments>
LogitRows<T> logit_rows(const Arguments& arguments, const ArrayView& weight) {
  using A = AccumulateType<T>;
  return {arguments.logits.template as<T>(), weight ? weight.as<A>() : nullptr,
          arguments.targets.template as<std::int64_t>(), arguments.options.ignore_index,
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
    const LossRows<T> losses{arguments.loss.as<A>(),
                             arguments.statistics.as<functional::SoftmaxStatistics<A>>(),
                             arguments.row_weight.as<A>()};
    const auto logits = logit_rows<T>(arguments, weight.view());
    with_lanes<T>(rows_are_wide<T>(classes, arguments.logits.data), [&](auto lanes) {
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

}  // namespace lockstep::cuda_kernels
