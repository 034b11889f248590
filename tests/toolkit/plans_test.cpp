#include <filesystem>
#include <fstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/cudnn/known_faults.hpp"
#include "support/golden.hpp"
#include "support/place.hpp"
#include "toolkit/problem.hpp"

// cuDNN makes plans for GPUs that it only has a description of: what the tests of the simulated GPU
// asked of its stand-in must have a plan on the real ones.

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

fs::path data() { return testing::golden_dir().parent_path(); }

std::vector<std::string> problems() {
  std::vector<std::string> lines;
  std::ifstream in(data() / "cudnn_problems.txt");
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  return lines;
}

/// Name, compute capability, then cuDNN's text to the end, as describe_gpu writes them.
cudnn::GpuDescription read(const fs::path& path) {
  cudnn::GpuDescription gpu;
  std::ifstream in(path, std::ios::binary);
  std::string version;
  std::getline(in, gpu.name);
  std::getline(in, version);
  gpu.sm_version = std::stoi(version);
  gpu.properties.assign(std::istreambuf_iterator<char>(in), {});
  return gpu;
}

/// Fused attention asks the driver for a device, whatever is described: without one its graph is
/// found right, and that is all.
void expect_valid(const cudnn::GpuDescription& gpu, const std::string& problem) {
  try {
    has_plan(gpu, problem);
    ADD_FAILURE() << "a plan without a driver: ask for them here";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("cuda_get_device")) << problem;
  }
}

void expect_plans(const cudnn::GpuDescription& gpu) {
  const auto all = problems();
  ASSERT_FALSE(all.empty()) << "tests/data/cudnn_problems.txt holds no problem";
  const bool has_driver = cuda_device_count() > 0;
  for (const std::string& problem : all)
    if (has_driver || !problem.starts_with("attention"))
      EXPECT_TRUE(has_plan(gpu, problem)) << "no plan on " << gpu.name << " for " << problem;
    else
      expect_valid(gpu, problem);
}

TEST(CudnnFaults, AreKnownByVersionGpuAndShape) {
  using backend::cudnn::AttentionCase, backend::cudnn::has_known_fault;
  const AttentionCase plain{.version = 91900,
                            .sm_version = 90,
                            .is_backward = true,
                            .queries = 704,
                            .keys = 704,
                            .features = 64,
                            .of_values = 64};
  const auto with = [&](auto change) {
    AttentionCase asked = plain;
    change(asked);
    return has_known_fault(asked);
  };
  EXPECT_TRUE(has_known_fault(plain));
  EXPECT_FALSE(with([](auto& asked) { asked.is_backward = false; }));
  EXPECT_FALSE(with([](auto& asked) { asked.is_causal = true; }));
  EXPECT_TRUE(with([](auto& asked) { asked.is_causal = asked.has_mask = true; }));
  EXPECT_FALSE(with([](auto& asked) { asked.version = 92600; }));
  EXPECT_FALSE(with([](auto& asked) { asked.sm_version = 80; }));
  EXPECT_FALSE(with([](auto& asked) { asked.keys = 768; }));
  EXPECT_FALSE(with([](auto& asked) { asked.keys = 197; }));
  EXPECT_TRUE(
      with([](auto& asked) { asked.queries = 1, asked.keys = 128, asked.version = 92600; }));
  const auto of_sizes = [&](std::int64_t features, std::int64_t of_values) {
    return with([&](auto& asked) {
      asked.keys = 256, asked.is_causal = true;
      asked.features = features, asked.of_values = of_values;
    });
  };
  EXPECT_TRUE(of_sizes(256, 128));
  EXPECT_TRUE(of_sizes(128, 192));
  EXPECT_FALSE(of_sizes(192, 128));
  EXPECT_FALSE(of_sizes(128, 128));
  EXPECT_FALSE(of_sizes(128, 64));
  const auto captured = [&](std::size_t version, std::int64_t keys) {
    return with([&](auto& asked) {
      asked.is_captured = asked.is_causal = true;
      asked.is_backward = false, asked.version = version, asked.keys = keys;
    });
  };
  EXPECT_TRUE(captured(91500, 197));
  EXPECT_FALSE(captured(91501, 197));
  EXPECT_FALSE(captured(91500, 256));
  for (const std::size_t version : {91000, 91001})
    EXPECT_TRUE(with([&](auto& asked) { asked.version = version, asked.is_backward = false; }));
  EXPECT_FALSE(with([](auto& asked) { asked.version = 91002, asked.is_backward = false; }));
}

TEST(CudnnPlans, ExistForEveryGpuThatIsDescribed) {
  std::vector<fs::path> files;
  if (fs::exists(data() / "gpus"))
    for (const auto& entry : fs::directory_iterator(data() / "gpus"))
      if (entry.path().extension() == ".cudnn") files.push_back(entry.path());
  ASSERT_FALSE(files.empty()) << "tests/data/gpus holds no GPU's description";
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.filename().string());
    expect_plans(read(file));
  }
}

class CudnnPlansGpu : public testing::OnGpu {};

TEST_F(CudnnPlansGpu, ExistByTheDescriptionOfTheGpuItself) { expect_plans(cudnn::describe_gpu(0)); }

}  // namespace
}  // namespace lockstep::test
