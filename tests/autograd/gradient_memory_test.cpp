#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autograd/fixed_sink.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep {
namespace {

/// Notes what it is told of one piece of memory, for a scope.
class Listener final : public BlockObserver {
 public:
  explicit Listener(const Tensor& memory) : data_(memory.data_ptr()), before_(block_observer()) {
    set_block_observer(this);
  }
  ~Listener() override { set_block_observer(before_); }

  std::size_t guard_bytes(Device) const noexcept override { return 0; }
  void allocated(const MemoryBlock&, std::size_t, StreamRef) noexcept override {}
  void freed(const MemoryBlock&, StreamRef) noexcept override {}
  void named(const void*, std::size_t, std::string_view) noexcept override {}
  void completed(const void* data, std::size_t, StreamRef) noexcept override {
    if (data == data_) heard.emplace_back("complete");
  }
  void discarded(const void* data, std::size_t, StreamRef) noexcept override {
    if (data == data_) heard.emplace_back("discard");
  }

  std::vector<std::string> heard;

 private:
  const void* data_;
  BlockObserver* before_;
};

TEST(GradientMemory, IsCompleteAfterBackwardAndDiscardedWhenCleared) {
  Tensor x = ones({4});
  x.set_requires_grad();
  const Tensor memory = zeros({4});
  const testing::FixedSink sink(x, memory);
  const Listener listener(memory);
  (x * 2.0).sum().backward();
  x.set_grad({});
  x.set_grad({});
  (x * 3.0).sum().backward();
  EXPECT_THAT(listener.heard, ::testing::ElementsAre("complete", "discard", "complete"));
}

TEST(GradientMemory, IsDiscardedBeforeItIsZeroed) {
  Tensor x = ones({4});
  x.set_requires_grad();
  x.set_grad(ones({4}));
  optim::SGD optimizer({x}, {.lr = 0.1});
  const Listener listener(x.grad());
  optimizer.zero_grad(false);
  EXPECT_THAT(listener.heard, ::testing::ElementsAre("discard"));
}

}  // namespace
}  // namespace lockstep
