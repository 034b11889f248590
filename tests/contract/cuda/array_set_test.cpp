#include <vector>

#include <gtest/gtest.h>

#include "cuda/layout.hpp"

namespace lockstep::cuda_kernels {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 30;

struct Part {
  std::int64_t begin, count;
  friend bool operator==(const Part&, const Part&) = default;
};

// Where the parts of bytes lie; nobody reads them.
std::vector<Part> parts_of(const Shape& shape, const Strides& strides) {
  std::byte base{};
  const ArrayView view{&base, DType::u8, shape, strides};
  std::vector<Part> parts;
  ArraySet<1>({&view}).for_each_part([&](const ArraySet<1>& part) {
    parts.push_back({part.data[0] - &base, part.numel()});
    const auto layout = part.layout(1);
    EXPECT_EQ(layout.count, part.numel());
  });
  return parts;
}

TEST(ArraySet, CutsRowsThatAloneAreTooLongForALaunch) {
  const std::int64_t columns = most + 8, pitch = columns + 8;
  const std::int64_t cut = most / 2, rest = columns - cut;  // whole vectors
  EXPECT_EQ(parts_of({2, columns}, {pitch, 1}),
            (std::vector<Part>{{0, cut}, {cut, rest}, {pitch, cut}, {pitch + cut, rest}}));
}

TEST(ArraySet, CutsTheOutermostDimensionFirst) {
  EXPECT_EQ(parts_of({3, most / 2}, {most, 1}), (std::vector<Part>{{0, most / 2}, {most, most}}));
}

TEST(ArraySet, CutsAtWholeVectors) {
  const auto parts = parts_of({2 * most + 7}, {1});
  EXPECT_GT(parts.size(), 2u);
  for (const Part& part : parts) EXPECT_EQ(part.begin % 16, 0);
}

TEST(ArraySet, LeavesWhatFitsOneLaunchInOnePart) {
  EXPECT_EQ(parts_of({most}, {1}), (std::vector<Part>{{0, most}}));
}

}  // namespace
}  // namespace lockstep::cuda_kernels
