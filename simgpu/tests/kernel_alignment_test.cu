#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "kernel_findings.hpp"
#include "kernel_run.hpp"

/// @file
/// Loads and stores of kernels at addresses that are not aligned.

namespace simgpu::test {
namespace {

template <class T>
struct alignas(16) Packed {
  T values[16 / sizeof(T)];
};

/// A sum of a value's parts: the compiler need not read the value as a whole.
template <class T>
double parts_of(const T& value) {
  if constexpr (requires { value.w; })
    return static_cast<double>(value.x) + static_cast<double>(value.w);
  else if constexpr (requires { value.y; })
    return static_cast<double>(value.x) + static_cast<double>(value.y);
  else if constexpr (requires { value.values; })
    return static_cast<double>(value.values[0]) + static_cast<double>(value.values[1]);
  else
    return static_cast<double>(value);
}

template <class T>
__global__ void read_as(double* out, const char* in) {
  const T value = reinterpret_cast<const T*>(in)[threadIdx.x];
  out[threadIdx.x] = parts_of(value);
}

template <class T>
__global__ void read_by_ldg(double* out, const char* in) {
  const T value = __ldg(reinterpret_cast<const T*>(in) + threadIdx.x);
  out[threadIdx.x] = parts_of(value);
}

template <class T>
__global__ void read_by_reference(double* out, const char* in) {
  const T& place = reinterpret_cast<const T*>(in)[threadIdx.x];
  const T value = place;
  out[threadIdx.x] = parts_of(value);
}

template <class T>
__global__ void write_as(double*, char* to) {
  reinterpret_cast<T*>(to)[threadIdx.x] = T{};
}

template <class T>
__global__ void write_by_stcs(double*, char* to) {
  __stcs(reinterpret_cast<T*>(to) + threadIdx.x, T{});
}

template <class T>
__global__ void copy_as(double*, char* data) {
  reinterpret_cast<T*>(data + 256)[threadIdx.x] = reinterpret_cast<T*>(data)[threadIdx.x];
}

/// Expects that a kernel of values that are aligned to `alignment` runs on those that are, and ends
/// with an error on the next bytes that hold an aligned `part`.
template <class Byte>
void expect_alignment(void (*kernel)(double*, Byte*), const std::string& does,
                      std::size_t alignment, std::size_t part) {
  const DeviceArray<char> data(std::vector<char>(1024));
  const DeviceArray<double> out(8);
  const testing::Findings findings;
  EXPECT_EQ(run(1, 8, 0, kernel, out.data(), static_cast<Byte*>(data.data() + alignment)),
            cudaSuccess);
  EXPECT_EQ(findings.text(), "");
  const StickyError error;
  EXPECT_EQ(run(1, 8, 0, kernel, out.data(), static_cast<Byte*>(data.data() + part)),
            cudaErrorMisalignedAddress);
  EXPECT_EQ(cudaMemset(data.data(), 0, 4), cudaErrorMisalignedAddress);
  expect_finding(findings, Finding::misaligned,
                 {"thread (0,0,0)", does, "no multiple of " + std::to_string(alignment),
                  "kernel_alignment_test.cu"});
}

template <class T>
void expect_alignment_of(const char* name, std::size_t part) {
  SCOPED_TRACE(name);
  expect_alignment(read_as<T>, name, alignof(T), part);
  expect_alignment(read_by_ldg<T>, name, alignof(T), part);
  expect_alignment(read_by_reference<T>, name, alignof(T), part);
  expect_alignment(write_as<T>, "writes ", alignof(T), part);
  expect_alignment(write_by_stcs<T>, "writes ", alignof(T), part);
  expect_alignment(copy_as<T>, name, alignof(T), part);
}

// "Any access (via a variable or a pointer) to data residing in global memory compiles to a single
// global memory instruction if and only if the size of the data type is 1, 2, 4, 8, or 16 bytes and
// the data is naturally aligned" (CUDA C++ Programming Guide, device memory accesses); another
// address is cudaErrorMisalignedAddress, whatever the compiler of the host makes of it.
TEST(KernelFindings, NameAVectorAtAnAddressThatIsNotAligned) {
  expect_alignment_of<float>("float", 1);
  expect_alignment_of<double>("double", 4);
  expect_alignment_of<char2>("char2", 1);
  expect_alignment_of<char4>("char4", 1);
  expect_alignment_of<short2>("short2", 2);
  expect_alignment_of<short4>("short4", 2);
  expect_alignment_of<int2>("int2", 4);
  expect_alignment_of<int4>("int4", 8);
  expect_alignment_of<uint4>("uint4", 4);
  expect_alignment_of<float2>("float2", 4);
  expect_alignment_of<float3>("float3", 2);
  expect_alignment_of<float4>("float4", 4);
  expect_alignment_of<double2>("double2", 8);
  expect_alignment_of<longlong2>("longlong2", 8);
  expect_alignment_of<Packed<float>>("Packed", 4);
  expect_alignment_of<Packed<short>>("Packed", 2);
}

__global__ void read_member(float* out, const char* in) {
  out[threadIdx.x] = reinterpret_cast<const float4*>(in)->y;
}

__global__ void fill_own(int* out, int shift) {
  char own[64];
  for (int i = 0; i < 64; ++i) own[i] = static_cast<char>(i);
  int value;
  memcpy(&value, own + shift, sizeof value);
  out[threadIdx.x] = value + *reinterpret_cast<const int*>(own + shift);
}

// A member is as aligned as it is by itself; where a thread's own variables lie is up to the
// compiler, which often keeps them in registers.
TEST(KernelFindings, AreNoneOfAMemberThatIsAlignedNorOfAThreadsOwnVariables) {
  const DeviceArray<float> in(std::vector<float>(16)), out(8);
  const DeviceArray<int> values(8);
  const testing::Findings findings;
  EXPECT_EQ(run(1, 8, 0, read_member, out.data(), reinterpret_cast<const char*>(in.data() + 1)),
            cudaSuccess);
  EXPECT_EQ(run(1, 8, 0, fill_own, values.data(), 1), cudaSuccess);
  EXPECT_EQ(findings.text(), "");
}

__global__ void read_shifted(float* out, const char* in) {
  out[threadIdx.x] = *reinterpret_cast<const float*>(in + sizeof(float) * threadIdx.x);
}

TEST(KernelFindings, NameAnAddressThatIsNotAligned) {
  const DeviceArray<char> in(64);
  const DeviceArray<float> out(8);
  ASSERT_EQ(cudaMemset(in.data(), 0, 64), cudaSuccess);
  const testing::Findings findings;
  run(1, 8, 0, read_shifted, out.data(), static_cast<const char*>(in.data()));
  EXPECT_EQ(findings.text(), "");
  const StickyError error;
  EXPECT_EQ(run(1, 8, 0, read_shifted, out.data(), static_cast<const char*>(in.data() + 1)),
            cudaErrorMisalignedAddress);
  expect_finding(findings, Finding::misaligned,
                 {"read_shifted", "thread (0,0,0)", "reads 'const float'", "no multiple of 4"});
}

}  // namespace
}  // namespace simgpu::test
