#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_runtime_api.h"
#include "engine/access_check.hpp"
#include "findings.hpp"
#include "memory/address_space.hpp"
#include "memory/device_side.hpp"
#include "memory/fast_path.hpp"
#include "memory/patterns.hpp"

namespace simgpu {
namespace {

using ::testing::ElementsAre;
using testing::Findings;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Device memory for a scope.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) { EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(data_); }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

template <class T>
T bits_as(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

TEST(SimMemory, AlignsLikeTheRealAllocatorAndCountsWhatIsFree) {
  std::size_t before = 0, total = 0, after = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  EXPECT_LE(before, total);
  {
    const DeviceMemory memory(1000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0U);
    ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
    EXPECT_EQ(before - after, 1024U);
  }
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(after, before);
}

TEST(SimMemory, RefusesMoreThanTheDeviceHas) {
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, free + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(data, nullptr);
  EXPECT_EQ(cudaMalloc(&data, free / 512 * 512), cudaSuccess) << "memory costs only what is used";
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

TEST(SimMemory, FreshMemoryIsNaNInEveryType) {
  const DeviceMemory memory(64);
  const DeviceSideScope device;
  for (std::size_t at = 0; at < 64; at += 8) {
    EXPECT_TRUE(std::isnan(bits_as<double>(memory.data() + at)));
    EXPECT_TRUE(std::isnan(bits_as<float>(memory.data() + at)));
    EXPECT_TRUE(std::isnan(bits_as<float>(memory.data() + at + 4)));
  }
  for (std::size_t at = 0; at < 64; at += 2) {
    const auto half = bits_as<std::uint16_t>(memory.data() + at);
    EXPECT_TRUE((half & 0x7F80) == 0x7F80 && (half & 0x007F) != 0) << "bf16";
    EXPECT_TRUE((half & 0x7C00) == 0x7C00 && (half & 0x03FF) != 0) << "f16";
  }
}

TEST(SimMemory, FreedMemoryHoldsAnotherPatternAndItsAddressIsNotUsedAgainSoon) {
  void* first = nullptr;
  ASSERT_EQ(cudaMalloc(&first, 4096), cudaSuccess);
  ASSERT_EQ(cudaFree(first), cudaSuccess);
  for (int i = 0; i < 100; ++i) {
    const DeviceMemory other(4096);
    EXPECT_NE(other.data(), first);
  }
  const DeviceSideScope device;
  EXPECT_EQ(first_difference(static_cast<std::byte*>(first), 4096, Pattern::freed), std::nullopt);
}

TEST(SimMemory, ReportsAnOverwrittenGuardOnFree) {
  for (const std::ptrdiff_t offset : {-1, 100}) {
    Findings findings;
    {
      const DeviceMemory memory(100);
      const DeviceSideScope device;
      memory.data()[offset] = std::byte{1};
    }
    EXPECT_THAT(findings.kinds(), ElementsAre(Finding::out_of_bounds));
    EXPECT_THAT(findings.text(), HasSubstr(offset < 0 ? "1 bytes before the block of 100 bytes"
                                                      : "0 bytes past the end of the block"));
  }
}

TEST(SimMemory, ReportsAnOverwrittenGuardAtACheckpointOnce) {
  Findings findings;
  const DeviceMemory memory(100);
  {
    const DeviceSideScope device;
    memory.data()[101] = std::byte{1};
  }
  check_guards();
  check_guards();
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::out_of_bounds));
}

TEST(SimMemory, ReportsAGuardThatALibraryOverwroteWhenTheHostWaitsForTheDevice) {
  Findings findings;
  const DeviceMemory memory(100);
  ASSERT_EQ(enqueue(nullptr, {.name = "a library",
                              .run =
                                  [&] {
                                    memory.data()[103] = std::byte{1};
                                    return true;
                                  }}),
            cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::out_of_bounds));
  EXPECT_THAT(findings.text(), HasSubstr("3 bytes past the end of the block of 100 bytes"));
}

TEST(SimMemory, ReportsFreeingTwiceAndFreeingWhatWasNotAllocated) {
  Findings findings;
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 100), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue);
  int local = 0;
  EXPECT_EQ(cudaFree(&local), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::invalid_free, Finding::invalid_free));
  EXPECT_THAT(findings.text(), HasSubstr("freed twice"));
  static_cast<void>(cudaGetLastError());
}

TEST(SimMemory, KnowsTheBlockOfAnAddressAndItsName) {
  const DeviceMemory memory(1000);
  name_memory(memory.data() + 100, 50, "layers.0.weight");
  ASSERT_TRUE(block_of(memory.data() + 999).has_value());
  EXPECT_EQ(block_of(memory.data() + 999)->data, memory.data());
  EXPECT_EQ(block_of(memory.data() + 120)->name, "layers.0.weight");
  EXPECT_TRUE(block_of(memory.data() + 1000).has_value()) << "one past the end";
  EXPECT_FALSE(block_of(memory.data() + 1001).has_value());
  EXPECT_THAT(describe_address(memory.data() + 120),
              HasSubstr("byte 120 of the block of 1000 bytes"));
  EXPECT_THAT(describe_address(memory.data() + 120), HasSubstr("('layers.0.weight')"));
}

TEST(SimMemory, FastPathTellsBoundsAndInitialisedBytes) {
  const DeviceMemory memory(1001);
  std::byte* const data = memory.data();
  EXPECT_TRUE(is_tracked(data));
  EXPECT_FALSE(is_tracked(&memory));
  for (const unsigned bytes : {1U, 2U, 4U, 8U, 16U}) {
    EXPECT_TRUE(is_writable(data, bytes));
    EXPECT_FALSE(is_readable(data, bytes));
    EXPECT_TRUE(is_writable(data + 1001 - bytes, bytes));
    EXPECT_FALSE(is_writable(data + 1002 - bytes, bytes));
    EXPECT_FALSE(is_writable(data - 1, bytes));
  }
  set_initialized(data + 3, 5);
  EXPECT_TRUE(is_readable(data + 3, 5));
  EXPECT_FALSE(is_readable(data + 2, 5));
  EXPECT_FALSE(is_readable(data + 4, 5));
  EXPECT_EQ(first_uninitialized(data + 3, 10), std::optional<std::size_t>(5));
  mark_uninitialized(data + 5, 1);
  EXPECT_FALSE(is_readable(data + 3, 5));
}

TEST(SimMemory, FastPathFindsTheBoundsOfTheBlock) {
  const DeviceMemory memory(1001);
  LiveRange range;
  EXPECT_TRUE(in_live_range(memory.data() + 500, 4, range));
  EXPECT_EQ(range.begin, reinterpret_cast<std::uintptr_t>(memory.data()));
  EXPECT_EQ(range.end - range.begin, 1001U);
  EXPECT_FALSE(in_live_range(memory.data() + 998, 4, range));
}

TEST(SimMemory, SaysWhatIsWrongWithAnAccess) {
  void* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, 64), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  const DeviceMemory memory(64);
  EXPECT_EQ(problem_of({freed, 4, false})->finding, Finding::use_after_free);
  EXPECT_EQ(problem_of({memory.data() + 62, 4, true})->finding, Finding::out_of_bounds);
  EXPECT_EQ(problem_of({memory.data(), 4, false})->finding, Finding::uninitialized_read);
  EXPECT_EQ(problem_of({memory.data(), 4, false}, false), std::nullopt);
  EXPECT_EQ(problem_of({memory.data(), 64, true}), std::nullopt);
  EXPECT_EQ(problem_of({&freed, 64, true}), std::nullopt) << "the host's memory is not judged";
  EXPECT_THAT(problem_of({memory.data() + 60, 8, true})->text,
              HasSubstr("of which byte 4 is 0 bytes past the end of the block of 64 bytes"));
}

TEST(SimMemory, PointersTellWhatTheyAre) {
  const DeviceMemory memory(64);
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 64, cudaHostAllocPortable), cudaSuccess);
  std::vector<float> own(64);
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, memory.data() + 5), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, pinned), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, own.data()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  ASSERT_EQ(cudaHostRegister(own.data(), 256, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(own.data() + 5, 4, 0), cudaErrorHostMemoryAlreadyRegistered);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, own.data()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaHostUnregister(own.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(own.data()), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

}  // namespace
}  // namespace simgpu
