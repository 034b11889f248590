#include "arguments/index.hpp"
#include "cuda/launch.hpp"
#include "cuda/lines.hpp"
#include "cuda/vector.hpp"

namespace lockstep::cuda_kernels {
namespace {

constexpr int threads = 256;

template <class T>
__global__ void __launch_bounds__(threads)
    gather_kernel(const __grid_constant__ Lines<3> lines, T* out, const T* in,
                  const std::int64_t* index, T missing) {
  const std::int64_t length = lines.length[0];
  const std::int64_t count = length * lines.starts.count;
  for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
    const std::int64_t place = i % length;
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i / length));
    const std::int64_t from = index[at.of[2] + place * lines.stride[2]];
    const bool valid = from >= 0 && from < lines.length[1];
    out[at.of[0] + place * lines.stride[0]] =
        valid ? in[at.of[1] + from * lines.stride[1]] : missing;
  }
}

/// A thread a line: what meets at one element is added in the order of the line.
template <class T>
__global__ void __launch_bounds__(threads)
    scatter_add_kernel(const __grid_constant__ Lines<3> lines, const T* in, T* out,
                       const std::int64_t* index) {
  using A = AccumulateType<T>;
  for (std::int64_t i = global_thread(); i < lines.starts.count; i += grid_threads()) {
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i));
    for (std::int64_t j = 0; j < lines.length[0]; ++j) {
      const std::int64_t to = index[at.of[2] + j * lines.stride[2]];
      if (to < 0 || to >= lines.length[1]) continue;
      T* const sum = out + at.of[1] + to * lines.stride[1];
      *sum = convert<T>(convert<A>(*sum) + convert<A>(in[at.of[0] + j * lines.stride[0]]));
    }
  }
}

/// A thread a line, likewise: the last one stays.
template <class T>
__global__ void __launch_bounds__(threads)
    scatter_kernel(const __grid_constant__ Lines<3> lines, const T* in, T* out,
                   const std::int64_t* index) {
  for (std::int64_t i = global_thread(); i < lines.starts.count; i += grid_threads()) {
    const auto at = lines.starts.offsets(static_cast<std::uint32_t>(i));
    for (std::int64_t j = 0; j < lines.length[0]; ++j) {
      const std::int64_t to = index[at.of[2] + j * lines.stride[2]];
      if (to < 0 || to >= lines.length[1]) continue;
      out[at.of[1] + to * lines.stride[1]] = in[at.of[0] + j * lines.stride[0]];
    }
  }
}

/// Elements that are only moved need one kernel a size.
template <class Visitor>
void dispatch_size(DType dtype, Visitor&& visit) {
  switch (size_of(dtype)) {
    case 8: return visit(TypeTag<std::uint64_t>{});
    case 4: return visit(TypeTag<std::uint32_t>{});
    case 2: return visit(TypeTag<std::uint16_t>{});
    default: return visit(TypeTag<std::uint8_t>{});
  }
}

/// What an index out of range gives: NaN, in integers 0.
constexpr std::uint64_t bits_of_missing(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x7ff8'0000'0000'0000;
    case DType::f32: return 0x7fc0'0000;
    case DType::bf16: return 0x7fc0;
    case DType::f16: return 0x7e00;
    default: return 0;
  }
}

}  // namespace

void index::gather(const kernels::GatherArguments& a, StreamRef stream) {
  if (a.out.numel() == 0) return;
  const auto lines = lines_along<3>(a.dim, {&a.out, &a.in, &a.index});
  dispatch_size(a.in.dtype, [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(a.out.numel(), threads), threads, 0, gather_kernel<T>, lines,
           a.out.as<T>(), a.in.as<T>(), a.index.as<std::int64_t>(),
           static_cast<T>(bits_of_missing(a.in.dtype)));
  });
}

void index::scatter(const kernels::ScatterArguments& a, StreamRef stream) {
  if (a.in.numel() == 0) return;
  const auto lines = lines_along<3>(a.dim, {&a.in, &a.out, &a.index});
  dispatch_size(a.in.dtype, [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(lines.starts.count, threads), threads, 0, scatter_kernel<T>, lines,
           a.in.as<T>(), a.out.as<T>(), a.index.as<std::int64_t>());
  });
}

void index::scatter_add(const kernels::ScatterAddArguments& a, StreamRef stream) {
  if (a.in.numel() == 0) return;
  const auto lines = lines_along<3>(a.dim, {&a.in, &a.out, &a.index});
  dispatch_numeric(a.in.dtype, "scatter_add", [&]<class T>(TypeTag<T>) {
    launch(stream, grid_for(lines.starts.count, threads), threads, 0, scatter_add_kernel<T>, lines,
           a.in.as<T>(), a.out.as<T>(), a.index.as<std::int64_t>());
  });
}

}  // namespace lockstep::cuda_kernels
