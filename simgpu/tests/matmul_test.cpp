#include "matmul.hpp"

#include <gtest/gtest.h>

namespace simgpu::test {
namespace {

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  constexpr double step = 1e-5;
  return (gelu(x + step) - gelu(x - step)) / (2 * step);
}

/// A product with its operands, on the host and on the device.
class Trial {
 public:
  explicit Trial(const Product& product)
      : product_(product),
        a_(random_values(product.a().size(product.batch), 1, product.in)),
        b_(random_values(product.b().size(product.batch), 2, product.in)),
        d_(random_values(product.d().size(product.batch), 3, product.out)),
        bias_(random_values(static_cast<std::size_t>(std::max(product.m, product.n)), 4,
                            product.out)),
        aux_(random_values(
            static_cast<std::size_t>(product.aux_leading() * product.n * product.batch), 5,
            product.out)) {}

  void check() {
    SCOPED_TRACE(::testing::Message()
                 << product_.m << " x " << product_.n << " x " << product_.k << " batch "
                 << product_.batch << " types " << product_.in << " " << product_.out
                 << " transposed " << product_.transpose_a << product_.transpose_b << " row-major "
                 << product_.row_major << " pad " << product_.pad << " epilogue "
                 << product_.epilogue);
    const bool aux = product_.epilogue & 128;
    run(aux);
    expect();
    compare("D", decode(device_d_->download(), product_.out), d_);
    compare("bias", decode(device_bias_->download(), product_.out), bias_);
    compare("aux", decode(device_aux_->download(), product_.out), aux_);
  }

 private:
  void run(bool aux) {
    const DeviceBuffer a(encode(a_, product_.in)), b(encode(b_, product_.in));
    device_d_.emplace(encode(d_, product_.out));
    device_bias_.emplace(encode(bias_, product_.out));
    device_aux_.emplace(encode(aux_, product_.out));
    Descriptors descriptors(product_);
    if (product_.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
      descriptors.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, device_bias_->data());
    if (aux) {
      descriptors.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, device_aux_->data());
      descriptors.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product_.aux_leading());
      descriptors.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
                      product_.aux_leading() * product_.n);
    }
    const auto scale = product_.wide() ? CUDA_R_64F : CUDA_R_32F;
    const auto alpha = encode({product_.alpha}, scale), beta = encode({product_.beta}, scale);
    const DeviceBuffer device_alpha(alpha), device_beta(beta);
    const bool on_device = product_.factors_on_device;
    ASSERT_EQ(descriptors.choose(), CUBLAS_STATUS_SUCCESS);
    ASSERT_GT(descriptors.count, 0);
    const auto& best = descriptors.found[0];
    const DeviceBuffer workspace(std::max<std::size_t>(best.workspaceSize, 1));
    ASSERT_EQ(
        cublasLtMatmul(descriptors.handle, descriptors.operation,
                       on_device ? device_alpha.data() : alpha.data(), a.data(), descriptors.a,
                       b.data(), descriptors.b, on_device ? device_beta.data() : beta.data(),
                       device_d_->data(), descriptors.c, device_d_->data(), descriptors.d,
                       &best.algo, workspace.data(), best.workspaceSize, nullptr),
        CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }

  double element_a(std::int64_t batch, std::int64_t i, std::int64_t p) const {
    return a_[product_.transpose_a ? product_.a().at(batch, p, i) : product_.a().at(batch, i, p)];
  }
  double element_b(std::int64_t batch, std::int64_t p, std::int64_t j) const {
    return b_[product_.transpose_b ? product_.b().at(batch, j, p) : product_.b().at(batch, p, j)];
  }

  /// Does to the host's copies what the product must have done to the device's.
  void expect() {
    std::vector<double> gradient(bias_.size(), 0.0);
    for (std::int64_t batch = 0; batch < product_.batch; ++batch)
      for (std::int64_t j = 0; j < product_.n; ++j)
        for (std::int64_t i = 0; i < product_.m; ++i) {
          double sum = 0;
          for (std::int64_t p = 0; p < product_.k; ++p)
            sum += element_a(batch, i, p) * element_b(batch, p, j);
          double& d = d_[product_.d().at(batch, i, j)];
          d = finish(product_.alpha * sum + (product_.beta != 0 ? product_.beta * d : 0), i,
                     aux_[static_cast<std::size_t>(
                         (batch * product_.n + j) * product_.aux_leading() + i)]);
          gradient[static_cast<std::size_t>(i)] += d;
        }
    if (product_.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD)
      std::copy(gradient.begin(), gradient.begin() + product_.m, bias_.begin());
    const bool of_a = product_.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    if (!of_a && product_.epilogue != CUBLASLT_EPILOGUE_BGRADB) return;
    for (std::int64_t i = 0; i < (of_a ? product_.m : product_.n); ++i) {
      double& sum = bias_[static_cast<std::size_t>(i)] = 0;
      for (std::int64_t p = 0; p < product_.k; ++p)
        sum += of_a ? element_a(0, i, p) : element_b(0, p, i);
    }
  }

  double finish(double value, std::int64_t row, double& aux) const {
    const double bias = bias_[static_cast<std::size_t>(row)];
    switch (product_.epilogue) {
      case CUBLASLT_EPILOGUE_RELU: return std::max(value, 0.0);
      case CUBLASLT_EPILOGUE_BIAS: return value + bias;
      case CUBLASLT_EPILOGUE_RELU_BIAS: return std::max(value + bias, 0.0);
      case CUBLASLT_EPILOGUE_GELU: return gelu(value);
      case CUBLASLT_EPILOGUE_GELU_BIAS: return gelu(value + bias);
      case CUBLASLT_EPILOGUE_GELU_AUX: return gelu(aux = value);
      case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: return gelu(aux = value + bias);
      case CUBLASLT_EPILOGUE_DGELU:
      case CUBLASLT_EPILOGUE_DGELU_BGRAD: return value * gelu_slope(aux);
      default: return value;
    }
  }

  /// Every element: the gaps between columns must be as they were.
  void compare(const char* what, const std::vector<double>& actual,
               const std::vector<double>& expected) const {
    const double unit = product_.out == CUDA_R_64F    ? 1e-14
                        : product_.out == CUDA_R_32F  ? 1e-6
                        : product_.out == CUDA_R_16BF ? 0x1p-8
                                                      : 0x1p-11;
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(
          actual[i], expected[i],
          unit * (2 + 2 * std::abs(expected[i]) + (unit < 1e-5 ? std::sqrt(product_.k) : 0)))
          << what << "[" << i << "]";
  }

  Product product_;
  std::vector<double> a_, b_, d_, bias_, aux_;
  std::optional<DeviceBuffer> device_d_, device_bias_, device_aux_;
};

void check(const Product& product) { Trial(product).check(); }

TEST(SimulatedMatmul, EveryTranspositionAndOrderGivesTheProduct) {
  for (const bool row_major : {false, true})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for (const std::int64_t pad : {0, 3})
          check({.m = 13,
                 .n = 7,
                 .k = 21,
                 .transpose_a = transpose_a,
                 .transpose_b = transpose_b,
                 .row_major = row_major,
                 .pad = pad});
}

TEST(SimulatedMatmul, ShapesAroundTheEdgesOfBlocks) {
  for (const std::int64_t m : {1, 16, 17, 128, 131})
    for (const std::int64_t n : {1, 6, 96, 97})
      for (const std::int64_t k : {1, 255, 257}) check({.m = m, .n = n, .k = k});
}

TEST(SimulatedMatmul, EveryTypeSumsWideAndRoundsOnce) {
  check({.m = 33, .n = 18, .k = 300, .in = CUDA_R_16BF, .out = CUDA_R_16BF});
  check({.m = 33, .n = 18, .k = 300, .in = CUDA_R_16F, .out = CUDA_R_16F});
  check({.m = 33, .n = 18, .k = 300, .in = CUDA_R_16BF, .out = CUDA_R_32F});
  check({.m = 33, .n = 18, .k = 300, .in = CUDA_R_16F, .out = CUDA_R_32F});
  check({.m = 33, .n = 18, .k = 300, .in = CUDA_R_64F, .out = CUDA_R_64F, .transpose_a = true});
}

TEST(SimulatedMatmul, BatchesAreStrided) {
  check({.m = 9, .n = 5, .k = 11, .batch = 4, .transpose_b = true, .pad = 2});
  check({.m = 9, .n = 5, .k = 11, .batch = 3, .in = CUDA_R_64F, .out = CUDA_R_64F});
}

TEST(SimulatedMatmul, AlphaAndBetaScaleFromHostAndDevice) {
  for (const bool device : {false, true}) {
    check({.m = 9, .n = 5, .k = 4, .alpha = -0.5, .beta = 2, .factors_on_device = device});
    check({.m = 9, .n = 5, .k = 4, .alpha = 0, .beta = 0.25, .factors_on_device = device});
    check({.m = 9,
           .n = 5,
           .k = 4,
           .in = CUDA_R_64F,
           .out = CUDA_R_64F,
           .alpha = 3,
           .beta = 1,
           .factors_on_device = device});
  }
}

TEST(SimulatedMatmul, DeepSumsTakeWorkspace) {
  const Product product{.m = 40, .n = 24, .k = 2048, .in = CUDA_R_16BF, .out = CUDA_R_16BF};
  Descriptors descriptors(product);
  ASSERT_EQ(descriptors.choose(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(descriptors.count, 2);
  EXPECT_GT(descriptors.found[0].workspaceSize, 0u);
  EXPECT_EQ(descriptors.found[1].workspaceSize, 0u);
  check(product);
}

class Epilogues : public ::testing::TestWithParam<cublasLtEpilogue_t> {};

TEST_P(Epilogues, FollowTheProductBeforeItIsRounded) {
  for (const cudaDataType_t type : {CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F}) {
    check({.m = 24, .n = 10, .k = 31, .in = type, .out = type, .epilogue = GetParam()});
    check({.m = 136,
           .n = 100,
           .k = 20,
           .in = type,
           .out = type,
           .transpose_a = true,
           .epilogue = GetParam(),
           .alpha = 0.5});
  }
  check({.m = 21, .n = 6, .k = 9, .pad = 4, .epilogue = GetParam(), .beta = 1});
}

INSTANTIATE_TEST_SUITE_P(All, Epilogues,
                         ::testing::Values(CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BIAS,
                                           CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU,
                                           CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_BIAS,
                                           CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
                                           CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,
                                           CUBLASLT_EPILOGUE_BGRADB));

}  // namespace
}  // namespace simgpu::test
