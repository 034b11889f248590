#include "backend/cuda/tuned_products.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/deterministic.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/process.hpp"
#include "support/temporary_folder.hpp"

// Products of cuBLASLt measured once and kept in a file. A process reads the file once: those of
// here run in processes of their own, which are this program again.

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

/// The gradient of the weight is large enough to be measured, and small and deep enough for two
/// kernels, of which one splits the sum.
constexpr std::int64_t rows = 1 << 15, inputs = 128, outputs = 256;

std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  std::ifstream from(file);
  for (std::string line; std::getline(from, line);) lines.push_back(line);
  return lines;
}

class TunedProducts : public ::testing::Test {
 protected:
  /// What the program says that runs the hidden test `name` over the file.
  std::string run(const std::string& name) const {
    const auto result = testing::run_command(
        "LOCKSTEP_TUNED_PRODUCTS=" + file_ +
        " " LOCKSTEP_THIS_PROGRAM
        " --gtest_also_run_disabled_tests --gtest_filter=InAProcess.DISABLED_" +
        name + " 2>&1");
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  }
  testing::TemporaryFolder folder_;
  std::string file_ = (folder_.path() / "products.txt").string();
};

TEST_F(TunedProducts, AreMeasuredOnceForAllPrograms) {
  run("Trains");
  const auto lines = lines_of(file_);
  ASSERT_THAT(lines, SizeIs(2));  // a product, and one that adds to what is there
  EXPECT_THAT(lines[0], HasSubstr("cuBLASLt"));

  // Kernels that cuBLASLt does not propose, as after a change of it, are not taken.
  const std::string unknown_kernel(128, '7');
  for (const std::string& line : lines)
    std::ofstream(file_, std::ios::app)
        << line.substr(0, line.find('\t') + 1) << unknown_kernel << "\t10.0\t12.0\n";
  run("Trains");
  const auto renewed = lines_of(file_);
  ASSERT_THAT(renewed, SizeIs(6));
  for (int i = 4; i < 6; ++i) EXPECT_THAT(renewed[i], Not(HasSubstr(unknown_kernel)));
  run("Trains");
  EXPECT_EQ(lines_of(file_), renewed) << "the last line of a problem counts";
}

TEST_F(TunedProducts, AreReadBackAndLinesThatSaySomethingElseAreLeftOut) {
  cublasLtMatmulAlgo_t kernel{};
  kernel.data[0] = 0x0123456789abcdef;
  kernel.data[7] = 42;
  cuda_kernels::TunedProducts(file_).keep("a product", kernel, 10.5, 12);
  std::ofstream(file_, std::ios::app)
      << "another\t0123\nhalf a line\na third\t" << std::string(128, '0') << "\tnan\t-1\n";
  std::string logged;
  set_log_sink([&](std::string_view line) { logged += line; });
  const cuda_kernels::TunedProducts read(file_);
  set_log_sink(nullptr);
  ASSERT_TRUE(read.find("a product"));
  EXPECT_TRUE(std::ranges::equal(read.find("a product")->data, kernel.data));
  EXPECT_FALSE(read.find("another"));
  EXPECT_FALSE(read.find("a third"));
  EXPECT_THAT(logged, AllOf(HasSubstr("line 2: not a tuned product"), HasSubstr("line 3"),
                            HasSubstr("line 4")));
}

TEST_F(TunedProducts, OfManyWritersAreAllThere) {
  std::ofstream(file_) << "half a line";
  constexpr int writers = 8, products = 40;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < writers; ++writer)
    threads.emplace_back([this, writer] {
      cuda_kernels::TunedProducts own(file_);
      for (int i = 0; i < products; ++i)
        own.keep("writer " + std::to_string(writer) + ", product " + std::to_string(i), {}, 1, 2);
    });
  for (std::thread& each : threads) each.join();
  const cuda_kernels::TunedProducts read(file_);
  for (int writer = 0; writer < writers; ++writer)
    for (int i = 0; i < products; ++i)
      EXPECT_TRUE(read.find("writer " + std::to_string(writer) + ", product " + std::to_string(i)));
  EXPECT_THAT(lines_of(file_), SizeIs(1 + writers * products));
}

TEST_F(TunedProducts, WithoutAFileToWriteAreToldAtOnce) {
  for (const std::string& file : {std::string("/dev/full"), folder_.path().string(),
                                  (folder_.path() / "nowhere" / "products").string()}) {
    std::string logged;
    set_log_sink([&](std::string_view line) { logged += line; });
    cuda_kernels::TunedProducts products(file);
    products.keep("a product", {}, 1, 2);
    set_log_sink(nullptr);
    EXPECT_THAT(logged, AllOf(HasSubstr(file), HasSubstr("no file that can be written")));
    EXPECT_TRUE(products.find("a product"));
  }
}

TEST_F(TunedProducts, AreLeftAloneWhereBitsCount) {
  run("IsDeterministic");
  EXPECT_THAT(lines_of(file_), IsEmpty());
}

/// A step over two micro-batches: the second adds to the gradient of the first.
void train() {
  const TensorOptions on_gpu{DType::bf16, cuda(0)};
  const Tensor x = ones({rows, inputs}, on_gpu), dy = ones({rows, outputs}, on_gpu);
  Tensor weight = ones({outputs, inputs}, on_gpu).set_requires_grad(true);
  for (int i = 0; i < 2; ++i) linear(x, weight).backward(dy);
  const Tensor gradient = weight.grad().to(cpu);
  EXPECT_EQ(amin(gradient, {}, false).item(), 2.0 * rows);
  EXPECT_EQ(amax(gradient, {}, false).item(), 2.0 * rows);
}

TEST(InAProcess, DISABLED_Trains) { train(); }

TEST(InAProcess, DISABLED_IsDeterministic) {
  set_deterministic_algorithms(true);
  train();
}

}  // namespace
}  // namespace lockstep
