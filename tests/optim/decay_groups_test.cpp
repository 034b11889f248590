#include <gtest/gtest.h>

#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::optim {
namespace {

NamedTensors model() {
  NamedTensors all{{"fc.weight", ones({2, 2})}, {"fc.bias", ones({2})}, {"norm.weight", ones({2})}};
  for (auto& [name, parameter] : all)
    parameter.set_requires_grad().set_grad(zeros(parameter.shape()));
  return all;
}

std::string names_of(const ParameterList& list) {
  std::string names;
  for (const auto& [name, parameter] : list.entries()) names += name + ' ';
  return names;
}

TEST(DecayGroups, SplitByShapeLetsMatricesAloneDecay) {
  const NamedTensors all = model();
  AdamW optimizer(decay_groups(all, AdamWOptions{.lr = 0.5, .weight_decay = 0.5}));
  optimizer.step();
  EXPECT_EQ(all[0].second.detach().to_vector<float>(), (std::vector<float>(4, 0.75F)));
  EXPECT_EQ(all[1].second.detach().to_vector<float>(), (std::vector<float>(2, 1.0F)));
  EXPECT_EQ(optimizer.options(1).weight_decay, 0.0);
  EXPECT_EQ(optimizer.lr(1), 0.5);
}

TEST(DecayGroups, SplitByName) {
  const auto groups = decay_groups(model(), AdamWOptions{}, without(with_name({"bias", "norm"})));
  EXPECT_EQ(names_of(groups[0].parameters), "fc.weight ");
  EXPECT_EQ(names_of(groups[1].parameters), "fc.bias norm.weight ");
}

TEST(DecayGroups, TakeTheOwnRateFromWhatDoesNotDecay) {
  const auto groups = decay_groups(model(), LAMBOptions{});
  EXPECT_TRUE(groups[0].options.adapt);
  EXPECT_FALSE(groups[1].options.adapt);
}

TEST(DecayGroups, MayHaveOptionsOfTheirOwn) {
  const auto groups =
      groups_by(model(), with_name({"norm"}), SGDOptions{.lr = 0.5}, SGDOptions{.lr = 0.25});
  EXPECT_EQ(names_of(groups[0].parameters), "norm.weight ");
  EXPECT_EQ(groups[0].options.lr, 0.5);
  EXPECT_EQ(groups[1].options.lr, 0.25);
  EXPECT_EQ(SGD(groups).parameters().size(), 3u);
}

}  // namespace
}  // namespace lockstep::optim
