#include "arguments/rotary.hpp"
#include "cuda/pointwise.hpp"
#include "functional/rotary.hpp"

namespace lockstep::cuda_kernels {
namespace {

/// An array of rows: where both halves begin (two pointers, so that the compiler sees that all
/// accesses are aligned), and how far it is from one head of a thread to its next, in elements.
template <class T>
struct RotaryRows {
  T* first;
  T* second;
  std::int64_t head_step;
};

/// Each thread turns N neighbouring pairs of `heads` heads, all by the same angles.
/// @param layout of the first head of each thread: half rows of y and of x, cos, sin.
template <int N, int heads, class T>
__global__ void __launch_bounds__(pointwise_threads)
    rotary_kernel(const __grid_constant__ Layout<4> layout, RotaryRows<T> y, RotaryRows<const T> x,
                  const AccumulateType<T>* cos, const AccumulateType<T>* sin,
                  AccumulateType<T> direction) {
  using A = AccumulateType<T>;
  for (std::int64_t i = global_thread() * N; i < layout.count; i += grid_threads() * N) {
    const auto at = layout.offsets(static_cast<std::uint32_t>(i));
    const auto c = load_vector<N>(cos + at.of[2]), s = load_vector<N>(sin + at.of[3]);
    Vector<T, N> first[heads], second[heads];
    LOCKSTEP_UNROLL
    for (int h = 0; h < heads; ++h) {
      first[h] = load_vector<N>(x.first + at.of[1] + h * x.head_step);
      second[h] = load_vector<N>(x.second + at.of[1] + h * x.head_step);
    }
    LOCKSTEP_UNROLL
    for (int h = 0; h < heads; ++h) {
      LOCKSTEP_UNROLL
      for (int j = 0; j < N; ++j) {
        const auto point =
            functional::turned<A>({convert<A>(first[h].lane[j]), convert<A>(second[h].lane[j])},
                                  c.lane[j], direction * s.lane[j]);
        first[h].lane[j] = convert<T>(point.x);
        second[h].lane[j] = convert<T>(point.y);
      }
      store_vector<N>(y.first + at.of[0] + h * y.head_step, first[h]);
      store_vector<N>(y.second + at.of[0] + h * y.head_step, second[h]);
    }
  }
}

/// The first halves of the rows of every thread's first head: those below `heads`.
ArrayView first_halves(ArrayView rows, std::int64_t heads) {
  rows.shape[1] = heads;
  rows.shape[3] /= 2;
  return rows;
}

/// A table repeated over heads.
ArrayView over_heads(ArrayView table, std::int64_t heads) {
  table.shape.insert(1, heads);
  table.strides.insert(1, 0);
  return table;
}

template <int heads, class T>
void run(const kernels::RotaryArguments& a, StreamRef stream) {
  const std::int64_t threads = a.x.shape[1] / heads;
  const ArrayView y = first_halves(a.y, threads), x = first_halves(a.x, threads),
                  cos = over_heads(a.cos, threads), sin = over_heads(a.sin, threads);
  const std::int64_t half = x.shape[3], y_step = threads * y.strides[1],
                     x_step = threads * x.strides[1];
  const auto is_aligned = [&](const ArraySet<4>& part, int lanes) {
    return part.can_vectorise(lanes) && half % lanes == 0 && y_step % lanes == 0 &&
           x_step % lanes == 0;
  };
  const ArraySet<4> arrays({&y, &x, &cos, &sin});
  arrays.for_each_part([&](const ArraySet<4>& part) {
    const auto queue = [&]<int N>(std::integral_constant<int, N>) {
      using A = AccumulateType<T>;
      const auto layout = part.layout(N);
      T* const to = reinterpret_cast<T*>(part.data[0]);
      const T* const from = reinterpret_cast<const T*>(part.data[1]);
      launch(stream, grid_for((layout.count + N - 1) / N, pointwise_threads), pointwise_threads, 0,
             rotary_kernel<N, heads, T>, layout, RotaryRows<T>{to, to + half, y_step},
             RotaryRows<const T>{from, from + half, x_step},
             reinterpret_cast<const A*>(part.data[2]), reinterpret_cast<const A*>(part.data[3]),
             a.inverse ? A(-1) : A(1));
    };
    if (is_aligned(part, lanes_of<T>))
      queue(std::integral_constant<int, lanes_of<T>>{});
    else
      queue(std::integral_constant<int, 1>{});
  });
}

}  // namespace

void rotary::rotate(const kernels::RotaryArguments& a, StreamRef stream) {
  if (a.x.numel() == 0) return;
  dispatch_floating(a.x.dtype, "rotary_embedding", [&]<class T>(TypeTag<T>) {
    a.x.shape[1] % 4 == 0 ? run<4, T>(a, stream) : run<1, T>(a, stream);
  });
}

}  // namespace lockstep::cuda_kernels
