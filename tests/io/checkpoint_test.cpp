#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/io/safetensors.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/temporary_folder.hpp"

// What docs/checkpointing.md shows.

namespace lockstep {
namespace {

struct Net : nn::Module {
  nn::Child<nn::Linear> first{this, "first", 6, 8};
  nn::Child<nn::BatchNorm1d> norm{this, "norm", 8};
  nn::Child<nn::Dropout> drop{this, "drop", 0.5};
  nn::Child<nn::Linear> last{this, "last", 8, 1};
  Tensor forward(const Tensor& x) { return last(drop(relu(norm(first(x))))); }
};

/// A model under training.
struct Training {
  nn::ModulePtr<Net> model = nn::make<Net>();
  optim::AdamW optimizer{model->named_parameters(), {.lr = 0.05}};
  optim::LRScheduler scheduler{optimizer, optim::ExponentialLR{.gamma = 0.9}};

  void step() {
    optimizer.zero_grad();
    square(model(randn({16, 6}))).mean().backward();
    optimizer.step();
    scheduler.step();
  }
};

void save(const std::filesystem::path& folder, const Training& run, int rank) {
  if (rank == 0) {
    NamedTensors state;
    for (const auto& [name, tensor] : run.model->state_dict())
      state.emplace_back("model." + name, tensor);
    for (const auto& [name, tensor] : run.optimizer.state_dict())
      state.emplace_back("optimizer." + name, tensor);
    state.emplace_back("schedule", tensor(run.scheduler.steps()));
    io::save_safetensors(folder / "run.safetensors", state);
  }
  const PhiloxState place = default_generator().state();
  io::save_safetensors(folder / ("rank" + std::to_string(rank) + ".safetensors"),
                       {{"generator", tensor({static_cast<std::int64_t>(place.seed),
                                              static_cast<std::int64_t>(place.offset)})}});
}

void load(const std::filesystem::path& folder, Training& run, int rank) {
  const auto file = io::SafetensorsFile::open(folder / "run.safetensors");
  run.model->load_state_dict(file.tensors("model."));
  run.optimizer.load_state_dict(file.tensors("optimizer."));
  run.scheduler.set_steps(file.tensor("schedule").item<std::int64_t>());
  const auto own =
      io::SafetensorsFile::open(folder / ("rank" + std::to_string(rank) + ".safetensors"));
  const auto place = own.tensor("generator").to_vector<std::int64_t>();
  default_generator().set_state({.seed = static_cast<std::uint64_t>(place[0]),
                                 .offset = static_cast<std::uint64_t>(place[1])});
}

TEST(Checkpoint, GoesOnBitForBit) {
  const testing::TemporaryFolder folder;
  manual_seed(11);
  Training first;
  for (int i = 0; i < 3; ++i) first.step();
  save(folder.path(), first, 0);
  for (int i = 0; i < 3; ++i) first.step();

  manual_seed(12);
  Training second;
  load(folder.path(), second, 0);
  for (int i = 0; i < 3; ++i) second.step();
  const NamedTensors expected = first.model->state_dict(), found = second.model->state_dict();
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(equal(found[i].second, expected[i].second)) << expected[i].first;
  EXPECT_EQ(second.optimizer.lr(), first.optimizer.lr());
}

}  // namespace
}  // namespace lockstep
