#include <filesystem>
#include <fstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
