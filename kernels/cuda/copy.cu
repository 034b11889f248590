#include "arguments/elementwise.hpp"
#include "cuda/pointwise.hpp"

namespace lockstep::cuda_kernels {
namespace {

template <class To, class From>
struct Convert {
  __device__ To operator()(From value) const { return convert<To>(value); }
};

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

/// An unsigned integer of the same size: copies within a dtype need one kernel a size.
template <std::size_t Bytes>
using Bits = std::conditional_t<
    Bytes == 8, std::uint64_t,
    std::conditional_t<Bytes == 4, std::uint32_t,
                       std::conditional_t<Bytes == 2, std::uint16_t, std::uint8_t>>>;

template <std::size_t Bytes>
void copy_bits(const ArrayView& out, const ArrayView& in, StreamRef stream) {
  using T = Bits<Bytes>;
  pointwise<T, T>(stream, Convert<T, T>{}, out, in);
}

void copy_same(const ArrayView& out, const ArrayView& in, StreamRef stream) {
  switch (size_of(out.dtype)) {
    case 8: return copy_bits<8>(out, in, stream);
    case 4: return copy_bits<4>(out, in, stream);
    case 2: return copy_bits<2>(out, in, stream);
    default: return copy_bits<1>(out, in, stream);
  }
}

}  // namespace

void elementwise::copy(const kernels::CopyArguments& arguments, StreamRef stream) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  if (out.dtype == in.dtype) return copy_same(out, in, stream);
  dispatch_all(out.dtype, "copy", [&]<class To>(TypeTag<To>) {
    dispatch_all(in.dtype, "copy", [&]<class From>(TypeTag<From>) {
      if constexpr (!std::is_same_v<To, From>)
        pointwise<To, From>(stream, Convert<To, From>{}, out, in);
    });
  });
}

void elementwise::fill(const kernels::FillArguments& arguments, StreamRef stream) {
  const ArrayView& out = arguments.out;
  const double value = arguments.value;
  dispatch_all(out.dtype, "fill", [&]<class T>(TypeTag<T>) {
    T element{};
    if constexpr (is_16_bit_float<T>)
      element = T(static_cast<float>(value));
    else
      element = static_cast<T>(value);
    using Word = Bits<sizeof(T)>;
    pointwise<Word>(stream, Constant<Word>{std::bit_cast<Word>(element)}, out);
  });
}

}  // namespace lockstep::cuda_kernels
