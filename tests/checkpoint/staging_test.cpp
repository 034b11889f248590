#include "checkpoint/staging.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gtest/gtest.h>

#include "checkpoint/later_copies.hpp"
#include "lockstep/lockstep.hpp"

// Memory that devices copy right into.

namespace lockstep {
namespace {

using checkpoint::LaterCopies, checkpoint::Staging;

constexpr std::size_t mib = std::size_t{1} << 20;

/// As a snapshot adds a tensor.
void add(LaterCopies& copies, const Tensor& tensor, std::span<std::byte> to,
         const Staging& staging) {
  for (std::uint64_t from = 0; !to.empty();) {
    const auto [bytes, is_pinned] = staging.stretch(to);
    copies.add(tensor, from, bytes, is_pinned);
    from += bytes.size();
    to = to.subspan(bytes.size());
  }
}

TEST(Staging, StaysAsItIsWhereNothingCanBePinned) {
  const std::atomic<bool> stops = false;
  Staging staging;
  staging.pin(cpu, stops);  // there is none yet
  staging.reserve(100 * mib, 1);
  const auto bytes = staging.take(100 * mib, 0);
  staging.pin({}, stops);
  staging.pin(cpu, stops);
  EXPECT_FALSE(staging.stretch(bytes).is_pinned);
  EXPECT_EQ(staging.stretch(bytes).bytes.size(), bytes.size());
}

TEST(StagingOnGpu, IsCopiedToAlsoAcrossWhatIsPinnedAtOnce) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  Staging staging;
  for (const bool stops_at_once : {true, false}) {
    const std::atomic<bool> stops = stops_at_once;
    staging.reserve(140 * mib, 2);
    const auto all = staging.take(140 * mib, 512);
    staging.pin(cuda(0), stops);
    const auto [first, is_pinned] = staging.stretch(all);
    EXPECT_EQ(is_pinned, !stops_at_once);
    EXPECT_EQ(first.size() < all.size(), !stops_at_once);
    checkpoint::Throttle throttle;
    LaterCopies copies(0);
    Tensor one = full({35 * mib / 2}, 1.0, {.device = cuda(0)});
    Tensor two = full({35 * mib / 2}, 2.0, {.device = cuda(0)});
    const Tensor host = full({1024}, 3.0);
    const auto last = staging.take(4096, 0);
    add(copies, one, all.first(70 * mib), staging);
    add(copies, two, all.subspan(70 * mib), staging);
    copies.add(host, 0, last);
    copies.start(throttle);
    {  // of another stream, which waits for no other
      const Stream other(cuda(0));
      const StreamGuard guard(other);
      one.fill_(9.0);
      two.fill_(9.0);
      other.synchronize();
    }
    copies.wait_until(last.data() + last.size());
    copies.finish();
    EXPECT_EQ(copies.device(), cuda(0));
    const auto* const values = reinterpret_cast<const float*>(all.data());
    for (std::size_t i = 0; i < 35 * mib; ++i) ASSERT_EQ(values[i], i < 35 * mib / 2 ? 1 : 2) << i;
    EXPECT_EQ(*reinterpret_cast<const float*>(last.data()), 3);
  }
  staging.reserve(200 * mib, 1);  // other memory, and the former is unpinned
  EXPECT_FALSE(staging.stretch(staging.take(mib, 0)).is_pinned);
}

}  // namespace
}  // namespace lockstep
