#include <cstring>
#include <vector>

#include "base/faults.hpp"
#include "cuda.h"
#include "memory/range_set.hpp"
#include "simgpu_fixture.hpp"

// The driver's virtual memory: addresses reserved, memory put there.

namespace simgpu {
namespace {

constexpr std::size_t page = std::size_t{2} << 20;

class VirtualMemoryOfDevices : public SimgpuTest {
 protected:
  ~VirtualMemoryOfDevices() override { faults().clear(); }

  static CUmemAllocationProp properties(int device = 0) {
    CUmemAllocationProp made{};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return made;
  }
  static CUdeviceptr reserve(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }
  static CUmemGenericAllocationHandle create(std::size_t bytes) {
    const CUmemAllocationProp wanted = properties();
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(cuMemCreate(&handle, bytes, &wanted, 0), CUDA_SUCCESS);
    return handle;
  }
  /// Memory at an address, whose handle is released.
  static void put_memory(CUdeviceptr at, std::size_t bytes) {
    const CUmemGenericAllocationHandle handle = create(bytes);
    EXPECT_EQ(cuMemMap(at, bytes, 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  }
  static CUresult open(CUdeviceptr at, std::size_t bytes) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(at, bytes, &access, 1);
  }
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return free;
  }
  static void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }
  /// True if there is one report, of that kind and with these words.
  bool reported(Finding finding, const std::string& words) const {
    return reports_.size() == 1 && reports_[0].finding == finding &&
           reports_[0].text.find(words) != std::string::npos;
  }
};

TEST_F(VirtualMemoryOfDevices, ServesOverMappingsThatLieSideBySide) {
  const std::size_t before = free_bytes();
  const CUdeviceptr base = reserve(8 * page);
  EXPECT_EQ(base % page, 0u);
  EXPECT_EQ(free_bytes(), before);
  put_memory(base, page);
  put_memory(base + page, 2 * page);
  EXPECT_EQ(open(base, 3 * page), CUDA_SUCCESS);
  EXPECT_EQ(before - free_bytes(), 3 * page);
  EXPECT_EQ(cudaMemset(pointer(base), 7, 3 * page), cudaSuccess);
  std::vector<unsigned char> back(2 * page);
  EXPECT_EQ(cudaMemcpy(back.data(), pointer(base + page / 2), back.size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(back, std::vector<unsigned char>(2 * page, 7));
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, pointer(base + 2 * page)), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);

  EXPECT_EQ(cuMemUnmap(base, 3 * page), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(cuMemAddressFree(base, 8 * page), CUDA_SUCCESS);
  EXPECT_TRUE(reports_.empty());
}

TEST_F(VirtualMemoryOfDevices, MemoryOfAHandleStaysWhileEitherIsLeft) {
  const std::size_t before = free_bytes();
  const CUdeviceptr base = reserve(page);
  const CUmemGenericAllocationHandle handle = create(page);
  EXPECT_EQ(cuMemMap(base, page, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(base, page), CUDA_SUCCESS);
  EXPECT_EQ(before - free_bytes(), page);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base, page, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(base, page), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryOfDevices, RefusesWhatIsNoMultipleOfTheGranularity) {
  std::size_t granularity = 0;
  const CUmemAllocationProp wanted = properties();
  for (const auto option :
       {CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED}) {
    EXPECT_EQ(cuMemGetAllocationGranularity(&granularity, &wanted, option), CUDA_SUCCESS);
    EXPECT_EQ(granularity, page);
  }
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAddressReserve(&address, page + 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&address, page, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&address, page, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cuMemCreate(&handle, page / 2, &wanted, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&handle, page, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  const CUmemAllocationProp elsewhere = properties(1000);
  EXPECT_EQ(cuMemCreate(&handle, page, &elsewhere, 0), CUDA_ERROR_INVALID_DEVICE);

  const CUdeviceptr base = reserve(4 * page);
  handle = create(2 * page);
  EXPECT_EQ(cuMemMap(base + 4096, page, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base, 3 * page, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base, 2 * page, page, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base + 3 * page, 2 * page, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(base, page), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(base + page, 3 * page), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(base, 4 * page), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryOfDevices, TakesMappingsWholeOrNotAtAll) {
  const CUdeviceptr base = reserve(4 * page);
  put_memory(base, 2 * page);
  put_memory(base + 2 * page, page);
  const CUmemGenericAllocationHandle handle = create(page);
  EXPECT_EQ(cuMemMap(base + page, page, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);  // taken
  EXPECT_EQ(open(base, page), CUDA_ERROR_INVALID_VALUE);                           // half of one
  EXPECT_EQ(open(base, 4 * page), CUDA_ERROR_INVALID_VALUE);                       // beyond all
  EXPECT_EQ(cuMemUnmap(base, page), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(base + page, 2 * page), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(base + 3 * page, page), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(base, 4 * page), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(base, 3 * page), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(base + page, page, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(base + page, page), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(base, 4 * page), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryOfDevices, IsRefusedWhereTheDeviceIsFull) {
  const CUmemAllocationProp wanted = properties();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cuMemCreate(&handle, free_bytes() / page * page + page, &wanted, 0),
            CUDA_ERROR_OUT_OF_MEMORY);
  faults().add("out-of-memory:" + std::to_string(page));
  EXPECT_EQ(cuMemCreate(&handle, 2 * page, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
  faults().clear();
  faults().add("cuMemCreate:1:2");
  EXPECT_EQ(cuMemCreate(&handle, page, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(VirtualMemoryOfDevices, ReportsUseOfAddressesWithoutMemory) {
  const CUdeviceptr base = reserve(2 * page);
  EXPECT_NE(cudaMemset(pointer(base), 0, 16), cudaSuccess);
  EXPECT_TRUE(reported(Finding::out_of_bounds, "where no memory is, reserved by"));
  EXPECT_EQ(cuMemAddressFree(base, 2 * page), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryOfDevices, ReportsUseOfMemoryToWhichAccessWasNotSet) {
  const CUdeviceptr base = reserve(2 * page);
  put_memory(base, page);
  put_memory(base + page, page);
  EXPECT_EQ(open(base, page), CUDA_SUCCESS);
  EXPECT_NE(cudaMemset(pointer(base), 0, page + 1), cudaSuccess);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].finding, Finding::out_of_bounds);
  reports_.clear();
  EXPECT_NE(cudaMemset(pointer(base + page), 0, 1), cudaSuccess);
  EXPECT_TRUE(reported(Finding::out_of_bounds, "whose memory nothing has access to"));
  EXPECT_EQ(cuMemUnmap(base, 2 * page), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(base, 2 * page), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryOfDevices, ReportsUseOfMemoryThatWasUnmapped) {
  const CUdeviceptr base = reserve(page);
  put_memory(base, page);
  EXPECT_EQ(open(base, page), CUDA_SUCCESS);
  EXPECT_EQ(cudaMemset(pointer(base), 1, page), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cuMemUnmap(base, page), CUDA_SUCCESS);
  EXPECT_NE(cudaMemset(pointer(base), 0, 16), cudaSuccess);
  EXPECT_TRUE(reported(Finding::use_after_free, "where no memory is any more"));

  reports_.clear();
  put_memory(base, page);  // starts without access, and with nothing in it
  EXPECT_NE(cudaMemset(pointer(base), 0, 16), cudaSuccess);
  EXPECT_TRUE(reported(Finding::out_of_bounds, "whose memory nothing has access to"));
  EXPECT_EQ(open(base, page), CUDA_SUCCESS);
  reports_.clear();
  char byte = 0;
  static_cast<void>(cudaMemcpy(&byte, pointer(base), 1, cudaMemcpyDeviceToHost));
  EXPECT_TRUE(reported(Finding::uninitialized_read, ""));
  EXPECT_EQ(cuMemUnmap(base, page), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(base, page), CUDA_SUCCESS);
}

TEST_F(VirtualMemoryOfDevices, ReportsUnmappingUnderWorkThatNobodyWaitedFor) {
  const CUdeviceptr base = reserve(page);
  put_memory(base, page);
  EXPECT_EQ(open(base, page), CUDA_SUCCESS);
  const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  EXPECT_EQ(cudaMemsetAsync(pointer(base), 1, page, stream), cudaSuccess);
  EXPECT_EQ(cuMemUnmap(base, page), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(base, page), CUDA_SUCCESS);
  drain();
  ASSERT_FALSE(reports_.empty());
  EXPECT_EQ(reports_[0].finding, Finding::host_race);
  EXPECT_NE(reports_[0].text.find("cudaMemsetAsync"), std::string::npos);
}

TEST_F(VirtualMemoryOfDevices, IsNotFreedByCudaFree) {
  const CUdeviceptr base = reserve(page);
  put_memory(base, page);
  EXPECT_EQ(open(base, page), CUDA_SUCCESS);
  EXPECT_EQ(cudaFree(pointer(base)), cudaErrorInvalidValue);
  EXPECT_TRUE(reported(Finding::invalid_free, "no allocation begins"));
  EXPECT_EQ(cudaMemset(pointer(base), 0, page), cudaSuccess);
  drain();
  EXPECT_EQ(cuMemUnmap(base, page), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(base, page), CUDA_SUCCESS);
}

TEST(DriverEntryPoint, GivesFunctionsByNameAndVersion) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  EXPECT_EQ(
      cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 10020, cudaEnableDefault, &found),
      cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointSuccess);
  EXPECT_EQ(function, reinterpret_cast<void*>(&cuMemCreate));
  EXPECT_EQ(
      cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 9000, cudaEnableDefault, &found),
      cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointVersionNotSufficent);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(
      cudaGetDriverEntryPointByVersion("cuNothing", &function, 10020, cudaEnableDefault, &found),
      cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointSymbolNotFound);
}

TEST(RangeSet, JoinsWhatTouchesAndCutsWhatIsErased) {
  RangeSet set;
  set.add(10, 20);
  set.add(30, 40);
  EXPECT_EQ(set.find(15), std::pair(std::uintptr_t{10}, std::uintptr_t{20}));
  EXPECT_EQ(set.find(20), std::nullopt);
  set.add(20, 30);
  EXPECT_EQ(set.find(39), std::pair(std::uintptr_t{10}, std::uintptr_t{40}));
  set.erase(12, 35);
  EXPECT_EQ(set.find(11), std::pair(std::uintptr_t{10}, std::uintptr_t{12}));
  EXPECT_EQ(set.find(12), std::nullopt);
  EXPECT_EQ(set.find(35), std::pair(std::uintptr_t{35}, std::uintptr_t{40}));
  set.erase(0, 100);
  EXPECT_EQ(set.find(11), std::nullopt);
}

}  // namespace
}  // namespace simgpu
