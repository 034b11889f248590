#include "lockstep/nn/module_dict.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/nn/linear.hpp"
#include "lockstep/nn/member.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep {
namespace {

TEST(ModuleDict, HoldsModulesUnderTheirNames) {
  const auto heads = nn::make<nn::ModuleDict<nn::Linear>>();
  heads->insert("price", nn::make<nn::Linear>(2, 1));
  heads->insert("kind", nn::make<nn::Linear>(2, 3));
  EXPECT_EQ(heads->size(), 2u);
  EXPECT_EQ(heads->at("kind")(ones({4, 2})).shape(), (Shape{4, 3}));
  EXPECT_EQ((*heads)["price"].get(), heads->at("price").get());
  EXPECT_TRUE(heads->contains("kind"));
  EXPECT_FALSE(heads->contains("color"));
  std::vector<std::string> names;
  for (const auto& [name, head] : *heads) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("price", "kind"));
  EXPECT_EQ(heads->state_dict().back().first, "kind.bias");
  EXPECT_THAT([&] { heads->at("color"); },
              ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("price, kind")));
  EXPECT_THROW(heads->insert("kind", nn::make<nn::Linear>(2, 1)), InvalidArgument);
  EXPECT_THROW(heads->insert("a.b", nn::make<nn::Linear>(2, 1)), InvalidArgument);
  EXPECT_EQ(heads->size(), 2u);
}

struct Heads : nn::Module {
  nn::Child<nn::ModuleDict<nn::Linear>> heads{
      this, "heads",
      std::vector<nn::ModuleDict<nn::Linear>::Entry>{{"a", nn::make<nn::Linear>(3, 1)},
                                                     {"b", nn::make<nn::Linear>(3, 2)}}};
  Tensor forward(const Tensor& x) const { return heads["b"](x); }
};

TEST(ModuleDict, IsUsedThroughItsOwnersMember) {
  const auto model = nn::make<Heads>();
  EXPECT_EQ(model(ones({4, 3})).shape(), (Shape{4, 2}));
  std::string names;
  for (const auto& [name, head] : model->heads) names += name;
  EXPECT_EQ(names, "ab");
  EXPECT_EQ(model->named_parameters().front().first, "heads.a.weight");
}

}  // namespace
}  // namespace lockstep
