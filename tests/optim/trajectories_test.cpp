#include <gtest/gtest.h>

#include "lockstep/io/safetensors.hpp"
#include "optim/all_optimizers.hpp"
#include "support/golden.hpp"
#include "support/place.hpp"

// Steps of PyTorch's optimizers: those of the golden file, and more options and optimizers from
// scripts/make_optimizer_references.py.

namespace lockstep {
namespace {

using nlohmann::json;
using testing::expect_close;

/// An optimizer by PyTorch's name and arguments.
std::unique_ptr<optim::Optimizer> make_optimizer(const json& item,
                                                 const std::vector<Tensor>& parameters) {
  for (const auto& each : testing::all_optimizers())
    if (each.name == item.at("optimizer")) return each.make_groups({{parameters, item.at("args")}});
  return nullptr;
}

class Trajectory : public ::testing::TestWithParam<std::tuple<testing::Place, std::string, DType>> {
 protected:
  void SetUp() override {
    if (testing::is_missing(place)) GTEST_SKIP() << "no CUDA device on this machine";
  }

  testing::Place place = std::get<0>(GetParam());
  testing::PlaceScope scope{place};

  /// All cases of a file.
  void follow(const std::string& name) const {
    const DType dtype = std::get<2>(GetParam());
    const auto file = io::SafetensorsFile::open(testing::golden_file(name));
    const auto at = [&](const std::string& prefix, std::size_t i) {
      return file.tensor(prefix + std::to_string(i));
    };
    std::size_t count = 0, steps = 0;
    while (file.contains("param." + std::to_string(count))) ++count;
    while (file.contains("grad." + std::to_string(steps) + ".0")) ++steps;
    ASSERT_GT(count * steps, 0u);
    for (const json& item : json::parse(file.metadata().at("cases"))) {
      std::vector<Tensor> parameters;
      const bool matrices = item.at("optimizer") == "Muon";
      for (std::size_t i = 0; i < count; ++i)
        if (const Tensor start = at("param.", i); !matrices || start.dim() == 2)
          parameters.push_back(start.to(place.device, dtype).clone().set_requires_grad());
      const auto optimizer = make_optimizer(item, parameters);
      ASSERT_TRUE(optimizer) << item.at("optimizer");
      for (std::size_t step = 0; step < steps; ++step) {
        const std::string number = std::to_string(step) + ".";
        for (std::size_t i = 0; i < parameters.size(); ++i)
          parameters[i].set_grad(at("grad." + number, i).to(place.device, dtype).clone());
        optimizer->step();
        const std::string after = item.at("name").get<std::string>() + "/after." + number;
        for (std::size_t i = 0; i < parameters.size(); ++i)
          expect_close(parameters[i].detach(), at(after, i), dtype == DType::f64 ? 1e-9 : 1e-5,
                       after + std::to_string(i));
      }
    }
  }
};

TEST_P(Trajectory, IsPytorchs) { follow(std::get<1>(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Files, Trajectory,
                         ::testing::Combine(::testing::ValuesIn(testing::places()),
                                            ::testing::Values("optimizers", "optimizer_steps"),
                                            ::testing::Values(DType::f64, DType::f32)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param).backend) + "_" +
                                  std::get<1>(each.param) + "_" +
                                  std::string(name(std::get<2>(each.param)));
                         });

}  // namespace
}  // namespace lockstep
