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
#define LOCKSTEP_BINARY_OP(name, Functor, saves, ...)                                 \
  case BinaryOp::name:                                                                \
    run_backward<functional::Functor, Saves::saves, false>(#name, arguments, stream); \
    return run_backward<functional::Functor, Saves::saves, true>(#name, arguments, stream);
#include "functional/ops.def"
  }
}

}  // namespace lockstep::cuda_kernels
