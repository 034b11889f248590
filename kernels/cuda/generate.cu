#include "arguments/elementwise.hpp"
#include "arguments/random.hpp"
#include "cuda/launch.hpp"
#include "cuda/layout.hpp"
#include "cuda/vector.hpp"
#include "functional/random.hpp"
#include "functional/uniform_bound.hpp"

namespace lockstep::cuda_kernels {
namespace {

constexpr int threads = 256;
constexpr int lanes = 4;  // one block of random bits serves four elements

/// Calls `launch_part(set, first)` for parts of fewer than 2^31 elements in row-major order.
template <int K, class Launch>
void row_major_parts(const std::array<const ArrayView*, K>& views, Launch&& launch_part) {
  const ArraySet<K> arrays(views, ArraySet<K>::Order::row_major);
  std::int64_t first = 0;
  if (views[0]->numel() == 0) return;
  arrays.for_each_part([&](const ArraySet<K>& part) {
    launch_part(part, first);
    first += part.numel();
  });
}

template <class T>
__global__ void arange_kernel(T* out, std::int64_t count, double start, double step) {
  for (std::int64_t i = global_thread(); i < count; i += grid_threads())
    out[i] = convert<T>(start + static_cast<double>(i) * step);
}

/// Four elements from four random words.
struct Uniform {
  double low, high, last;
  template <class A>
  __device__ void operator()(const PhiloxBlock& bits, A (&value)[lanes]) const {
    const functional::UniformDraw<A> draw{A(low), A(high)};
    for (int j = 0; j < lanes; ++j) {
      const A drawn = draw(bits.word[j]);
      value[j] = drawn < A(last) ? drawn : A(last);
    }
  }
};

struct Normal {
  double mean, deviation;
  template <class A>
  __device__ void operator()(const PhiloxBlock& bits, A (&value)[lanes]) const {
    const functional::NormalDraw<A> draw{A(mean), A(deviation)};
    for (int j = 0; j < lanes; j += 2) draw(bits.word[j], bits.word[j + 1], value[j], value[j + 1]);
  }
};

template <class Draw, class T>
__global__ void __launch_bounds__(threads)
    draw_kernel(T* out, std::int64_t count, Draw draw, kernels::RandomPlace place) {
  const PhiloxState random = place.get();
  const std::int64_t blocks = (count + lanes - 1) / lanes;
  for (std::int64_t i = global_thread(); i < blocks; i += grid_threads()) {
    AccumulateType<T> value[lanes];
    draw(random.block(static_cast<std::uint64_t>(i)), value);
    for (int j = 0; j < lanes; ++j)
      if (i * lanes + j < count) out[i * lanes + j] = convert<T>(value[j]);
  }
}

template <class Draw>
void fill_from(const Draw& draw, const char* name, const ArrayView& out,
               const kernels::RandomPlace& random, StreamRef stream) {
  const std::int64_t count = out.numel();
  if (count == 0) return;
  dispatch_floating(out.dtype, name, [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for((count + lanes - 1) / lanes, threads), threads, 0, draw_kernel<Draw, T>,
           out.as<T>(), count, draw, random);
  });
}

/// `first_block` counts, in random blocks, what earlier parts of the array used.
template <class T>
__global__ void __launch_bounds__(threads)
    dropout_kernel(const __grid_constant__ Layout<2> layout, T* out, const T* in,
                   functional::DropoutDraw<AccumulateType<T>> draw, std::uint64_t first,
                   kernels::RandomPlace place) {
  using A = AccumulateType<T>;
  const PhiloxState random = place.get();
  const std::uint32_t step = gridDim.x * blockDim.x * lanes;
  for (std::uint32_t base = (blockIdx.x * blockDim.x + threadIdx.x) * lanes; base < layout.count;
       base += step) {
    const PhiloxBlock bits = random.block((first + base) / lanes);
    const auto at = layout.offsets(base);
    if (layout.vectorised && base + lanes <= layout.count) {
      Vector<T, lanes> value = load_vector<lanes>(in + at.of[1]);
      for (int j = 0; j < lanes; ++j)
        value.lane[j] = convert<T>(draw(bits.word[j], convert<A>(value.lane[j])));
      store_vector<lanes>(out + at.of[0], value);
      continue;
    }
    for (std::uint32_t j = 0; j < lanes && base + j < layout.count; ++j) {
      const auto one = layout.offsets(base + j);
      out[one.of[0]] = convert<T>(draw(bits.word[j], convert<A>(in[one.of[1]])));
    }
  }
}

/// The place travels in the arguments of the launch: nothing to keep, nothing to wait for.
__global__ void set_place_kernel(PhiloxState* memory, PhiloxState place) { *memory = place; }

template <class T>
__global__ void __launch_bounds__(threads)
    triangle_kernel(const __grid_constant__ Layout<2> layout, T* out, const T* in, bool upper,
                    std::int64_t diagonal, std::uint64_t first, std::int64_t rows,
                    std::int64_t columns) {
  const std::uint32_t step = gridDim.x * blockDim.x;
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < layout.count; i += step) {
    const auto at = layout.offsets(i);
    const auto index = static_cast<std::int64_t>(first + i);
    const std::int64_t column = index % columns;
    const std::int64_t row = index / columns % rows;
    const bool kept = upper ? column - row >= diagonal : column - row <= diagonal;
    out[at.of[0]] = kept ? in[at.of[1]] : T{};
  }
}

}  // namespace

void elementwise::arange(const kernels::ArangeArguments& a, StreamRef stream) {
  const std::int64_t count = a.out.numel();
  if (count == 0) return;
  dispatch_numeric(a.out.dtype, "arange", [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(count, threads), threads, 0, arange_kernel<T>, a.out.as<T>(), count,
           a.start, a.step);
  });
}

void random::uniform(const kernels::UniformArguments& a, StreamRef stream) {
  const double last = functional::last_of_uniform(a.low, a.high, a.out.dtype);
  fill_from(Uniform{a.low, a.high, last}, "uniform", a.out, a.random, stream);
}

void random::normal(const kernels::NormalArguments& a, StreamRef stream) {
  fill_from(Normal{a.mean, a.deviation}, "normal", a.out, a.random, stream);
}

void random::dropout(const kernels::DropoutArguments& arguments, StreamRef stream) {
  const ArrayView &out = arguments.out, &x = arguments.x;
  const double p = arguments.p;
  dispatch_floating(out.dtype, "dropout", [&]<class T>(TypeTag<T>) {
    using A = AccumulateType<T>;
    const functional::DropoutDraw<A> draw{static_cast<float>(p),
                                          p < 1.0 ? static_cast<A>(1.0 / (1.0 - p)) : A(0)};
    row_major_parts<2>({&out, &x}, [&](const ArraySet<2>& part, std::int64_t first) {
      LOCKSTEP_CHECK(first % lanes == 0, Unsupported, "dropout: an array of shape ", out.shape,
                     " is too large to be cut at a multiple of ", lanes, " elements");
      const auto layout = part.layout(lanes);
      launch(stream, grid_for(layout.count / lanes + 1, threads), threads, 0, dropout_kernel<T>,
             layout, reinterpret_cast<T*>(part.data[0]), reinterpret_cast<const T*>(part.data[1]),
             draw, static_cast<std::uint64_t>(first), arguments.random);
    });
  });
}

void random::set_place(const kernels::SetPlaceArguments& a, StreamRef stream) {
  launch(stream, 1, 1, 0, set_place_kernel, a.memory, a.place);
}

void elementwise::triangle(const kernels::TriangleArguments& arguments, StreamRef stream) {
  const ArrayView &out = arguments.out, &in = arguments.in;
  const std::int64_t rows = out.shape[out.rank() - 2];
  const std::int64_t columns = out.shape[out.rank() - 1];
  dispatch_all(out.dtype, "triangle", [&]<class T>(TypeTag<T>) {
    row_major_parts<2>({&out, &in}, [&](const ArraySet<2>& part, std::int64_t first) {
      const auto layout = part.layout(1);
      launch(stream, grid_for(layout.count, threads), threads, 0, triangle_kernel<T>, layout,
             reinterpret_cast<T*>(part.data[0]), reinterpret_cast<const T*>(part.data[1]),
             arguments.upper, arguments.diagonal, static_cast<std::uint64_t>(first), rows, columns);
    });
  });
}

}  // namespace lockstep::cuda_kernels
