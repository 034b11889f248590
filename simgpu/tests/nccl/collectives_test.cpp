#include <algorithm>
#include <functional>
#include <limits>

#include "findings.hpp"
#include "nccl/ranks.hpp"
#include "nccl/values.hpp"

namespace simgpu {
namespace {

using testing::count_different;
using testing::DeviceArray;
using testing::for_each_type;
using testing::Rank;
using testing::reduced;
using testing::whole_values;

const std::vector<std::size_t> counts{0, 1, 7, 3001};

// Every collective on 1, 2 and 4 ranks, and nothing to find fault with.
class NcclCollectives : public ::testing::TestWithParam<int> {
 protected:
  ~NcclCollectives() override { EXPECT_EQ(findings_.text(), ""); }

  static void with_ranks(const std::function<void(Rank&)>& body) {
    testing::with_threads(GetParam(), body);
  }

  testing::Findings findings_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclCollectives, ::testing::Values(1, 2, 4));

template <class T>
std::vector<T> reductions(ncclRedOp_t op, int ranks, std::size_t count, std::size_t first = 0) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = reduced<T>(op, ranks, first + i);
  return values;
}

TEST_P(NcclCollectives, AllReduceAppliesEveryReductionToEveryType) {
  with_ranks([](Rank& self) {
    for (const std::size_t count : counts)
      for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg})
        for_each_type([&](auto tag, ncclDataType_t type) {
          using T = decltype(tag);
          if (op == ncclAvg && self.size == 1) return;  // see NcclOnOneRank
          const DeviceArray<T> input(whole_values<T>(self.rank, count)),
              output(std::vector<T>(count, T{}));
          ASSERT_EQ(ncclAllReduce(input.data(), output.data(), count, type, op, self.communicator,
                                  self.stream),
                    ncclSuccess)
              << ncclGetLastError(nullptr);
          self.synchronize();
          EXPECT_EQ(count_different(output.download(), reductions<T>(op, self.size, count)), 0u)
              << count << " of type " << type << " op " << op;
        });
  });
}

// As NCCL 2.28.9: its kernel for one rank rounds down where it divides the array among its blocks.
TEST(NcclOnOneRank, MissesTheLastElementsOfScaledSumsAndAverages) {
  testing::with_threads(1, [](Rank& self) {
    float factor = 1.0f;
    ncclRedOp_t scaled;
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&scaled, &factor, ncclFloat32, ncclScalarHostImmediate,
                                       self.communicator),
              ncclSuccess);
    const auto missed = [&](ncclRedOp_t op, std::size_t count) {
      const DeviceArray<float> input(std::vector<float>(count, 1.0f)),
          output(std::vector<float>(count, 7.0f));
      EXPECT_EQ(ncclAllReduce(input.data(), output.data(), count, ncclFloat32, op,
                              self.communicator, self.stream),
                ncclSuccess);
      self.synchronize();
      return std::ranges::count(output.download(), 7.0f);
    };
    EXPECT_EQ(missed(scaled, 40'000), 0);  // ten blocks
    EXPECT_EQ(missed(scaled, 40'001), 1);
    EXPECT_EQ(missed(ncclAvg, 40'001), 1);
    EXPECT_EQ(missed(scaled, 40'039), 0);  // 4,003 in packs of four
    EXPECT_EQ(missed(ncclSum, 40'001), 0);
    EXPECT_EQ(ncclRedOpDestroy(scaled, self.communicator), ncclSuccess);
  });
}

TEST_P(NcclCollectives, AllReduceWorksInPlace) {
  with_ranks([](Rank& self) {
    const DeviceArray<float> data(whole_values<float>(self.rank, 5000));
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 5000, ncclFloat32, ncclMax,
                              self.communicator, self.stream),
                ncclSuccess);
    self.synchronize();
    EXPECT_EQ(data.download(), reductions<float>(ncclMax, self.size, 5000));
  });
}

TEST_P(NcclCollectives, ReduceReachesOnlyTheRoot) {
  with_ranks([](Rank& self) {
    for (int root = 0; root < self.size; ++root)
      for_each_type([&](auto tag, ncclDataType_t type) {
        using T = decltype(tag);
        const DeviceArray<T> input(whole_values<T>(self.rank, 100)),
            output(std::vector<T>(100, T{}));
        void* const place = self.rank == root ? output.data() : nullptr;
        ASSERT_EQ(ncclReduce(input.data(), place, 100, type, ncclSum, root, self.communicator,
                             self.stream),
                  ncclSuccess);
        self.synchronize();
        const auto expected =
            self.rank == root ? reductions<T>(ncclSum, self.size, 100) : std::vector<T>(100, T{});
        EXPECT_EQ(count_different(output.download(), expected), 0u) << type << " to " << root;
      });
  });
}

TEST_P(NcclCollectives, ReduceScatterLeavesEachRankItsPart) {
  with_ranks([](Rank& self) {
    for (const std::size_t count : counts)
      for (const ncclRedOp_t op : {ncclSum, ncclAvg})
        for_each_type([&](auto tag, ncclDataType_t type) {
          using T = decltype(tag);
          const auto ranks = static_cast<std::size_t>(self.size);
          const std::size_t first = static_cast<std::size_t>(self.rank) * count;
          const DeviceArray<T> data(whole_values<T>(self.rank, ranks * count));
          ASSERT_EQ(ncclReduceScatter(data.data(), data.data() + first, count, type, op,
                                      self.communicator, self.stream),
                    ncclSuccess);
          self.synchronize();
          const std::vector<T> all = data.download();
          const std::vector<T> part(all.begin() + static_cast<std::ptrdiff_t>(first),
                                    all.begin() + static_cast<std::ptrdiff_t>(first + count));
          EXPECT_EQ(count_different(part, reductions<T>(op, self.size, count, first)), 0u);
        });
  });
}

TEST_P(NcclCollectives, AllGatherCollectsEveryRanksPart) {
  with_ranks([](Rank& self) {
    for (const std::size_t count : counts)
      for_each_type([&](auto tag, ncclDataType_t type) {
        using T = decltype(tag);
        const auto ranks = static_cast<std::size_t>(self.size);
        std::vector<T> expected;
        for (int rank = 0; rank < self.size; ++rank)
          for (const T value : whole_values<T>(rank, count)) expected.push_back(value);
        const DeviceArray<T> input(whole_values<T>(self.rank, count)),
            output(std::vector<T>(ranks * count, T{}));
        ASSERT_EQ(
            ncclAllGather(input.data(), output.data(), count, type, self.communicator, self.stream),
            ncclSuccess);
        self.synchronize();
        EXPECT_EQ(count_different(output.download(), expected), 0u);
      });
  });
}

TEST_P(NcclCollectives, BroadcastReachesAllFromEveryRoot) {
  with_ranks([](Rank& self) {
    for (int root = 0; root < self.size; ++root)
      for (const std::size_t count : counts)
        for_each_type([&](auto tag, ncclDataType_t type) {
          using T = decltype(tag);
          const DeviceArray<T> data(whole_values<T>(self.rank, count));
          const ncclResult_t status =
              root % 2 ? ncclBcast(data.data(), count, type, root, self.communicator, self.stream)
                       : ncclBroadcast(data.data(), data.data(), count, type, root,
                                       self.communicator, self.stream);
          ASSERT_EQ(status, ncclSuccess);
          self.synchronize();
          EXPECT_EQ(count_different(data.download(), whole_values<T>(root, count)), 0u);
        });
  });
}

// The part of rank `to` in what rank `from` gives away.
std::vector<int> parcel(int from, int to, std::size_t count) {
  return std::vector<int>(count, from * 100 + to);
}

std::vector<int> parcels(int size, const std::function<std::vector<int>(int)>& of) {
  std::vector<int> all;
  for (int rank = 0; rank < size; ++rank)
    for (const int value : of(rank)) all.push_back(value);
  return all;
}

TEST_P(NcclCollectives, AllToAllTransposes) {
  with_ranks([](Rank& self) {
    const std::size_t count = 77;
    const DeviceArray<int> input(
        parcels(self.size, [&](int to) { return parcel(self.rank, to, count); }));
    const DeviceArray<int> output(std::vector<int>(input.count()));
    ASSERT_EQ(
        ncclAlltoAll(input.data(), output.data(), count, ncclInt32, self.communicator, self.stream),
        ncclSuccess);
    self.synchronize();
    EXPECT_EQ(output.download(),
              parcels(self.size, [&](int from) { return parcel(from, self.rank, count); }));
  });
}

TEST_P(NcclCollectives, GatherAndScatterUseTheRoot) {
  with_ranks([](Rank& self) {
    const std::size_t count = 13;
    const int root = self.size - 1;
    const DeviceArray<int> own(parcel(self.rank, root, count));
    const DeviceArray<int> all(std::vector<int>(count * static_cast<std::size_t>(self.size), -1));
    const DeviceArray<int> back(std::vector<int>(count, -1));
    ASSERT_EQ(
        ncclGather(own.data(), all.data(), count, ncclInt32, root, self.communicator, self.stream),
        ncclSuccess);
    ASSERT_EQ(ncclScatter(all.data(), back.data(), count, ncclInt32, root, self.communicator,
                          self.stream),
              ncclSuccess);
    self.synchronize();
    EXPECT_EQ(back.download(), own.download());
    if (self.rank == root) {
      EXPECT_EQ(all.download(),
                parcels(self.size, [&](int from) { return parcel(from, root, count); }));
    }
  });
}

TEST_P(NcclCollectives, SumsOfSmallFloatsAreRoundedOnce) {
  with_ranks([](Rank& self) {
    // In bfloat16 arithmetic 256 + 1 is 256 again, however often 1 is added.
    using T = lockstep::BFloat16;
    const DeviceArray<T> data(std::vector<T>(100, T(self.rank == 0 ? 256.0f : 1.0f)));
    ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 100, ncclBfloat16, ncclSum, self.communicator,
                            self.stream),
              ncclSuccess);
    self.synchronize();
    const T expected(256.0f + static_cast<float>(self.size - 1));
    EXPECT_EQ(count_different(data.download(), std::vector<T>(100, expected)), 0u);
  });
}

TEST_P(NcclCollectives, PreMultipliedSumWeighsEachRank) {
  with_ranks([](Rank& self) {
    float factor = 0.5f * static_cast<float>(self.rank + 1);
    float expected = 0;
    for (int rank = 1; rank <= self.size; ++rank)
      expected += 0.5f * static_cast<float>(rank * rank);
    const DeviceArray<float> factor_there({factor});
    for (const bool on_device : {false, true}) {
      const DeviceArray<float> data(std::vector<float>(50, static_cast<float>(self.rank + 1)));
      ncclRedOp_t op;
      ASSERT_EQ(ncclRedOpCreatePreMulSum(
                    &op, on_device ? factor_there.data() : &factor, ncclFloat32,
                    on_device ? ncclScalarDevice : ncclScalarHostImmediate, self.communicator),
                ncclSuccess);
      ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 50, ncclFloat32, op, self.communicator,
                              self.stream),
                ncclSuccess);
      ASSERT_EQ(ncclRedOpDestroy(op, self.communicator), ncclSuccess);
      EXPECT_EQ(ncclRedOpDestroy(op, self.communicator), ncclInvalidArgument);
      self.synchronize();
      EXPECT_EQ(data.download(), std::vector<float>(50, expected));
    }
  });
}

TEST_P(NcclCollectives, MaximumPrefersNumbersToNaN) {
  with_ranks([](Rank& self) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const DeviceArray<float> data({self.rank == 0 ? 1.0f : nan, self.rank == 0 ? nan : 1.0f});
    ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, ncclMax, self.communicator,
                            self.stream),
              ncclSuccess);
    self.synchronize();
    EXPECT_EQ(data.download()[0], 1.0f);
  });
}

using Call = std::function<ncclResult_t(const Rank&, float*)>;

// What the last of two ranks finds when both call this with an array of their own.
std::string finding_of(const Call& call) {
  const testing::Findings findings;
  testing::with_threads(2, [&](Rank& self) {
    const DeviceArray<float> data(std::vector<float>(100, 1.0F));
    EXPECT_EQ(call(self, data.data()), ncclSuccess);
    self.synchronize();
  });
  for (const Report& report : findings.all()) EXPECT_EQ(report.finding, Finding::race);
  return findings.text();
}

// "In-place operation will happen if recvbuff == sendbuff + rank * recvcount" (ncclReduceScatter).
// NCCL does not look for other overlaps: they come out wrong.
TEST(NcclOverlap, IsFoundWhereACallIsNotInPlace) {
  const auto scatter_to_the_begin = [](const Rank& self, float* data) {
    return ncclReduceScatter(data, data, 50, ncclFloat, ncclSum, self.communicator, self.stream);
  };
  const auto gather_from_the_begin = [](const Rank& self, float* data) {
    return ncclAllGather(data, data, 50, ncclFloat, self.communicator, self.stream);
  };
  const auto all_to_all = [](const Rank& self, float* data) {
    return ncclAlltoAll(data, data, 50, ncclFloat, self.communicator, self.stream);
  };
  for (const Call& call : {Call(scatter_to_the_begin), Call(gather_from_the_begin)})
    EXPECT_NE(finding_of(call).find("not as in a call in place"), std::string::npos);
  EXPECT_NE(finding_of(all_to_all).find("not as in a call in place"), std::string::npos);
  EXPECT_EQ(finding_of([](const Rank& self, float* data) {
              float* const part = data + 50 * self.rank;
              ncclReduceScatter(data, part, 50, ncclFloat, ncclSum, self.communicator, self.stream);
              return ncclAllGather(part, data, 50, ncclFloat, self.communicator, self.stream);
            }),
            "");
}

TEST(NcclOverlap, IsFoundAmongTheCallsOfAGroup) {
  const auto swap = [](const Rank& self, const float* from, float* to) {
    const int peer = 1 - self.rank;
    ncclGroupStart();
    ncclSend(from, 50, ncclFloat, peer, self.communicator, self.stream);
    ncclRecv(to, 50, ncclFloat, peer, self.communicator, self.stream);
    return ncclGroupEnd();
  };
  EXPECT_NE(finding_of([&](const Rank& self, float* data) {
              return swap(self, data, data + 20);
            }).find("calls of a group have no order"),
            std::string::npos);
  EXPECT_EQ(finding_of([&](const Rank& self, float* data) { return swap(self, data, data + 50); }),
            "");
}

}  // namespace
}  // namespace simgpu
