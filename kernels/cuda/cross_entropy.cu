#include "cuda/log_sum_exp.hpp"
#include "cuda/softmax.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class A>
inline constexpr A not_a_number = A(__builtin_nanf(""));

struct Smoothing {
  std::int64_t ignore_index;
  double amount;
};

/// Sum over the classes of weight[c] * f(c), with weights of 1 where there are none.
template <class Group, class T, class F>
__device__ AccumulateType<T> weighted_sum(const Group& group, std::int64_t classes, const T* weight,
                                          const F& f) {
  using A = AccumulateType<T>;
  A sum = 0;
  for (std::int64_t c = group.rank(); c < classes; c += group.size())
    sum += (weight ? convert<A>(weight[c]) : A(1)) * f(c);
  return group.reduce(sum, Sum{});
}

template <class Group, class T>
__global__ void __launch_bounds__(row_threads)
    cross_entropy_kernel(std::int64_t rows, std::int64_t classes, AccumulateType<T>* loss,
                         AccumulateType<T>* lse, AccumulateType<T>* row_weight, const T* logits,
                         const std::int64_t* targets, const T* weight, Smoothing smoothing,
                         bool wide) {
  using A = AccumulateType<T>;
  const Group group;
  const A amount = static_cast<A>(smoothing.amount);
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const T* const x = logits + row * classes;
    const std::int64_t target = targets[row];
    const A total = row_log_sum_exp<lanes_of<T>>(group, x, classes, wide).value();
    const bool ignored = target == smoothing.ignore_index;
    const bool valid = target >= 0 && target < classes;
    const A own = ignored  ? A(0)
                  : !valid ? not_a_number<A>
                  : weight ? convert<A>(weight[target])
                           : A(1);
    A result = valid && !ignored ? own * (total - convert<A>(x[target])) : own;
    if (amount != 0) {
      const A spread = weighted_sum(group, classes, weight,
                                    [&](std::int64_t c) { return total - convert<A>(x[c]); });
      if (!ignored) result = (1 - amount) * result + amount / static_cast<A>(classes) * spread;
    }
    if (group.rank() != 0) continue;
    loss[row] = result;
    lse[row] = total;
    row_weight[row] = own;
  }
}

template <class Group, class T>
__global__ void __launch_bounds__(row_threads)
    cross_entropy_backward_kernel(std::int64_t rows, std::int64_t classes, T* dlogits,
                                  const AccumulateType<T>* dloss, std::int64_t dloss_stride,
                                  const T* logits, const std::int64_t* targets, const T* weight,
                                  const AccumulateType<T>* lse, Smoothing smoothing, bool wide) {
  using A = AccumulateType<T>;
  constexpr int N = lanes_of<T>;
  const Group group;
  const A even = static_cast<A>(smoothing.amount) / static_cast<A>(classes);
  const A all =
      even != 0 ? weighted_sum(group, classes, weight, [](std::int64_t) { return A(1); }) : A(0);
  for (std::int64_t row = first_row<Group>(); row < rows; row += row_step<Group>()) {
    const std::int64_t target = targets[row];
    const bool ignored = target == smoothing.ignore_index;
    const bool valid = target >= 0 && target < classes;
    const A own = ignored  ? A(0)
                  : !valid ? not_a_number<A>
                  : weight ? convert<A>(weight[target])
                           : A(1);
    const A direct = (1 - static_cast<A>(smoothing.amount)) * own;
    const A spread = ignored ? A(0) : even;
    const A gradient = ignored ? A(0) : dloss[row * dloss_stride];
    const A total = lse[row];
    for_each_chunk<N>(group, classes, [&](std::int64_t at) {
      auto x = load_row<N>(logits + row * classes, at, classes, wide);
      LOCKSTEP_UNROLL
      for (int j = 0; j < N; ++j) {
        const A p = functional::math::exp(x.value[j] - total);
        A slope = direct * (at + j == target ? p - 1 : p);
        if (spread != 0 && at + j < classes)
          slope += spread * (p * all - (weight ? convert<A>(weight[at + j]) : A(1)));
        x.value[j] = ignored ? A(0) : gradient * slope;
      }
      store_row<N>(dlogits + row * classes, at, classes, wide, x);
    });
  }
}

template <class T>
const T* or_null(const ArrayView& view) {
  return view ? view.as<T>() : nullptr;
}

}  // namespace

void cross_entropy(const CrossEntropyArrays& arrays, std::int64_t ignore_index, double smoothing,
                   StreamRef stream) {
  const std::int64_t rows = arrays.logits.shape[0];
  const std::int64_t classes = arrays.logits.shape[1];
  dispatch_floating(arrays.logits.dtype, "cross_entropy", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    launch_rows(stream, rows, classes, cross_entropy_kernel<WarpGroup, T>,
                cross_entropy_kernel<BlockGroup, T>, arrays.loss.as<A>(), arrays.lse.as<A>(),
                arrays.row_weight.as<A>(), arrays.logits.as<T>(), arrays.targets.as<std::int64_t>(),
                or_null<T>(arrays.weight), Smoothing{ignore_index, smoothing},
                rows_are_wide<T>(classes, arrays.logits.data));
  });
}

void cross_entropy_backward(const CrossEntropyGradients& arrays, std::int64_t ignore_index,
                            double smoothing, StreamRef stream) {
  const std::int64_t rows = arrays.logits.shape[0];
  const std::int64_t classes = arrays.logits.shape[1];
  dispatch_floating(arrays.logits.dtype, "cross_entropy_backward", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    launch_rows(stream, rows, classes, cross_entropy_backward_kernel<WarpGroup, T>,
                cross_entropy_backward_kernel<BlockGroup, T>, arrays.dlogits.as<T>(),
                arrays.dloss.as<A>(), arrays.dloss.strides[0], arrays.logits.as<T>(),
                arrays.targets.as<std::int64_t>(), or_null<T>(arrays.weight), arrays.lse.as<A>(),
                Smoothing{ignore_index, smoothing},
                rows_are_wide<T>(classes, arrays.dlogits.data, arrays.logits.data));
  });
}

}  // namespace lockstep::cuda_kernels
