#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/refusal.hpp"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;

TEST(InPlace, RefusesAnOperandThatItWouldOverwriteWhileReading) {
  Tensor square = arange(9).reshape({3, 3});
  EXPECT_THAT(refusal([&] { square.copy_(square.transpose(0, 1)); }),
              AllOf(HasSubstr("copy_"), HasSubstr("shares memory"), HasSubstr("clone()")));
  Tensor line = ones({6});
  EXPECT_THAT(refusal([&] { line.slice(0, 1, 6).add_(line.slice(0, 0, 5)); }),
              AllOf(HasSubstr("add_"), HasSubstr("shares memory")));
  EXPECT_THAT(refusal([&] { square.mul_(square.slice(0, 0, 1)); }), HasSubstr("shares memory"));
  EXPECT_THAT(refusal([&] { square.slice(1, 0, 2).copy_(square.slice(1, 1, 3)); }),
              HasSubstr("shares memory"));
  EXPECT_THAT(refusal([&] { line.slice(0, 0, 6, 2).add_(line.slice(0, 0, 3)); }),
              HasSubstr("shares memory"));
  EXPECT_THAT(square.to_vector<float>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(line.to_vector<float>(), ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST(InPlace, RefusesATensorWithSeveralElementsAtOnePlace) {
  Tensor line = zeros({3});
  Tensor repeated = line.reshape({1, 3}).expand({4, 3});
  for (const std::string& message : {refusal([&] {
                                       repeated.add_(ones({4, 3}));
                                     }),
                                     refusal([&] { repeated.mul_(ones({3})); }),
                                     refusal([&] { repeated.mul_(2.0); }), refusal([&] {
                                       repeated.copy_(ones({4, 3}));
                                     })})
    EXPECT_THAT(message, AllOf(HasSubstr("[0, 1]"), HasSubstr("expand"), HasSubstr("clone()")));
  repeated.fill_(2.0);  // the order of these writes does not matter
  EXPECT_THAT(line.to_vector<float>(), ElementsAre(2, 2, 2));
}

TEST(InPlace, TakesOperandsOfTheSameMemoryThatDoNotMeet) {
  Tensor a = arange(4);
  a.add_(a);
  EXPECT_THAT(a.to_vector<float>(), ElementsAre(0, 2, 4, 6));
  a.mul_(a.detach());
  EXPECT_THAT(a.to_vector<float>(), ElementsAre(0, 4, 16, 36));
  a.slice(0, 0, 2).copy_(a.slice(0, 2, 4));
  EXPECT_THAT(a.to_vector<float>(), ElementsAre(16, 36, 16, 36));
  a.slice(0, 0, 4, 2).add_(a.slice(0, 1, 4, 2));
  EXPECT_THAT(a.to_vector<float>(), ElementsAre(52, 36, 52, 36));
  Tensor square = arange(16).reshape({4, 4});
  square.slice(1, 0, 2).copy_(square.slice(1, 2, 4));
  EXPECT_THAT(square.select(0, 1).to_vector<float>(), ElementsAre(6, 7, 6, 7));
  square.transpose(0, 1).add_(square.transpose(0, 1));
  EXPECT_THAT(square.select(0, 1).to_vector<float>(), ElementsAre(12, 14, 12, 14));
  square.slice(0, 1, 4).add_(square.slice(0, 0, 1));
  EXPECT_THAT(square.select(0, 1).to_vector<float>(), ElementsAre(16, 20, 16, 20));
  zeros({0, 3}).expand({4, 0, 3}).mul_(2.0);
}

}  // namespace
}  // namespace lockstep
