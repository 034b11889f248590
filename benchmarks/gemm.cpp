// Matrix products of a linear layer and of attention, on every CPU backend, dtype and thread count.
// GFLOP/s count two operations a multiply-add. The "square" case is the ceiling for the others.

#include "arguments/gemm.hpp"

#include <random>
#include <vector>

#include "backend/backend.hpp"
#include "lockstep/core/parallel.hpp"
#include "support/measure.hpp"
#include "support/report.hpp"

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

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("gemm", argc, argv);
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
