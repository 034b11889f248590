#include <cmath>
#include <vector>

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

#include "engine/entry.hpp"
#include "findings.hpp"

/// @file
/// CUDA C++ as programs have it that were written for nvcc.

// Programs have names of their own in the global scope, where the headers put CUDA's alone.
struct Tensor {};
struct Stream {};
struct Event {};
struct Device {};
struct Access {};
struct Layout {};
struct Finding {};
struct Operation {};
struct Allocation {};
enum class Shuffle { riffle };
inline int launch(Tensor, Stream) { return 1; }
inline int report(Event, Device) { return 2; }
inline int found(Access, Layout) { return 3; }
inline int note(Finding, Operation) { return 4; }
inline int enqueue(Allocation, Shuffle) { return 5; }
inline int watching = 6, options = 7, memory = 8, kernels = 9;

namespace cg = cooperative_groups;

namespace {

#define CHECK(call) ASSERT_EQ((call), cudaSuccess)

/// Elements that the host and the device share.
template <class T>
class Managed {
 public:
  explicit Managed(size_t count) {
    EXPECT_EQ(cudaMallocManaged(&data, count * sizeof(T)), cudaSuccess);
    for (size_t i = 0; i < count; ++i) data[i] = T(i);
  }
  ~Managed() { EXPECT_EQ(cudaFree(data), cudaSuccess); }
  T* data = nullptr;
};

extern __shared__ float outside[];

template <class T, int Scale = 2>
__global__ void __launch_bounds__(64) scale(T* out, const T* __restrict__ in, int, int n) {
  extern __shared__ __align__(16) T staged[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  staged[threadIdx.x] = i < n ? in[i] : T(0);
  __syncthreads();
  if (i < n) out[i] = staged[threadIdx.x] * T(Scale);
}

__global__ void fill(float* out, float value) { out[threadIdx.x] = value; }
__global__ void fill(int* out, int value) { out[threadIdx.x] = value; }

TEST(CudaSource, LeavesTheGlobalScopeToTheProgram) {
  EXPECT_EQ(launch({}, {}) + report({}, {}) + found({}, {}) + note({}, {}), 10);
  EXPECT_EQ(enqueue({}, Shuffle::riffle) + watching + options + memory + kernels, 35);
}

TEST(CudaSource, DeducesTemplateArgumentsAndConvertsArgumentsOfALaunch) {
  const Managed<float> in(100), out(100);
  const size_t n = 100;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  scale<<<dim3((n + 63) / 64, 1), 64, 64 * sizeof(float), stream>>>(out.data, in.data, 0, n);
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(out.data[99], 198.0f);
  scale<float, 3><<<2, 64, 64 * sizeof(float)>>>(out.data, in.data, 0, n);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(out.data[99], 297.0f);
  CHECK(cudaStreamDestroy(stream));
}

TEST(CudaSource, ChoosesAmongOverloadedKernels) {
  const Managed<float> floats(4);
  const Managed<int> ints(4);
  fill<<<1, 4>>>(floats.data, 7), fill<<<1, 4>>>(ints.data, 8.9);
  CHECK((fill<<<1, 4>>>(floats.data, 7), cudaDeviceSynchronize()));
  EXPECT_EQ(floats.data[3], 7.0f);
  EXPECT_EQ(ints.data[3], 8);
}

__global__ void sum_tiles(float* out, int* before) {
  const cg::thread_block block = cg::this_thread_block();
  const cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  const float own = block.thread_rank();
  const float sum = cg::reduce(warp, own, cg::plus<float>{});
  const float most = cg::reduce(warp, own, cg::greater<float>{});
  const auto quad = cg::tiled_partition<4>(warp);
  before[block.thread_rank()] = cg::exclusive_scan(quad, 1);
  if (warp.thread_rank() == 0) out[warp.meta_group_rank()] = sum;
  block.sync();
  if (block.thread_rank() == 0) out[warp.meta_group_size()] = most;
}

TEST(CudaSource, HasCooperativeGroups) {
  const Managed<float> out(3);
  const Managed<int> before(64);
  sum_tiles<<<1, 64>>>(out.data, before.data);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(out.data[0], 496.0f);
  EXPECT_EQ(out.data[1], 1520.0f);
  EXPECT_EQ(out.data[2], 31.0f);
  EXPECT_EQ(before.data[6], 2);
}

template <class T>
__global__ void halve(T* values, unsigned n, size_t most) {
  const unsigned i = threadIdx.x;
  if (i >= min(n, most)) return;
  __stcs(values + i, (T)((float)__ldcs(values + i) * 0.5f));
  __stcg(values + i, values[i] + T(1));
}

TEST(CudaSource, HasNumbersOf16Bits) {
  const Managed<__nv_bfloat16> brain(64);
  const Managed<half> halves(64);
  halve<<<1, 64>>>(brain.data, 64, 100);
  halve<<<1, 64>>>(halves.data, 64, 100);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ((float)brain.data[63], 32.5f);
  EXPECT_EQ(__half2float(halves.data[3]), 2.5f);
  EXPECT_EQ((float)__float2bfloat16_rn(1.0f + 1.0f / 256), 1.0f);  // ties go to even
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16(NAN)) & 0x7FC0, 0x7FC0);
  EXPECT_TRUE(std::isinf((float)__float2half(1e6f)));
}

TEST(CudaSource, MultipliesByCublas) {
  cublasHandle_t handle;
  ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_SUCCESS);
  const Managed<float> a(6), b(6), c(18);
  const float one = 1, zero = 0;
  // c [2 x 2] = a [2 x 3] b [3 x 2], by columns
  ASSERT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 3, &one, a.data, 2, b.data, 3,
                        &zero, c.data, 2),
            CUBLAS_STATUS_SUCCESS);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(c.data[0], 10.0f);  // 0*0 + 2*1 + 4*2
  EXPECT_EQ(c.data[3], 40.0f);  // 1*3 + 3*4 + 5*5
  // Two products of a row of the one and a column of the other.
  ASSERT_EQ(
      cublasGemmStridedBatchedEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, 1, 1, 3, &one, a.data,
                                 CUDA_R_32F, 3, 3, b.data, CUDA_R_32F, 3, 3, &zero, c.data,
                                 CUDA_R_32F, 1, 1, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      CUBLAS_STATUS_SUCCESS);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(c.data[0], 5.0f);
  EXPECT_EQ(c.data[1], 50.0f);
  // y = A x
  ASSERT_EQ(cublasSgemv(handle, CUBLAS_OP_N, 2, 3, &one, a.data, 2, b.data, 1, &zero, c.data, 1),
            CUBLAS_STATUS_SUCCESS);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(c.data[1], 13.0f);
  ASSERT_EQ(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

__global__ void race(float* sum) { *sum += 1; }

TEST(CudaSource, IsReportedByTheLinesOfLaunches) {
  const Managed<float> unused(1);
  float* sum;
  CHECK(cudaMalloc(&sum, 4));
  CHECK(cudaMemset(sum, 0, 4));
  const simgpu::testing::Findings findings;
  const int line = __LINE__ + 1;
  race<<<1, 2>>>(sum);
  CHECK(cudaDeviceSynchronize());
  EXPECT_TRUE(findings.only(simgpu::Finding::global_memory_race, "race"));
  EXPECT_NE(findings.text().find("cuda_source_test.cu:" + std::to_string(line)), std::string::npos)
      << findings.text();
  CHECK(cudaFree(sum));
}

__global__ void give_up() {
  if (threadIdx.x == 3) __trap();
}

TEST(CudaSource, EndsKernelsByATrap) {
  give_up<<<1, 32>>>();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalInstruction);
  simgpu::forget_sticky_error();
  static_cast<void>(cudaGetLastError());
}

TEST(CudaSource, AsksTheRuntimeInItsFormsOfCxx) {
  int blocks = 0, grid = 0, block = 0;
  CHECK(cudaFuncSetAttribute(scale<float, 2>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale<float, 2>, 64, 65536));
  EXPECT_EQ(blocks, 3);
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, race));
  EXPECT_EQ(grid * block, 132 * 2048);
  const Managed<int> number(1);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, number.data));
  EXPECT_EQ(attributes.type, cudaMemoryTypeManaged);
  CHECK(cudaMemAdvise(number.data, 4, cudaMemAdviseSetPreferredLocation, cudaCpuDeviceId));
  int value = 5;
  int* to = number.data;
  void* arguments[] = {&to, &value};
  CHECK(cudaLaunchKernel(static_cast<void (*)(int*, int)>(fill), 1, 1, arguments));
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(*number.data, 5);
  EXPECT_EQ(nvtxRangePush("outer"), 0);
  EXPECT_EQ(nvtxRangePop(), 0);
  CHECK(cudaProfilerStart());
}

extern __device__ int declared_before;
__device__ int counter, totals[4] = {1, 2, 3, 4};
__device__ int declared_before = 7;
__device__ float* __restrict__ destination;
__constant__ struct Scale { float factor, offset; } scaling;
__constant__ float weights[3];
__device__ const int seven = 7;
__device__ constexpr int doubled(int value) { return 2 * value; }
namespace inner {
static __device__ volatile int flag{3};
}

__global__ void use_variables() {
  counter += doubled(seven);
  totals[3] += declared_before + inner::flag;
  destination[1] = scaling.factor * 2 + scaling.offset;
}

TEST(CudaSource, HasVariablesOfTheDevice) {
  const simgpu::testing::Findings findings;
  const Scale scale{3, 1};
  CHECK(cudaMemcpyToSymbol(scaling, &scale, sizeof scale));
  float* memory;
  CHECK(cudaMalloc(&memory, 2 * sizeof(float)));
  CHECK(cudaMemcpyToSymbolAsync(destination, &memory, sizeof memory));
  use_variables<<<1, 1>>>();
  use_variables<<<1, 1>>>();
  int count = 0, last = 0;
  CHECK(cudaMemcpyFromSymbol(&count, counter, sizeof count));
  CHECK(cudaMemcpyFromSymbol(&last, totals, sizeof last, 3 * sizeof last));
  EXPECT_EQ(count, 28);
  EXPECT_EQ(last, 24);
  float value = 0;
  CHECK(cudaMemcpy(&value, memory + 1, sizeof value, cudaMemcpyDefault));
  EXPECT_EQ(value, 7.0f);
  void* address;
  size_t bytes = 0;
  CHECK(cudaGetSymbolAddress(&address, totals));
  CHECK(cudaMemset(address, 0, 16));
  CHECK(cudaMemcpyFromSymbol(&last, totals, 4, 12));
  EXPECT_EQ(last, 0);
  CHECK(cudaGetSymbolSize(&bytes, totals));
  EXPECT_EQ(bytes, sizeof totals);
  EXPECT_EQ(cudaMemcpyToSymbol(totals, &last, 4, 13), cudaErrorInvalidValue);
  for (const cudaMemcpyKind kind : {cudaMemcpyHostToHost, cudaMemcpyDeviceToHost})
    EXPECT_EQ(cudaMemcpyToSymbol(totals, &last, 4, 0, kind), cudaErrorInvalidMemcpyDirection);
  for (const cudaMemcpyKind kind : {cudaMemcpyHostToHost, cudaMemcpyHostToDevice})
    EXPECT_EQ(cudaMemcpyFromSymbol(&last, totals, 4, 0, kind), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaGetSymbolSize(&bytes, last), cudaErrorInvalidSymbol);
  static_cast<void>(cudaGetLastError());
  EXPECT_TRUE(findings.all().empty()) << findings.text();
  CHECK(cudaFree(memory));
}

__global__ void count() { counter += 1; }
__global__ void read_weights(float* out) { *out = weights[1]; }
__global__ void write_past(int i) { totals[i] = 1; }

TEST(CudaSource, WatchesVariablesOfTheDevice) {
  float* out;
  CHECK(cudaMalloc(&out, 4));
  {
    const simgpu::testing::Findings findings;
    count<<<1, 2>>>();
    CHECK(cudaDeviceSynchronize());
    EXPECT_TRUE(findings.only(simgpu::Finding::global_memory_race, "__device__ counter"))
        << findings.text();
  }
  {
    const simgpu::testing::Findings findings;
    read_weights<<<1, 1>>>(out);
    CHECK(cudaDeviceSynchronize());
    EXPECT_TRUE(findings.only(simgpu::Finding::uninitialized_read, "__constant__ weights"))
        << findings.text();
  }
  const simgpu::testing::Findings findings;
  write_past<<<1, 1>>>(4);
  CHECK(cudaDeviceSynchronize());
  ASSERT_FALSE(findings.all().empty());
  EXPECT_EQ(findings.kinds().back(), simgpu::Finding::out_of_bounds) << findings.text();
  EXPECT_NE(findings.text().find("__device__ totals"), std::string::npos) << findings.text();
  CHECK(cudaFree(out));
}

__device__ int per_device = 5;
__global__ void add_two() { per_device += 2; }

TEST(CudaSource, HasVariablesOnEachDevice) {
  const simgpu::testing::Findings findings;
  int value = 0;
  add_two<<<1, 1>>>();
  CHECK(cudaSetDevice(1));
  add_two<<<1, 1>>>();
  add_two<<<1, 1>>>();
  CHECK(cudaMemcpyFromSymbol(&value, per_device, sizeof value));
  EXPECT_EQ(value, 9);
  CHECK(cudaDeviceReset());
  CHECK(cudaMemcpyFromSymbol(&value, per_device, sizeof value));
  EXPECT_EQ(value, 5);
  CHECK(cudaSetDevice(0));
  CHECK(cudaMemcpyFromSymbol(&value, per_device, sizeof value));
  EXPECT_EQ(value, 7);
  EXPECT_TRUE(findings.all().empty()) << findings.text();
}

TEST(CudaSource, FindsRacesOfStreamsForVariablesOfTheDevice) {
  cudaStream_t one, other;
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  const simgpu::testing::Findings findings;
  const int value = 3;
  count<<<1, 1, 0, one>>>();
  CHECK(cudaMemcpyToSymbolAsync(counter, &value, sizeof value, 0, cudaMemcpyHostToDevice, other));
  CHECK(cudaDeviceSynchronize());
  EXPECT_TRUE(findings.only(simgpu::Finding::race, "cudaMemcpyToSymbolAsync")) << findings.text();
  CHECK(cudaStreamDestroy(one));
  CHECK(cudaStreamDestroy(other));
}

}  // namespace
