#include "findings.hpp"
#include "kernel_run.hpp"

/// @file
/// Races of the threads of one launch in global memory.

namespace simgpu::test {
namespace {

/// Expects one race that names all of `parts`; nothing else.
void expect_race(const testing::Findings& findings, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_TRUE(findings.only(Finding::global_memory_race, part))
        << "no '" << part << "' in: " << findings.text();
}

std::vector<int> zeros(std::size_t count) { return std::vector<int>(count); }

__global__ void add_plainly(int* sum) { *sum += 1; }
__global__ void add_atomically(int* sum) { atomicAdd(sum, 1); }

TEST(GlobalRaces, NameAPlainAddOfTwoThreads) {
  const testing::Findings findings;
  const DeviceArray<int> sum(zeros(1));
  run(1, 64, 0, add_plainly, sum.data());
  expect_race(findings,
              {"kernel add_plainly",
               "block (0,0,0), thread (1,0,0): reads 4 bytes that "
               "thread (0,0,0) writes too",
               "global_race_test.cu:19", "missing atomic", "block of 4 bytes", "launched by"});
}

TEST(GlobalRaces, NameAPlainAddOfTwoBlocks) {
  const testing::Findings findings;
  const DeviceArray<int> sum(zeros(1));
  run(2, 1, 0, add_plainly, sum.data());
  expect_race(findings, {"block (0,0,0), thread (0,0,0) ", "block (1,0,0), thread (0,0,0) ",
                         "missing atomic"});
}

TEST(GlobalRaces, AreNoneOfAtomicAdds) {
  const testing::Findings findings;
  const DeviceArray<int> sum(zeros(1));
  run(4, 64, 0, add_atomically, sum.data());
  EXPECT_EQ(findings.text(), "");
  EXPECT_EQ(sum.download()[0], 256);
}

__global__ void add_for_the_block(int* sum) { atomicAdd_block(sum, 1); }

TEST(GlobalRaces, NameAnAtomicOfTheBlockThatBlocksShare) {
  const DeviceArray<int> sum(zeros(1));
  const testing::Findings findings;
  run(1, 64, 0, add_for_the_block, sum.data());
  EXPECT_EQ(findings.text(), "");
  run(2, 64, 0, add_for_the_block, sum.data());
  expect_race(findings, {"changes 4 bytes", "missing scope", "_block"});
}

__global__ void store_partial(int* partial, bool own) {
  if (threadIdx.x == 0) partial[own ? blockIdx.x : 0] = static_cast<int>(blockIdx.x);
}

TEST(GlobalRaces, NameBlocksThatStoreOverEachOther) {
  const DeviceArray<int> partial(zeros(4));
  const testing::Findings findings;
  run(4, 32, 0, store_partial, partial.data(), true);
  EXPECT_EQ(findings.text(), "");
  run(4, 32, 0, store_partial, partial.data(), false);
  expect_race(findings, {"writes 4 bytes that block", "missing order", "block of 16 bytes"});
}

template <class T>
__global__ void shift_left(T* values, bool synchronized, int count) {
  const int i = static_cast<int>(threadIdx.x);
  const T right = i + 1 < count ? values[i + 1] : T(0);
  if (synchronized) __syncthreads();
  values[i] = right;
}

template <class T>
std::vector<T> counted(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(i);
  return values;
}

/// Neighbours lie beside each other in a word, or each in one of its own.
template <class T>
class GlobalRacesOf : public ::testing::Test {};
using Sizes = ::testing::Types<std::int8_t, std::int16_t, int, double>;
TYPED_TEST_SUITE(GlobalRacesOf, Sizes);

TYPED_TEST(GlobalRacesOf, NeighboursNameTheMissingBarrier) {
  const DeviceArray<TypeParam> values(counted<TypeParam>(64));
  const testing::Findings findings;
  run(1, 64, 0, shift_left<TypeParam>, values.data(), true, 64);
  EXPECT_EQ(findings.text(), "");
  run(1, 64, 0, shift_left<TypeParam>, values.data(), false, 64);
  expect_race(findings, {"reads it", "writes", "missing barrier"});
}

__global__ void shift_within_warps(int* values) {
  const unsigned lane = threadIdx.x % 32;
  const int right = values[threadIdx.x + (lane < 31)];
  __syncwarp();
  values[threadIdx.x] = right;
}

TEST(GlobalRaces, AreNoneBetweenLanesThatMeet) {
  const testing::Findings findings;
  const DeviceArray<int> values(counted<int>(64));
  run(1, 64, 0, shift_within_warps, values.data());
  EXPECT_EQ(findings.text(), "");
}

__global__ void shift_after_shuffle(int* values) {
  const unsigned lane = threadIdx.x % 32;
  const int right = values[threadIdx.x + (lane < 31)];
  values[threadIdx.x] = right + __shfl_sync(0xFFFFFFFFu, right, 0);
}

TEST(GlobalRaces, AreNotOrderedByShuffles) {
  const testing::Findings findings;
  const DeviceArray<int> values(counted<int>(32));
  run(1, 32, 0, shift_after_shuffle, values.data());
  expect_race(findings, {"missing barrier"});
}

__global__ void read_neighbour_block(int* values) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned count = gridDim.x * blockDim.x;
  const int other = values[(i + blockDim.x) % count];
  __syncthreads();
  values[i] = other + 1;
}

TEST(GlobalRaces, NameAReadOfAnotherBlocksMemory) {
  const testing::Findings findings;
  const DeviceArray<int> values(counted<int>(128));
  run(4, 32, 0, read_neighbour_block, values.data());
  expect_race(findings, {"missing order"});
}

enum class Leave : unsigned char { nothing, releasing_fence, acquiring_fence, order_of_store };

/// The last block to come adds what the others have left.
__global__ void sum_in_last_block(int* sum, int* partials, unsigned* arrivals, Leave leave) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    if (leave != Leave::order_of_store) partials[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
    if (leave != Leave::releasing_fence) __threadfence();
    is_last = atomicAdd(arrivals, 1u) + 1 == gridDim.x;
    if (leave == Leave::order_of_store) partials[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
  }
  __syncthreads();
  if (!is_last) return;
  if (leave != Leave::acquiring_fence) __threadfence();
  if (threadIdx.x == 0) {
    *sum = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) *sum += partials[block];
    *arrivals = 0;
  }
}

TEST(GlobalRaces, OfALastBlockThatSumsNameTheMissingFence) {
  const auto race_of = [](Leave leave) {
    const DeviceArray<int> sum(zeros(1)), partials(zeros(8));
    const DeviceArray<unsigned> arrivals(std::vector<unsigned>(1));
    const testing::Findings findings;
    // A place of its own for each: a launch is reported once.
    if (leave == Leave::nothing)
      run(8, 64, 0, sum_in_last_block, sum.data(), partials.data(), arrivals.data(), leave);
    else if (leave == Leave::releasing_fence)
      run(8, 64, 0, sum_in_last_block, sum.data(), partials.data(), arrivals.data(), leave);
    else if (leave == Leave::acquiring_fence)
      run(8, 64, 0, sum_in_last_block, sum.data(), partials.data(), arrivals.data(), leave);
    else
      run(8, 64, 0, sum_in_last_block, sum.data(), partials.data(), arrivals.data(), leave);
    EXPECT_EQ(sum.download()[0], 36);
    return findings.text();
  };
  EXPECT_EQ(race_of(Leave::nothing), "");
  EXPECT_NE(race_of(Leave::releasing_fence).find("the atomic operation by which it tells"),
            std::string::npos);
  EXPECT_NE(race_of(Leave::acquiring_fence).find("and what it reads here"), std::string::npos);
  EXPECT_NE(race_of(Leave::order_of_store).find("the atomic operation by which it tells"),
            std::string::npos);
}

/// As NVIDIA's sample threadFenceReduction does it: volatile, and no fence after the atomic.
__global__ void sum_volatile(int* sum, volatile int* partials, unsigned* arrivals, bool fence) {
  partials[blockIdx.x] = 1;
  if (fence) __threadfence();
  if (atomicInc(arrivals, gridDim.x - 1) != gridDim.x - 1) return;
  int total = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) total += partials[block];
  *sum = total;
}

TEST(GlobalRaces, TakeAVolatileReadForOneThatAsksTheMemory) {
  const DeviceArray<int> sum(zeros(1)), partials(zeros(8));
  const DeviceArray<unsigned> arrivals(std::vector<unsigned>(1));
  const testing::Findings findings;
  run(8, 1, 0, sum_volatile, sum.data(), partials.data(), arrivals.data(), true);
  EXPECT_EQ(findings.text(), "");
  run(8, 1, 0, sum_volatile, sum.data(), partials.data(), arrivals.data(), false);
  expect_race(findings, {"missing fence"});
}

/// Blocks take numbers, and each goes on from what the one before has left.
__global__ void add_up_in_order(int* sums, int* flags, int* tickets, bool fences) {
  const int number = atomicAdd(tickets, 1);
  int sum = number;
  if (number > 0 && *const_cast<volatile int*>(flags + number - 1) != 0) {
    if (fences) __threadfence();
    sum += sums[number - 1];
  }
  sums[number] = sum;
  if (fences) __threadfence();
  *const_cast<volatile int*>(flags + number) = 1;
}

TEST(GlobalRaces, AreOrderedByFlagsThatAreSetAfterAFence) {
  const DeviceArray<int> sums(zeros(8)), flags(zeros(8)), tickets(zeros(1));
  const testing::Findings findings;
  run(8, 1, 0, add_up_in_order, sums.data(), flags.data(), tickets.data(), true);
  EXPECT_EQ(findings.text(), "");
  EXPECT_EQ(sums.download()[7], 28);
}

TEST(GlobalRaces, OfFlagsWithoutAFenceAreNamed) {
  const DeviceArray<int> sums(zeros(8)), flags(zeros(8)), tickets(zeros(1));
  const testing::Findings findings;
  run(8, 1, 0, add_up_in_order, sums.data(), flags.data(), tickets.data(), false);
  expect_race(findings, {"add_up_in_order"});
}

__global__ void store_same_value(int* found, int value) {
  if (threadIdx.x % 2 == 0) *found = value;
}

TEST(GlobalRaces, AreNoneOfThreadsThatStoreTheSameValue) {
  const testing::Findings findings;
  const DeviceArray<int> found(zeros(1));
  run(4, 64, 0, store_same_value, found.data(), 7);
  EXPECT_EQ(findings.text(), "");
}

/// Through the forms that say how the caches are to be used.
__global__ void shift_streamed(int* values, bool synchronized) {
  const unsigned right = (threadIdx.x + 1) % blockDim.x;
  __stcs(values + threadIdx.x, 1);
  if (synchronized) __syncthreads();
  const int streamed = __ldcs(values + right);
  __syncthreads();
  __stcg(values + threadIdx.x, streamed);
}
__global__ void store_streamed(int* last) { __stcg(last, static_cast<int>(blockIdx.x)); }

TEST(GlobalRaces, AreFoundThroughLoadsAndStoresWithAdviceToTheCaches) {
  const DeviceArray<int> values(zeros(64));
  {
    const testing::Findings findings;
    run(1, 64, 0, shift_streamed, values.data(), true);
    EXPECT_EQ(findings.text(), "");
    run(1, 64, 0, shift_streamed, values.data(), false);
    expect_race(findings, {"kernel shift_streamed", "missing barrier"});
  }
  const testing::Findings findings;
  run(4, 1, 0, store_streamed, values.data());
  expect_race(findings, {"kernel store_streamed", "missing order"});
}

/// Vectors of four, and what is left over one by one.
__global__ void double_in_place(float* values, int count) {
  struct alignas(16) Four {
    float of[4];
  };
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i + 4 <= count) {
    Four four = *reinterpret_cast<Four*>(values + i);
    for (float& value : four.of) value *= 2;
    *reinterpret_cast<Four*>(values + i) = four;
  } else {
    for (int k = i; k < count; ++k) values[k] *= 2;
  }
}

TEST(GlobalRaces, AreNoneOfAccessesOfSeveralSizes) {
  const testing::Findings findings;
  const DeviceArray<float> values(counted<float>(1021));
  for (int i = 0; i < 3; ++i) run(8, 32, 0, double_in_place, values.data(), 1021);
  EXPECT_EQ(findings.text(), "");
  EXPECT_EQ(values.download()[1020], 8160.0f);
}

}  // namespace
}  // namespace simgpu::test
