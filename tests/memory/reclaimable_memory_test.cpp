#include "memory/reclaimable_memory.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/memory/memory_pool.hpp"
#include "lockstep/tensor/storage.hpp"

namespace lockstep {
namespace {

TEST(ReclaimableMemory, IsGivenBackWhereThereIsNoOther) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  MemoryPool& pool = memory_pool(cpu);
  IntrusivePtr<Storage> held = Storage::allocate(bytes, cpu);
  {
    const ReclaimableMemory holder(cpu, [&] { held = nullptr; });
    const ReclaimableMemory of_another_device(cuda(0), [] { FAIL(); });
    pool.trim();
    pool.set_limit(pool.statistics().reserved_bytes);
    const auto own = Storage::allocate(bytes, cpu);
    EXPECT_FALSE(held);
    EXPECT_THROW(Storage::allocate(bytes, cpu), OutOfMemory);
  }
  EXPECT_FALSE(ReclaimableMemory::reclaim(cpu));
  pool.set_limit(std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(pool.limit(), std::numeric_limits<std::size_t>::max());
}

}  // namespace
}  // namespace lockstep
