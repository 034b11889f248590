#include "cpu/loops/fill.hpp"
#include "functional/cross_entropy.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

using functional::SoloGroup;

template <class T>
void softmax(const SoftmaxRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  for (std::int64_t at = begin * a.columns; at < end * a.columns; at += a.columns) {
    T* const y = static_cast<T*>(a.out) + at;
    const T* const x = static_cast<const T*>(a.x) + at;
    if (a.log)
      functional::softmax_row<true, A>(SoloGroup{}, y, x, a.columns);
    else
      functional::softmax_row<false, A>(SoloGroup{}, y, x, a.columns);
  }
}

template <class T>
void softmax_backward(const SoftmaxRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  for (std::int64_t at = begin * a.columns; at < end * a.columns; at += a.columns) {
    T* const dx = static_cast<T*>(a.out) + at;
    const T* const dy = static_cast<const T*>(a.dy) + at;
    const T* const y = static_cast<const T*>(a.y) + at;
    if (a.log)
      functional::softmax_backward_row<true, A>(SoloGroup{}, dx, dy, y, a.columns);
    else
      functional::softmax_backward_row<false, A>(SoloGroup{}, dx, dy, y, a.columns);
  }
}

template <class T>
auto row_of(const CrossEntropyRows& a, std::int64_t row) {
  using A = AccumulateType<T>;
  return functional::CrossEntropyRow<A, T>{
      .logits = static_cast<const T*>(a.logits) + row * a.classes,
      .weight = static_cast<const A*>(a.weight),
      .classes = a.classes,
      .target = a.targets[row],
      .ignored = a.targets[row] == a.ignore_index,
      .smoothing = static_cast<A>(a.smoothing)};
}

template <class T>
void cross_entropy(const CrossEntropyRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  for (std::int64_t row = begin; row < end; ++row) {
    const auto result = functional::cross_entropy_row<A>(SoloGroup{}, row_of<T>(a, row));
    static_cast<A*>(a.loss)[row] = result.loss;
    static_cast<A*>(a.statistics)[2 * row] = result.maximum;
    static_cast<A*>(a.statistics)[2 * row + 1] = result.sum;
    static_cast<A*>(a.row_weight)[row] = result.row_weight;
  }
}

template <class T>
void cross_entropy_backward(const CrossEntropyRows& a, std::int64_t begin, std::int64_t end) {
  using A = AccumulateType<T>;
  for (std::int64_t row = begin; row < end; ++row) {
    const A* const kept = static_cast<const A*>(a.statistics) + 2 * row;
    functional::cross_entropy_backward_row<A>(
        SoloGroup{}, static_cast<T*>(a.dlogits) + row * a.classes,
        static_cast<const A*>(a.dloss)[row * a.dloss_stride],
        functional::SoftmaxStatistics<A>{kept[0], kept[1]}, row_of<T>(a, row));
  }
}

template <class T>
void add_dtype(RowLoops& loops) {
  constexpr auto dtype = static_cast<std::size_t>(dtype_of<T>);
  loops.softmax[dtype] = softmax<T>;
  loops.softmax_backward[dtype] = softmax_backward<T>;
  loops.cross_entropy[dtype] = cross_entropy<T>;
  loops.cross_entropy_backward[dtype] = cross_entropy_backward<T>;
}

}  // namespace

void fill_softmax(RowLoops& loops) {
  add_dtype<double>(loops);
  add_dtype<float>(loops);
  add_dtype<BFloat16>(loops);
  add_dtype<Half>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
