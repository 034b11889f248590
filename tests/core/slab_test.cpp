#include "lockstep/core/slab.hpp"

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Slab, GivesDistinctMemoryOfTheSizeAskedFor) {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{64}, std::size_t{65}, std::size_t{1024}, std::size_t{5000}}) {
    std::set<void*> seen;
    for (int i = 0; i < 2000; ++i) {
      void* memory = slab_allocate(bytes);
      std::memset(memory, i, bytes);
      EXPECT_TRUE(seen.insert(memory).second);
    }
    for (void* memory : seen) slab_free(memory, bytes);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A loader's workers allocate what the training thread frees: the memory must come back to them.
TEST(Slab, RecyclesWhatAnotherThreadFrees) {
  std::set<void*> all;
  std::vector<void*> batch(1000);
  for (int round = 0; round < 200; ++round) {
    std::thread([&] {
      for (void*& memory : batch) memory = slab_allocate(192);
    }).join();
    for (void* memory : batch) {
      all.insert(memory);
      slab_free(memory, 192);
    }
  }
  EXPECT_LT(all.size(), 10000u);
}
#endif

}  // namespace
}  // namespace lockstep
