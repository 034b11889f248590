#include "cuda/maths.hpp"
#include "cuda/maths_common.hpp"
#include "functional/binary.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class T, class Functor>
struct Forward {
  Functor functor;
  using A = AccumulateType<T>;
  __device__ T operator()(T a, T b) const {
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

template <template <class> class Functor>
void run(std::string_view name, const ArrayView& out, const ArrayView& a, const ArrayView& b,
         OpConstants constants, StreamRef stream) {
  functional::check_same_dtype(name, out, a);
  functional::check_same_dtype(name, out, b);
  dispatch_served<Functor>(out.dtype, name, constants, stream.device, [&]<class T>(TypeTag<T>) {
    using F = Functor<AccumulateType<T>>;
    pointwise<T, T, T>(stream, Forward<T, F>{F(constants)}, out, a, b);
  });
}

template <template <class> class Functor, Saves saves, bool second>
void run_backward(std::string_view name, const ArrayView& gradient, const ArrayView& dout,
                  const ArrayView& a, const ArrayView& b, OpConstants constants, StreamRef stream) {
  dispatch_floating(gradient.dtype, name, [&]<class T>(TypeTag<T>) {
    using F = Functor<AccumulateType<T>>;
    const Backward<T, F, second> op{F(constants)};
    if constexpr (saves == Saves::nothing)
      pointwise<T, T>(stream, op, gradient, dout);
    else
      pointwise<T, T, T, T>(stream, op, gradient, dout, a, b);
  });
}

}  // namespace

void binary(BinaryOp op, const ArrayView& out, const ArrayView& a, const ArrayView& b,
            OpConstants constants, StreamRef stream) {
  switch (op) {
#define LOCKSTEP_BINARY_OP(name, Functor, ...) \
  case BinaryOp::name:                         \
    return run<functional::Functor>(#name, out, a, b, constants, stream);
#include "functional/ops.def"
  }
}

void binary_backward(BinaryOp op, bool second, const ArrayView& gradient, const ArrayView& dout,
                     const ArrayView& a, const ArrayView& b, OpConstants constants,
                     StreamRef stream) {
  switch (op) {
#define LOCKSTEP_BINARY_OP(name, Functor, saves, ...)                                              \
  case BinaryOp::name:                                                                             \
    return second ? run_backward<functional::Functor, Saves::saves, true>(#name, gradient, dout,   \
                                                                          a, b, constants, stream) \
                  : run_backward<functional::Functor, Saves::saves, false>(                        \
                        #name, gradient, dout, a, b, constants, stream);
#include "functional/ops.def"
  }
}

}  // namespace lockstep::cuda_kernels
