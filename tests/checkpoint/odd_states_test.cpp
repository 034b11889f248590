#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/lockstep.hpp"
#include "support/temporary_folder.hpp"

// States of which little is as usual: no elements, no dimensions, frozen, in other dtypes and
// orders of memory.

namespace lockstep {
namespace {

using testing::tensor_files, testing::TemporaryFolder;
namespace fs = std::filesystem;

struct OddNet : nn::Module {
  nn::Parameter weight{this, "gewicht_ü", ones({7, 3})};
  nn::Parameter scalar{this, "scalar", ones({})};
  nn::Parameter pair{this, "pair", ones({2})};
  nn::Parameter none{this, "none", zeros({0, 3})};
  nn::Parameter frozen{this, "frozen", ones({5})};
  nn::Buffer image{this, "image", arange(120).reshape({2, 3, 4, 5}).to(DType::f32).channels_last()};
  nn::Buffer mask{this, "mask", zeros({3}, {.dtype = DType::boolean})};

  OddNet() {
    Generator generator(3);
    const NoGradGuard no_recording;
    for (auto& [name, tensor] : named_parameters())
      for (std::int64_t i = 0; i < tensor.numel(); ++i)
        if (tensor.is_contiguous())
          Tensor(tensor)
              .reshape({-1})
              .slice(0, i, i + 1)
              .fill_(uniform_from_bits(generator.next().word(0)));
    Tensor(frozen).set_requires_grad(false);
    Tensor(mask).slice(0, 1, 2).fill_(1);
  }
  Tensor forward(const Tensor& x) {
    return matmul(x, Tensor(weight)).to(DType::f32).square().sum() * Tensor(scalar).to(DType::f32) +
           Tensor(pair).to(DType::f32).sum() + Tensor(none).to(DType::f32).sum() +
           Tensor(frozen).to(DType::f32).sum() + Tensor(image).to(DType::f32).square().sum();
  }
};

struct OddRunCase {
  int zero;
  DType dtype;
  std::uint64_t file_bytes;
};

class OddRun {
 public:
  OddRun(const CommunicatorPtr& group, const fs::path& folder, const OddRunCase& given)
      : model_(make_model(given)),
        ddp_(model_, group, {.zero_stage = given.zero}),
        optimizer_(ddp_.named_parameters(), {.lr = 0.01}),
        checkpoints_(folder, group, {.file_bytes = given.file_bytes}) {
    dtype_ = given.dtype;
    checkpoints_.add("model", ddp_);
    checkpoints_.add("optimizer", optimizer_, ddp_);
    checkpoints_.add("scaler", scaler_);
  }
  void train() {
    for (int i = 0; i < 2; ++i) {
      ddp_(ones({2, 7}, {.dtype = dtype_})).backward();
      optimizer_.step();
      optimizer_.zero_grad();
    }
  }
  checkpoint::Manager& checkpoints() { return checkpoints_; }

 private:
  static nn::ModulePtr<OddNet> make_model(const OddRunCase& given) {
    auto model = nn::make<OddNet>();
    model->to(given.dtype);
    return model;
  }
  nn::ModulePtr<OddNet> model_;
  DistributedDataParallel<OddNet> ddp_;
  optim::AdamW optimizer_;
  amp::GradScaler scaler_{{.enabled = false}};
  DType dtype_;
  checkpoint::Manager checkpoints_;
};

TEST(OddStates, ComeBackOnAnyNumberOfRanksInAnyStage) {
  for (const auto& [dtype, file_bytes] :
       std::map<DType, std::uint64_t>{{DType::f32, 1}, {DType::bf16, std::uint64_t{4} << 30}}) {
    const TemporaryFolder folder;
    comm::run_ranks(2, [&](comm::Communicator& group) {
      OddRun run(CommunicatorPtr(&group), folder / "run", {1, dtype, file_bytes});
      run.train();
      run.checkpoints().save(1);
      ASSERT_TRUE(run.checkpoints().wait()) << run.checkpoints().error();
    });
    const auto expected = tensor_files(folder / "run/step-1");
    for (const int ranks : {1, 2, 3, 5})
      for (const int zero : {0, 1, 2, 3}) {
        const std::string name = detail::concat(ranks, "-", zero);
        comm::run_ranks(ranks, [&](comm::Communicator& group) {
          OddRun run(CommunicatorPtr(&group), folder / name, {zero, dtype, file_bytes});
          ASSERT_EQ(run.checkpoints().load(folder / "run/step-1"), 1) << name;
          run.checkpoints().save(2);
          ASSERT_TRUE(run.checkpoints().wait()) << name << run.checkpoints().error();
        });
        EXPECT_TRUE(tensor_files(folder / name / "step-2") == expected) << name << dtype;
      }
  }
}

TEST(OddStates, MomentsInFewBitsGoOnBitwise) {
  for (const optim::StateFormat format :
       {optim::StateFormat::bf16, optim::StateFormat::blockwise_8bit}) {
    const TemporaryFolder folder;
    comm::run_ranks(2, [&](comm::Communicator& group) {
      manual_seed(4);
      const auto train = [&](bool resumes) {
        auto model = nn::make<nn::Linear>(64, 130);
        DistributedDataParallel ddp(model, CommunicatorPtr(&group), {.zero_stage = 1});
        optim::AdamW optimizer(ddp.named_parameters(), {.lr = 0.01, .state_format = format});
        checkpoint::Manager checkpoints(folder / "run", CommunicatorPtr(&group));
        checkpoints.add("model", ddp);
        checkpoints.add("optimizer", optimizer, ddp);
        int step = resumes ? static_cast<int>(checkpoints.load_newest().value()) : 0;
        for (; step < 6; ++step) {
          if (step == 3 && !resumes) checkpoints.save(step);
          ddp(ones({4, 64}) * (1.0 + step)).square().mean().backward();
          optimizer.step();
          optimizer.zero_grad();
        }
        const auto whole = ddp.whole_parameters();
        return model->named_parameters()[0].second.to_vector<float>();
      };
      const auto expected = train(false);
      EXPECT_EQ(train(true) == expected, true) << name_of(format);
    });
  }
}

TEST(OddStates, AModelWithoutTensorsIsSaved) {
  const TemporaryFolder folder;
  comm::run_ranks(2, [&](comm::Communicator& group) {
    auto model = nn::make<nn::ReLU>();
    checkpoint::Manager checkpoints(folder / "run", CommunicatorPtr(&group));
    checkpoints.add("model", model);
    checkpoints.save(1);
    ASSERT_TRUE(checkpoints.wait()) << checkpoints.error();
    EXPECT_EQ(checkpoints.load_newest(), 1);
  });
  EXPECT_TRUE(checkpoint::verify(folder / "run/step-1").empty());
}

// Though nobody has added the average.
TEST(OddStates, AnOptimizersStateIsNotSavedWhileItsParametersHoldTheirAverages) {
  const TemporaryFolder folder;
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(3, 2);
    optim::AdamW optimizer(model->named_parameters());
    optim::WeightAverage average(model->named_parameters());
    checkpoint::Manager manager(folder / "run", group);
    manager.add("optimizer", optimizer);
    average.update();
    {
      const auto swapped = average.swap_in();
      EXPECT_THAT([&] { manager.save(1); }, ::testing::ThrowsMessage<InvalidArgument>(
                                                ::testing::HasSubstr("hold their averages")));
    }
    manager.save(2);
    EXPECT_TRUE(manager.wait()) << manager.error();
  });
}

TEST(OddStates, AnOptimizerWithNamelessGroupsIsRefusedBeforeAnythingIsTrained) {
  const TemporaryFolder folder;
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(3, 2);
    optim::AdamW optimizer({{{model->weight}, {.lr = 0.1}}, {{model->bias}, {.lr = 0.2}}});
    checkpoint::Manager manager(folder / "run", group);
    EXPECT_THAT([&] { manager.add("optimizer", optimizer); },
                ::testing::ThrowsMessage<InvalidArgument>(
                    ::testing::HasSubstr("needs the names of its parameters")));
  });
}

// Or a run that goes on from it would train averages.
TEST(OddStates, WeightsAreNotSavedOrLoadedWhileTheirAveragesAreInTheirPlace) {
  const TemporaryFolder folder;
  testing::run_job(2, [&](const CommunicatorPtr& group) {
    auto model = nn::make<nn::Linear>(3, 2);
    optim::WeightAverage average(model->named_parameters(), {.decay = 0.5});
    checkpoint::Manager manager(folder / "run", group);
    manager.add("model", model);
    manager.add("average", average);
    average.update();
    manager.save(1);
    const auto refused =
        ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("swap_out() first"));
    {
      const auto swapped = average.swap_in();
      EXPECT_THAT([&] { manager.save(2); }, refused);
      EXPECT_FALSE(manager.wait());
      EXPECT_THAT([&] { manager.load_newest(); }, refused);
    }
    EXPECT_EQ(manager.load_newest(), 1);
  });
}

TEST(OddStates, ATextThatIsNotUtf8IsRefusedByTheNameOfItsState) {
  const testing::TemporaryFolder folder;
  testing::run_job(1, [&](const CommunicatorPtr& group) {
    checkpoint::Manager manager(folder / "run", group);
    std::string text = "\xff";
    manager.add("note", text);
    manager.save(1);
    EXPECT_FALSE(manager.wait());
    EXPECT_THAT(manager.error(), ::testing::HasSubstr("state note has a text that is not UTF-8"));
  });
}

TEST(Values, AreReadAsAnyTypeThatHasThem) {
  checkpoint::Values values;
  values.set("size", std::size_t{5});
  values.set("step", std::int64_t{-3});
  values.set("odd", std::int64_t{9007199254740993});
  values.set("most", std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(values.get<double>("size"), 5.0);
  EXPECT_EQ(values.get<float>("step"), -3.0f);
  EXPECT_EQ(values.get<int>("size"), 5);
  EXPECT_THROW(values.get<double>("odd"), InvalidArgument);
  EXPECT_THROW(values.get<double>("most"), InvalidArgument);
  EXPECT_THROW(values.get<unsigned>("step"), InvalidArgument);
  EXPECT_THROW(values.get<int>("odd"), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
