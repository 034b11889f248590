// Matrix products of a linear layer and of attention, on every CPU backend, dtype and thread count,
// or with --device cuda [--rows N] those of a GPT-2 step over N tokens on the first GPU. GFLOP/s
// count two operations a multiply-add. The "square" case is the ceiling for the others.

#include "arguments/gemm.hpp"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

#include "backend/backend.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/device.hpp"

namespace {

using namespace lockstep;
using kernels::Epilogue;

/// A product out [rows, columns] = a [rows, depth] @ b [depth, columns].
struct Case {
  const char* name;
  std::int64_t rows, columns, depth;
  bool transposed_a = false, transposed_b = false;
  Epilogue epilogue = Epilogue::none;
};

const Case cases[] = {
    {"square", 1024, 1024, 1024},
    {"forward x W^T", 2048, 1024, 256, false, true},
    {"dX = dY W", 2048, 256, 1024},
    {"dW = dY^T X", 1024, 256, 2048, true},
    {"forward + bias", 2048, 768, 256, false, true, Epilogue::bias},
    {"forward + gelu", 2048, 1024, 256, false, true, Epilogue::gelu_bias},
    {"dX * dgelu", 2048, 1024, 256, false, false, Epilogue::dgelu},
    {"logits", 2048, 4096, 256, false, true},
    {"small", 32, 64, 64},
    {"small x W^T", 32, 64, 64, false, true, Epilogue::bias},
    {"small dY^T X", 64, 64, 32, true},
};

/// Random values, not zeros: data changes a processor's clock.
class Matrix {
 public:
  Matrix(DType dtype, std::int64_t rows, std::int64_t columns, bool transposed)
      : memory_(static_cast<std::size_t>(rows * columns) * size_of(dtype) / 8 + 8) {
    view_ = {memory_.data(), dtype, {1, rows, columns}, {rows * columns, columns, 1}};
    if (transposed) view_.strides = {rows * columns, 1, rows};
    std::mt19937 engine(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      if (dtype == DType::f32)
        view_.as<float>()[i] = uniform(engine);
      else
        view_.as<BFloat16>()[i] = BFloat16(uniform(engine));
    }
  }
  const ArrayView& view() const { return view_; }

 private:
  std::vector<double> memory_;
  ArrayView view_;
};

void run(const benchmark::Report& report, const backend::Backend& backend, DType dtype,
         const Case& c) {
  const Matrix a(dtype, c.rows, c.depth, c.transposed_a);
  const Matrix b(dtype, c.depth, c.columns, c.transposed_b);
  const Matrix out(dtype, c.rows, c.columns, false), aux(dtype, c.rows, c.columns, false);
  const Matrix bias(dtype, 1, c.columns, false);
  const kernels::GemmArguments call{.out = out.view(),
                                    .a = a.view(),
                                    .b = b.view(),
                                    .epilogue = c.epilogue,
                                    .bias = {bias.view().data, dtype, {c.columns}, {1}},
                                    .aux = aux.view()};
  const auto timing = benchmark::measure([&] { backend.gemm.multiply(call, StreamRef{}); });
  const double work = 2.0 * static_cast<double>(c.rows * c.columns * c.depth);
  report.add({{"case", c.name},
              {"backend", backend.name},
              {"dtype", name(dtype)},
              {"threads", num_threads()},
              {"rows", c.rows},
              {"columns", c.columns},
              {"depth", c.depth},
              {"us_min", timing.minimum * 1e6},
              {"us_median", timing.median * 1e6},
              {"gflops", work / timing.minimum * 1e-9}});
}

/// Products of GPT-2 124M over so many tokens, forward and backward, with their epilogues.
std::vector<Case> gpt2_cases(std::int64_t rows) {
  const std::int64_t c = 768, square = std::min<std::int64_t>(rows, 8192);
  return {{"square", square, square, square, false, true},
          {"queries, keys, values", rows, 3 * c, c, false, true, Epilogue::bias},
          {"projection", rows, c, c, false, true, Epilogue::bias},
          {"up, GELU", rows, 4 * c, c, false, true, Epilogue::gelu_bias},
          {"down", rows, c, 4 * c, false, true, Epilogue::bias},
          {"dX of down, dGELU", rows, 4 * c, c, false, false, Epilogue::dgelu},
          {"dX of up", rows, c, 4 * c},
          {"dW of up", 4 * c, c, rows, true},
          {"dW of down", c, 4 * c, rows, true},
          {"logits", rows, 50257, c, false, true},
          {"logits, padded", rows, 50304, c, false, true}};
}

/// A matrix in a GPU's memory, transposed in its strides alone.
class GpuMatrix {
 public:
  GpuMatrix(Device device, std::int64_t rows, std::int64_t columns, bool transposed = false)
      : memory_(zeros({rows * columns}, {.dtype = DType::bf16, .device = device}).uniform_(-1, 1)),
        view_(memory_.view()) {
    view_.shape = {1, rows, columns};
    view_.strides = {rows * columns, transposed ? 1 : columns, transposed ? rows : 1};
  }
  const ArrayView& view() const { return view_; }

 private:
  Tensor memory_;
  ArrayView view_;
};

void run_on_gpu(const benchmark::Report& report, Device device, const Case& c) {
  const GpuMatrix a(device, c.rows, c.depth, c.transposed_a);
  const GpuMatrix b(device, c.depth, c.columns, c.transposed_b);
  const GpuMatrix out(device, c.rows, c.columns), aux(device, c.rows, c.columns);
  const GpuMatrix bias(device, 1, c.columns);
  const kernels::GemmArguments call{.out = out.view(),
                                    .a = a.view(),
                                    .b = b.view(),
                                    .epilogue = c.epilogue,
                                    .bias = {bias.view().data, DType::bf16, {c.columns}, {1}},
                                    .aux = aux.view()};
  const StreamRef stream = current_stream(device);
  const auto timing = benchmark::measure_queued(
      device, 10, [&] { backend::of(device).gemm.multiply(call, stream); });
  const double work = 2.0 * static_cast<double>(c.rows * c.columns * c.depth);
  report.add({{"case", c.name},
              {"device", "cuda"},
              {"dtype", name(DType::bf16)},
              {"rows", c.rows},
              {"columns", c.columns},
              {"depth", c.depth},
              {"us_min", timing.minimum * 1e6},
              {"us_median", timing.median * 1e6},
              {"gflops", work / timing.median * 1e-9}});
}

void run_on_gpu(const benchmark::Report& report, int argc, char** argv) {
  std::int64_t rows = 65536;
  for (int i = 1; i + 1 < argc; ++i)
    if (std::string_view(argv[i]) == "--rows") rows = std::max(1, std::atoi(argv[i + 1]));
  const Device device = benchmark::first_gpu();
  for (const Case& c : gpt2_cases(rows)) run_on_gpu(report, device, c);
}

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("gemm", argc, argv);
  if (benchmark::asks_for_gpu(argc, argv))
    return benchmark::run_benchmark("gemm", [&] { run_on_gpu(report, argc, argv); });
  const int threads = num_threads();
  for (const int count : {1, threads}) {
    set_num_threads(count);
    for (const auto& each : backend::cpu_backends()) {
      backend::use_cpu_backend(each);
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const Case& c : cases) run(report, backend::of(cpu), dtype, c);
    }
    if (threads == 1) break;
  }
}
