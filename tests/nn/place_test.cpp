#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/leaf.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/tensor/factories.hpp"

// Errors in backward say in which layer the op was recorded.

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct FeedForward : nn::Module {
  nn::Child<nn::Linear> fc1{this, "fc1", 3, 3};
  nn::Child<nn::Linear> fc2{this, "fc2", 3, 3};
  Tensor forward(const Tensor& x) {
    hidden = fc1(x);
    return fc2(hidden);
  }
  Tensor hidden;
};

struct FeedForwards : nn::Module {
  nn::Child<nn::ModuleList<FeedForward>> blocks{this, "blocks", 2};
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (const auto& block : *blocks) y = block(y);
    return y * 2.0;
  }
};

std::string message_of_backward(const Tensor& y) {
  try {
    sum(y).backward();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

/// What fc2 of the last block keeps for its backward is overwritten.
Tensor spoilt(FeedForwards& net) {
  const Tensor y = net.forward(ones({2, 3}));
  no_grad([&] { net.blocks[1]->hidden.fill_(0.0); });
  return y;
}

TEST(PlaceOfAnError, IsTheLayerOfTheForward) {
  const auto net = nn::make<FeedForwards>();
  EXPECT_THAT(message_of_backward(spoilt(*net)),
              StartsWith("in blocks.1.fc2: backward of linear: a saved tensor"));
}

TEST(PlaceOfAnError, IsKnownToAnotherThread) {
  const auto net = nn::make<FeedForwards>();
  const Tensor y = spoilt(*net);
  std::string message;
  std::thread([&] { message = message_of_backward(y); }).join();
  EXPECT_THAT(message, StartsWith("in blocks.1.fc2: "));
}

TEST(PlaceOfAnError, IsUnknownOnceTheModuleIsGone) {
  std::optional<nn::ModulePtr<FeedForwards>> net = nn::make<FeedForwards>();
  const Tensor y = spoilt(**net);
  net.reset();
  EXPECT_THAT(message_of_backward(y), StartsWith("backward of linear: "));
}

// What a hook says is not the layer's.
TEST(PlaceOfAnError, IsNotPutBeforeTheErrorOfAHook) {
  const auto net = nn::make<FeedForwards>();
  autograd::leaf_of(net->blocks[0]->fc1->weight).add_hook([](autograd::LeafNode&) {
    LOCKSTEP_THROW(InvalidArgument, "the hook's own words");
  });
  EXPECT_EQ(message_of_backward(net(ones({2, 3}))), "the hook's own words");
}

TEST(PlaceOfAnError, IsNotPutBeforeErrorsOutsideModules) {
  const Tensor x = ones({2}).set_requires_grad();
  const Tensor y = exp(x);
  no_grad([&] { Tensor(y).fill_(0.0); });
  EXPECT_THAT(message_of_backward(y), StartsWith("backward of exp: "));
}

}  // namespace
}  // namespace lockstep
