#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/load.hpp"
#include "checkpoint/thread_job.hpp"
#include "io/file_calls.hpp"
#include "lockstep/lockstep.hpp"
#include "support/temporary_folder.hpp"
#include "tensor/ownership.hpp"

// Tensors that training has stay where they are when a checkpoint is loaded.

namespace lockstep {
namespace {

using checkpoint::Manager, checkpoint::Piece, checkpoint::TensorState, checkpoint::Values,
    checkpoint::ValueState;
using ::testing::HasSubstr;
namespace fs = std::filesystem;
using testing::run_job, testing::TemporaryFolder;

/// A model with moments, on one rank.
class InPlaceTraining {
 public:
  explicit InPlaceTraining(const CommunicatorPtr& group, int zero_stage = 0)
      : net_(nn::make<nn::Linear>(40, 30)),
        ddp_(net_, group, {.zero_stage = zero_stage}),
        optimizer_(ddp_.named_parameters(), {.lr = 0.01}) {}

  void step() {
    optimizer_.zero_grad();
    const Tensor y = ddp_(ones({2, 40}));
    (y * y).sum().backward();
    optimizer_.step();
  }
  void add_to(Manager& checkpoints) {
    checkpoints.add("model", ddp_);
    checkpoints.add("optimizer", optimizer_, ddp_);
  }
  /// Weights and moments of this rank, by name.
  NamedTensors tensors() const {
    NamedTensors all;
    for (const NamedTensors& state : {ddp_.named_parameters(), optimizer_.state_dict()})
      for (const auto& [name, tensor] : state)
        if (tensor.numel() > 1) all.emplace_back(name, tensor.detach());
    return all;
  }
  optim::AdamW& optimizer() { return optimizer_; }
  std::map<std::string, const void*> places() const {
    std::map<std::string, const void*> places;
    for (const auto& [name, tensor] : tensors()) places[name] = tensor.data_ptr();
    return places;
  }
  std::map<std::string, std::vector<float>> values() const {
    std::map<std::string, std::vector<float>> values;
    for (const auto& [name, tensor] : tensors()) values[name] = tensor.to_vector<float>();
    return values;
  }

 private:
  nn::ModulePtr<nn::Linear> net_;
  DistributedDataParallel<nn::Linear> ddp_;
  optim::AdamW optimizer_;
};

/// A training that has saved its first step.
struct SavedTraining {
  SavedTraining(const CommunicatorPtr& group, const fs::path& folder, int zero_stage = 0)
      : training(group, zero_stage), checkpoints(folder, group, {.read_back = false}) {
    training.step();
    training.add_to(checkpoints);
    checkpoints.save(1);
    EXPECT_TRUE(checkpoints.wait()) << checkpoints.error();
  }
  InPlaceTraining training;
  Manager checkpoints;
};

std::string load_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(LoadInPlace, LeavesWeightsAndMomentsWhereTheyAre) {
  for (const int ranks : {1, 2, 3})
    for (const int zero_stage : {0, 1, 2, 3}) {
      const TemporaryFolder folder;
      run_job(ranks, [&](const CommunicatorPtr& group) {
        SavedTraining run(group, folder / "run", zero_stage);
        auto& [training, checkpoints] = run;
        const auto saved = training.values();
        training.step();
        ASSERT_NE(training.values(), saved);
        const auto places = training.places();
        EXPECT_EQ(checkpoints.load(folder / "run/step-1"), 1);
        EXPECT_EQ(training.values(), saved) << ranks << " ranks, stage " << zero_stage;
        EXPECT_EQ(training.places(), places) << ranks << " ranks, stage " << zero_stage;
        training.step();  // the replicas agree on what they have loaded
        EXPECT_NE(training.values(), saved);
      });
    }
}

TEST(LoadInPlace, FillsAnOptimizerThatHasMadeNoStep) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    SavedTraining run(group, folder / "run");
    auto& [training, checkpoints] = run;
    InPlaceTraining again(group);
    Manager others(folder / "other", group);
    again.add_to(others);
    EXPECT_EQ(others.load(folder / "run/step-1"), 1);
    EXPECT_EQ(again.values(), training.values());
    training.step();
    again.step();
    EXPECT_EQ(again.values(), training.values());
  });
}

/// Loads a checkpoint of two ranks, that rank 0 has spoiled, and looks what they have then.
void expect_nothing_changed(int zero_stage, const std::function<void(const fs::path&)>& spoil) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    SavedTraining run(group, folder / "run", zero_stage);
    auto& [training, checkpoints] = run;
    if (group->rank() == 0)
      for (const auto& [name, bytes] : testing::tensor_files(folder / "run/step-1"))
        if (name.starts_with("optimizer") && name.ends_with(".safetensors"))
          spoil(folder / "run/step-1" / name);
    group->barrier().wait();
    training.step();
    const auto before = training.values();
    EXPECT_THROW(checkpoints.load(folder / "run/step-1"), CorruptData);
    EXPECT_EQ(training.values(), before) << "stage " << zero_stage;
  });
}

TEST(LoadInPlace, ChangesNothingWhereTheLastByteIsDamaged) {
  for (const int zero_stage : {0, 1, 3})
    expect_nothing_changed(zero_stage, [](const fs::path& file) {
      std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
      stream.seekg(-1, std::ios::end);
      const int last = stream.get();
      stream.seekp(-1, std::ios::end).put(static_cast<char>(last ^ 1));
    });
}

/// Has reads of the process fail from one on, while it lives.
class FailingReads {
 public:
  explicit FailingReads(int first) {
    left = first;
    io::file_calls.pread = [](int file, void* data, size_t size, off_t offset) -> ssize_t {
      if (--left > 0) return ::pread(file, data, size, offset);
      errno = EIO;
      return -1;
    };
  }
  FailingReads(const FailingReads&) = delete;
  FailingReads& operator=(const FailingReads&) = delete;
  ~FailingReads() { io::file_calls = {}; }

 private:
  inline static std::atomic<int> left;
};

TEST(LoadInPlace, ChangesNothingWhicheverReadFails) {
  checkpoint::before_another_try = std::chrono::milliseconds(1);
  for (const int zero_stage : {0, 1, 3}) {
    const TemporaryFolder folder;
    run_job(1, [&](const CommunicatorPtr& group) {
      SavedTraining run(group, folder / "run", zero_stage);
      auto& [training, checkpoints] = run;
      const auto saved = training.values();
      training.step();
      const auto before = training.values();
      int failures = 0;
      for (bool failed = true; failed; failures += failed ? 1 : 0) {
        const FailingReads failing(failures + 1);
        failed = load_error([&] { checkpoints.load(folder / "run/step-1"); }) != "none";
        EXPECT_EQ(training.values(), failed ? before : saved) << failures;
      }
      EXPECT_GT(failures, 6) << "stage " << zero_stage;
    });
  }
  checkpoint::before_another_try = std::chrono::milliseconds(500);
}

/// A weight that is filled where it is.
TensorState in_place(const Tensor& weight, std::function<void(const Tensor&)> load) {
  return {.pieces =
              [weight] {
                return std::vector<Piece>{{.name = "w", .tensor = weight, .loads_in_place = true}};
              },
          .load = [load](const NamedTensors& all) { load(all.at(0).second); }};
}

TEST(LoadInPlace, ChangesNothingOfAStateThatOneRankRefuses) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    Tensor weight = ones({3000});
    bool refuses = false;
    Manager checkpoints(folder / "run", group);
    checkpoints.add("weight", in_place(weight, [&](const Tensor& found) {
                      EXPECT_TRUE(is_same_memory(found, weight));
                      if (refuses) throw InvalidArgument("none of it");
                    }));
    checkpoints.save(1);
    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
    weight.fill_(2.0);
    refuses = group->rank() == 1;
    EXPECT_THAT(load_error([&] { checkpoints.load(folder / "run/step-1"); }),
                HasSubstr("none of it"));
    EXPECT_EQ(weight.to_vector<float>(), std::vector<float>(3000, 2.0F));
  });
}

TEST(LoadInPlace, ATensorOfTwoStatesIsFilledOnce) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    const auto net = nn::make<nn::Linear>(40, 30);
    Manager checkpoints(folder / "run", group);
    checkpoints.add("model", *net);
    checkpoints.add("again", *net);
    const auto saved = net->weight.to_vector<float>();
    checkpoints.save(1);
    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
    const NoGradGuard no_recording;
    net->weight.fill_(7.0);
    checkpoints.load(folder / "run/step-1");
    EXPECT_EQ(net->weight.to_vector<float>(), saved);
  });
}

TEST(LoadInPlace, StatesBeforeOneThatARankRefusesAreWhole) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    InPlaceTraining training(group);
    training.step();
    const Tensor other = zeros({3});
    bool refuses = false;
    std::map<std::string, std::vector<float>> seen;
    Manager checkpoints(folder / "run", group);
    training.add_to(checkpoints);
    checkpoints.add(
        "other",
        TensorState{.pieces = [&] { return std::vector<Piece>{{.name = "x", .tensor = other}}; },
                    .load =
                        [&](const NamedTensors&) {
                          seen = training.values();
                          if (refuses) throw InvalidArgument("none of it");
                        }});
    checkpoints.save(1);
    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
    const auto saved = training.values();
    training.step();
    const auto next = training.values();
    training.step();
    refuses = group->rank() == 1;
    EXPECT_THAT(load_error([&] { checkpoints.load(folder / "run/step-1"); }),
                HasSubstr("none of it"));
    EXPECT_EQ(seen, saved);
    training.step();  // from moments and counts of one step
    EXPECT_EQ(training.values(), next);
  });
}

TEST(LoadInPlace, TensorsAreThereBeforeValuesAreTakenOver) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    InPlaceTraining training(group);
    std::map<std::string, std::vector<float>> seen;
    Manager checkpoints(folder / "run", group);
    training.add_to(checkpoints);
    checkpoints.add("looks", ValueState{.values =
                                            [] {
                                              return Values{{"value", 1}};
                                            },
                                        .load = [&](const Values&) { seen = training.values(); }});
    training.step();
    checkpoints.save(1);
    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
    const auto saved = training.values();
    training.step();
    checkpoints.load(folder / "run/step-1");
    EXPECT_EQ(seen, saved);
  });
}

TEST(LoadInPlace, RanksMayHaveTensorsThatCannotStay) {
  const TemporaryFolder folder;
  run_job(3, [&](const CommunicatorPtr& group) {
    // Of rank 1 it is a column, which is not contiguous.
    Tensor weight = group->rank() == 1 ? zeros({5, 2}).select(1, 0) : zeros({5});
    std::vector<const void*> given;
    Manager checkpoints(folder / "run", group);
    checkpoints.add("weight", in_place(weight, [&](const Tensor& found) {
                      given.push_back(found.data_ptr());
                      if (found.data_ptr() != weight.data_ptr()) weight.copy_(found);
                    }));
    weight.fill_(7.0);
    checkpoints.save(1);
    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
    weight.fill_(8.0);
    checkpoints.load(folder / "run/step-1");
    EXPECT_EQ(weight.to_vector<float>(), std::vector<float>(5, 7.0F));
    EXPECT_NE(given.at(0), weight.data_ptr());
  });
}

TEST(LoadInPlace, FindsStatesThatOptionsGiveOtherPlaces) {
  for (const bool was_centered : {false, true}) {
    const TemporaryFolder folder;
    run_job(1, [&](const CommunicatorPtr& group) {
      const Tensor weight = ones({300}).set_requires_grad();
      const auto make = [&](bool is_centered) {
        return optim::RMSprop(NamedTensors{{"w", weight}},
                              {.lr = 0.01, .momentum = 0.9, .centered = is_centered});
      };
      const auto step = [&](optim::RMSprop& optimizer, double factor) {
        optimizer.zero_grad();
        (weight * weight * factor).sum().backward();
        optimizer.step();
      };
      const auto momentum_of = [](const optim::RMSprop& optimizer) {
        for (const auto& [name, tensor] : optimizer.state_dict())
          if (name == "w.momentum_buffer") return tensor.to_vector<float>();
        return std::vector<float>();
      };
      optim::RMSprop saved = make(was_centered), loaded = make(!was_centered);
      step(saved, 1);
      step(loaded, 2);
      step(loaded, 3);
      Manager checkpoints(folder / "run", group), others(folder / "other", group);
      checkpoints.add("optimizer", saved);
      others.add("optimizer", loaded);
      checkpoints.save(1);
      ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
      ASSERT_NE(momentum_of(loaded), momentum_of(saved));
      others.load(folder / "run/step-1");
      EXPECT_EQ(momentum_of(loaded), momentum_of(saved)) << "centered: " << was_centered;
    });
  }
}

/// Two weights, or one under two names.
struct Twice : nn::Module {
  explicit Twice(bool is_tied)
      : a(register_parameter("a", ones({4}))),
        b(register_parameter("b", is_tied ? a : ones({4}))) {}
  Tensor a, b;
};

TEST(LoadInPlace, OneTensorMayComeUnderTwoNames) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    const auto apart = nn::make<Twice>(false), tied = nn::make<Twice>(true);
    Manager checkpoints(folder / "run", group), others(folder / "other", group);
    checkpoints.add("model", *apart);
    others.add("model", *tied);
    const NoGradGuard no_recording;
    apart->a.fill_(7.0);
    apart->b.fill_(7.0);
    checkpoints.save(1);
    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
    others.load(folder / "run/step-1");
    EXPECT_EQ(tied->a.to_vector<float>(), std::vector<float>(4, 7.0F));
    apart->b.fill_(8.0);
    checkpoints.save(2);
    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
    tied->a.fill_(8.0);
    EXPECT_THAT(load_error([&] { others.load(folder / "run/step-2"); }),
                HasSubstr("differs from the value given under another of its names"));
    EXPECT_EQ(tied->a.to_vector<float>(), std::vector<float>(4, 8.0F));
  });
}

TEST(LoadInPlace, AnOptimizerKeepsNoMoreMemoryThanItsStatesHave) {
  const Tensor weight = ones({100}).set_requires_grad();
  optim::Adam optimizer(NamedTensors{{"w", weight}}, {.lr = 0.01});
  weight.sum().backward();
  optimizer.step();
  NamedTensors state = optimizer.state_dict();
  for (auto& [name, tensor] : state)
    if (tensor.numel() > 1) tensor = ones({8, 100}).select(0, 1);
  optimizer.load_state_dict(std::move(state));
  for (const auto& [name, tensor] : optimizer.state_dict())
    EXPECT_EQ(tensor.impl().storage->bytes(), tensor.nbytes()) << name;
}

TEST(LoadInPlace, AnOptimizersStatesAreNoPartOfAGraph) {
  const Tensor weight = ones({100}).set_requires_grad();
  optim::Adam optimizer(NamedTensors{{"w", weight}}, {.lr = 0.01});
  weight.sum().backward();
  optimizer.step();
  NamedTensors state = optimizer.state_dict();
  for (auto& [name, tensor] : state)
    if (tensor.numel() > 1) tensor = weight * 2.0;
  optimizer.load_state_dict(std::move(state));
  for (const auto& [name, tensor] : optimizer.state_dict())
    EXPECT_FALSE(tensor.requires_grad()) << name;
}

TEST(LoadInPlace, OneRankMayLoadItsOwnStateAndAnotherACopyOfIt) {
  run_job(2, [&](const CommunicatorPtr& group) {
    InPlaceTraining training(group);
    training.step();
    NamedTensors state = training.optimizer().state_dict();
    if (group->rank() == 1)
      for (auto& [name, tensor] : state) tensor = tensor.clone();
    training.optimizer().load_state_dict(state);
    training.step();  // the replicas agree on what they have loaded
    EXPECT_EQ(training.values().size(), 6);
  });
}

TEST(LoadInPlace, ComesBehindTheCopiesOfASave) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    InPlaceTraining training(group);
    training.step();
    Manager checkpoints(folder / "run", group);
    training.add_to(checkpoints);
    for (int step = 1; step < 20; ++step) {
      checkpoints.save(step);
      const auto saved = training.values();
      training.step();
      checkpoints.load_newest();
      EXPECT_EQ(training.values(), saved) << step;
      training.step();
    }
  });
}

}  // namespace
}  // namespace lockstep
