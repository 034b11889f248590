#include "arguments/elementwise.hpp"
#include "cuda/maths_common.hpp"
#include "functional/binary.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class T, class Functor>
struct Forward {
  Functor functor;
  using A = AccumulateType<T>;
  template <class Left, class Right>
  __device__ T operator()(Left a, Right b) const {
    return convert<T>(functor.forward(convert<A>(a), convert<A>(b)));
  }
};

template <class T, class Functor, bool second>
struct Backward {
  Functor functor;
  using A = AccumulateType<T>;
  __device__ T operator()(T dout) const { return gradient(dout, A(0), A(0)); }
  __device__ T operator()(T dout, T a, T b) const {
    return gradient(dout, convert<A>(a), convert<A>(b));
  }

 private:
  __device__ T gradient(T dout, A a, A b) const {
    if constexpr (second)
      return convert<T>(functor.gradient_b(convert<A>(dout), a, b));
    else
      return convert<T>(functor.gradient_a(convert<A>(dout), a, b));
  }
};

/// f32 beside a lower precision.
void run_mixed_sum(const kernels::BinaryArguments& a, StreamRef stream) {
  const Forward<float, functional::Add<float>> sum{functional::Add<float>(a.constants)};
  const auto with_lower = [&]<class Lower>(TypeTag<Lower>) {
    if (a.a.dtype == DType::f32)
      pointwise<float, float, Lower>(stream, sum, a.out, a.a, a.b);
    else
      pointwise<float, Lower, float>(stream, sum, a.out, a.a, a.b);
  };
  const DType lower = a.a.dtype == DType::f32 ? a.b.dtype : a.a.dtype;
  lower == DType::bf16 ? with_lower(TypeTag<BFloat16>{}) : with_lower(TypeTag<Half>{});
}

template <template <class> class Functor>
void run(std::string_view name, const kernels::BinaryArguments& a, StreamRef stream) {
  functional::check_same_dtype(name, a.out, a.a);
  functional::check_same_dtype(name, a.out, a.b);
  dispatch_served<Functor>(a.out.dtype, name, a.constants, stream.device, [&]<class T>(TypeTag<T>) {
    using F = Functor<AccumulateType<T>>;
    pointwise<T, T, T>(stream, Forward<T, F>{F(a.constants)}, a.out, a.a, a.b);
  });
}

/// Both gradients of an op that saves its operands, each of which is read once.
template <int N, class T, class Functor>
__global__ void __launch_bounds__(pointwise_threads)
    both_gradients_kernel(const __grid_constant__ Layout<5> layout, const Functor functor, T* da,
                          T* db, const T* dout, const T* a, const T* b) {
  using A = AccumulateType<T>;
  const auto gradient_a = [&](T dy, T x, T y) {
    return convert<T>(functor.gradient_a(convert<A>(dy), convert<A>(x), convert<A>(y)));
  };
  const auto gradient_b = [&](T dy, T x, T y) {
    return convert<T>(functor.gradient_b(convert<A>(dy), convert<A>(x), convert<A>(y)));
  };
  for (std::int64_t i = global_thread() * N; i < layout.count; i += grid_threads() * N) {
    const auto at = layout.offsets(static_cast<std::uint32_t>(i));
    const int live = layout.count - i < N ? static_cast<int>(layout.count - i) : N;
    const auto dy = load_lanes<N>(dout + at.of[2], layout.strides[2][0], live);
    const auto x = load_lanes<N>(a + at.of[3], layout.strides[3][0], live);
    const auto y = load_lanes<N>(b + at.of[4], layout.strides[4][0], live);
    store_lanes<N>(da + at.of[0], apply_lanes<N, T>(gradient_a, dy, x, y), live);
    store_lanes<N>(db + at.of[1], apply_lanes<N, T>(gradient_b, dy, x, y), live);
  }
}

template <class T, class Functor>
void run_both(const Functor& functor, const kernels::BinaryBackwardArguments& a, StreamRef stream) {
  if (a.dout.numel() == 0) return;
  const ArraySet<5> arrays({&a.da, &a.db, &a.dout, &a.a, &a.b});
  arrays.for_each_part([&](const ArraySet<5>& part) {
    const auto queue = [&]<int N>(std::integral_constant<int, N>) {
      const auto layout = part.layout(N);
      launch(stream, grid_for((layout.count + N - 1) / N, pointwise_threads), pointwise_threads, 0,
             both_gradients_kernel<N, T, Functor>, layout, functor,
             reinterpret_cast<T*>(part.data[0]), reinterpret_cast<T*>(part.data[1]),
             reinterpret_cast<const T*>(part.data[2]), reinterpret_cast<const T*>(part.data[3]),
             reinterpret_cast<const T*>(part.data[4]));
    };
    if (part.can_vectorise(lanes_of<T>))
      queue(std::integral_constant<int, lanes_of<T>>{});
    else
      queue(std::integral_constant<int, 1>{});
  });
}

/// The gradient of one operand, the first one or the second; none where it is absent.
template <template <class> class Functor, Saves saves, bool second>
void run_backward(std::string_view name, const kernels::BinaryBackwardArguments& a,
                  StreamRef stream) {
  const ArrayView& gradient = second ? a.db : a.da;
  if (!gradient) return;
  dispatch_floating(gradient.dtype, name, [&]<class T>(TypeTag<T>) {
    using F = Functor<AccumulateType<T>>;
    const Backward<T, F, second> op{F(a.constants)};
    if constexpr (saves == Saves::nothing)
      pointwise<T, T>(stream, op, gradient, a.dout);
    else
      pointwise<T, T, T, T>(stream, op, gradient, a.dout, a.a, a.b);
  });
}

/// The gradients that are wanted, both in one launch.
template <template <class> class Functor, Saves saves>
void run_gradients(std::string_view name, const kernels::BinaryBackwardArguments& a,
                   StreamRef stream) {
  if constexpr (saves == Saves::inputs)
    if (a.da && a.db)
      return dispatch_floating(a.dout.dtype, name, [&]<class T>(TypeTag<T>) {
        run_both<T>(Functor<AccumulateType<T>>(a.constants), a, stream);
      });
  run_backward<Functor, saves, false>(name, a, stream);
  run_backward<Functor, saves, true>(name, a, stream);
}

}  // namespace

void elementwise::binary(const kernels::BinaryArguments& arguments, StreamRef stream) {
  if (functional::is_mixed_sum(arguments.op, arguments.out, arguments.a, arguments.b))
    return run_mixed_sum(arguments, stream);
  switch (arguments.op) {
#define LOCKSTEP_BINARY_OP(name, Functor, ...) \
  case BinaryOp::name:                         \
    return run<functional::Functor>(#name, arguments, stream);
#include "functional/ops.def"
  }
}

void elementwise::binary_backward(const kernels::BinaryBackwardArguments& arguments,
                                  StreamRef stream) {
  switch (arguments.op) {
#define LOCKSTEP_BINARY_OP(name, Functor, saves, ...) \
  case BinaryOp::name:                                \
    return run_gradients<functional::Functor, Saves::saves>(#name, arguments, stream);
#include "functional/ops.def"
  }
}

}  // namespace lockstep::cuda_kernels
