// What a training has beside its module's parameters and its optimizer's states: averaged buffers,
// hooks, parameters that nobody wraps, epochs.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/lockstep.hpp"

namespace lockstep::train {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_job;
using testing::TemporaryFolder;

/// What is logged while it lives.
class HeardLines {
 public:
  HeardLines() {
    set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
  }
  HeardLines(const HeardLines&) = delete;
  HeardLines& operator=(const HeardLines&) = delete;
  ~HeardLines() { set_log_sink(nullptr); }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;  // under the log's lock
};

std::string bytes_of_all(const NamedTensors& tensors) {
  std::string bytes;
  for (const auto& [name, tensor] : tensors)
    bytes.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  return bytes;
}

struct NormedNet : nn::Module {
  nn::Child<nn::Linear> linear{this, "linear", 3, 64};
  nn::Child<nn::BatchNorm1d> norm{this, "norm", 64};
  Tensor forward(const Tensor& x) { return norm(linear(x)); }
};

/// A rank that averages the statistics of its batch norm, too.
struct AveragedTraining {
  explicit AveragedTraining(const CommunicatorPtr& group)
      : ddp(net, group),
        optimizer(ddp.named_parameters(), {.lr = 0.1}),
        average(parameters_and_statistics(), {.decay = 0.5}),
        step(ddp, optimizer,
             [this](std::span<const Tensor> in) { return mean(square(ddp(in[0]) - 1)); },
             {.average = &average}),
        rank(group->rank()) {}
  NamedTensors parameters_and_statistics() const {
    NamedTensors all = net->named_parameters();
    for (const auto& [name, buffer] : net->named_buffers())
      if (is_floating(buffer.dtype())) all.emplace_back(name, buffer);
    return all;
  }
  Tensor rows(int number) const {
    Generator generator(static_cast<std::uint64_t>(10 * number + rank));
    return randn({5, 3}, {}, generator);
  }

  nn::ModulePtr<NormedNet> net = [] {
    manual_seed(1);
    return nn::make<NormedNet>();
  }();
  DistributedDataParallel<NormedNet> ddp;
  optim::SGD optimizer;
  optim::WeightAverage average;
  Step step;
  std::optional<LocalSGD> averaging;
  int rank;
};

TEST(AveragedBuffers, AreEvaluatedAsRank0HasThem) {
  std::vector<std::string> evaluated(3);
  run_job(3, [&](const CommunicatorPtr& group) {
    AveragedTraining training(group);
    for (int i = 0; i < 4; ++i) training.step({training.rows(i)});
    const auto rank = static_cast<std::size_t>(group->rank());
    const std::string trained = bytes_of_all(training.net->named_parameters());
    {
      const auto scope = training.step.evaluation();
      evaluated[rank] = bytes_of_all(training.net->state_dict());
      for (const auto& [key, value] : training.average.state_dict())
        if (rank == 0 && key == "norm.running_mean") {
          EXPECT_EQ(training.net->norm->running_mean.to_vector<double>(),
                    value.to_vector<double>());
        }
    }
    EXPECT_TRUE(bytes_of_all(training.net->named_parameters()) == trained);
  });
  for (const std::size_t rank : {1u, 2u}) EXPECT_TRUE(evaluated[rank] == evaluated[0]) << rank;
}

// In a loop of one's own, which averages what each rank has.
TEST(AveragedBuffers, AreSavedAsRank0HasThem) {
  const TemporaryFolder folder;
  std::string saved;
  run_job(2, [&](const CommunicatorPtr& group) {
    AveragedTraining training(group);
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("average", training.average, training.ddp);
    for (int i = 0; i < 4; ++i) {
      mean(square(training.ddp(training.rows(i)))).backward();
      training.optimizer.step();
      training.optimizer.zero_grad();
      training.average.update();
    }
    checkpoints.save(4);
    checkpoints.wait();
    if (group->rank() == 0) saved = bytes_of_all(training.average.state_dict());
  });
  run_job(2, [&](const CommunicatorPtr& group) {
    AveragedTraining training(group);
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("average", training.average, training.ddp);
    EXPECT_EQ(checkpoints.load_newest(), 4);
    EXPECT_TRUE(bytes_of_all(training.average.state_dict()) == saved) << group->rank();
  });
}

// Behind an evaluation no parameter of stage 3 is there whole.
TEST(AveragedShards, AreSavedBehindAnEvaluation) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    manual_seed(1);
    const auto net = nn::make<nn::Linear>(3, 4);
    DistributedDataParallel<nn::Linear> ddp(net, group, {.zero_stage = 3});
    optim::AdamW optimizer(ddp.named_parameters(), {});
    optim::WeightAverage average(net->named_parameters(), {.decay = 0.5});
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("model", ddp);
    checkpoints.add("optimizer", optimizer, ddp);
    checkpoints.add("average", average, ddp);
    for (int step = 1; step < 4; ++step) {
      mean(square(ddp(ones({2, 3})))).backward();
      optimizer.step();
      optimizer.zero_grad();
      {
        const auto whole = ddp.whole_parameters();
        average.update();
        const auto evaluated = average.swap_in();
        average.swap_out();
      }
      EXPECT_NO_THROW(checkpoints.save(step));
      checkpoints.wait();
    }
  });
}

/// Runs a loop over 5 batches an epoch. @return steps made, over all starts.
std::int64_t run_epochs(const CommunicatorPtr& group, const LoopOptions& options,
                        const std::function<void(Loop&, AveragedTraining&, Step&)>& prepare = {}) {
  AveragedTraining training(group);
  data::DataLoader loader(data::TensorDataset({training.rows(0).reshape({15})}),
                          data::SequentialSampler(15), {.batch_size = 3});
  Step step(training.ddp, training.optimizer, [&](std::span<const Tensor> in) {
    return mean(square(training.ddp(in[0].unsqueeze(1).expand({in[0].size(0), 3}))));
  });
  Loop loop(group, options);
  if (prepare) prepare(loop, training, step);
  EXPECT_EQ(loop.run(loader, step), 0);
  return loop.steps();
}

TEST(TrainLoop, MakesAllEpochsBehindACheckpointThatKnowsOfNone) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    {
      AveragedTraining training(group);
      checkpoint::Manager checkpoints(folder / "before", group);
      training.step.add_to(checkpoints);
      checkpoints.save(7);
      checkpoints.wait();
    }
    EXPECT_EQ(run_epochs(group, {.epochs = 2,
                                 .checkpoint_dir = folder / "after",
                                 .checkpoints = {.partial = true},
                                 .resume_from = folder / "before/step-7"}),
              7 + 10);
  });
}

TEST(TrainLoop, WarnsWhereWhatAHookKeepsIsNotSaved) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    const auto warning = Contains(HasSubstr("keep nothing of the communication hook PowerSGD"));
    for (const bool adds : {false, true}) {
      const HeardLines heard;
      const auto hook = std::make_shared<parallel::PowerSgd>();
      Tensor kept = ones({2});
      run_epochs(group, {.epochs = 1, .checkpoint_dir = folder / (adds ? "with" : "without")},
                 [&](Loop& loop, AveragedTraining& training, Step& step) {
                   training.ddp.register_comm_hook(hook);
                   loop.add(step);
                   loop.add("queue", kept);
                   if (adds) loop.add("hook", *hook, training.ddp);
                 });
      if (adds) {
        EXPECT_THAT(heard.lines(), Not(warning));
      } else {
        EXPECT_THAT(heard.lines(), warning);
      }
    }
  });
}

TEST(TrainLoop, WarnsWhereWhatAnAveragingKeepsIsNotSaved) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    const auto warning = Contains(HasSubstr("keep nothing of LocalSGD"));
    for (const bool adds : {false, true}) {
      const HeardLines heard;
      run_epochs(group, {.epochs = 1, .checkpoint_dir = folder / (adds ? "with" : "without")},
                 [&](Loop& loop, AveragedTraining& training, Step& step) {
                   training.averaging.emplace(training.ddp, training.optimizer);
                   loop.add(step);
                   if (adds) loop.add("averaging", *training.averaging);
                 });
      if (adds) {
        EXPECT_THAT(heard.lines(), Not(warning));
      } else {
        EXPECT_THAT(heard.lines(), warning);
      }
    }
  });
}

// An optimizer with the parameters of two wrappers, of which a step knows one.
TEST(TrainLoop, WarnsWhereAParameterOfTheOptimizerIsNotSaved) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    const auto warning =
        Contains(HasSubstr("parameter decoder.weight, which is not of the step's"));
    for (const bool adds : {false, true}) {
      const HeardLines heard;
      const auto encoder = nn::make<nn::Linear>(3, 2), decoder = nn::make<nn::Linear>(2, 1);
      DistributedDataParallel<nn::Linear> first(encoder, group), second(decoder, group);
      NamedTensors all = first.named_parameters("encoder");
      for (const auto& each : second.named_parameters("decoder")) all.push_back(each);
      optim::SGD optimizer(all, {.lr = 0.1});
      Step step(first, optimizer,
                [&](std::span<const Tensor> in) { return mean(second(first(in[0]))); });
      data::DataLoader loader(data::TensorDataset({rand({6, 3})}), data::SequentialSampler(6),
                              {.batch_size = 3});
      Loop loop(group, {.epochs = 1, .checkpoint_dir = folder / (adds ? "with" : "without")});
      if (adds) {
        loop.add(step);
        loop.add("decoder", second);
      }
      EXPECT_EQ(loop.run(loader, step), 0);
      if (adds) {
        EXPECT_THAT(heard.lines(), Not(warning));
      } else {
        EXPECT_THAT(heard.lines(), warning);
      }
    }
  });
}

// A loss of 0 for a batch that counts nothing, on one rank and on several, in parts or whole.
TEST(TrainStep, HasALossOf0WhereNothingCounts) {
  for (const int ranks : {1, 2})
    for (const std::int64_t part : {0, 2})
      for (const bool is_tensor : {false, true}) {
        SCOPED_TRACE(lockstep::detail::concat(ranks, " ranks, parts of ", part, ' ', is_tensor));
        run_job(ranks, [&](const CommunicatorPtr& group) {
          const auto net = nn::make<nn::Linear>(3, 1);
          DistributedDataParallel<nn::Linear> ddp(net, group);
          optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
          Step step(ddp, optimizer,
                    [&](std::span<const Tensor> in) -> WeightedLoss {
                      const Tensor loss = sum(ddp(in[0])) * 0.0 / 0.0;
                      if (is_tensor) return {loss, zeros({}, {DType::f64})};
                      return {loss, 0.0};
                    },
                    {.micro_batch = part});
          EXPECT_EQ(step({ones({4, 3})}).loss.item(), 0.0);
        });
      }
}

TEST(TrainLoop, WarnsOnceOfAMetricThatIsNoNumber) {
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    const HeardLines heard;
    run_epochs(group, {.epochs = 2, .eval_every = 2}, [&](Loop& loop, AveragedTraining&, Step&) {
      loop.evaluate = [] { return std::numeric_limits<double>::quiet_NaN(); };
    });
    const auto lines = heard.lines();
    EXPECT_EQ(std::ranges::count_if(
                  lines,
                  [](const std::string& line) {
                    return line.find("the metric of the evaluation behind step 2 is NaN") !=
                           std::string::npos;
                  }),
              1);
  });
}

TEST(TrainStep, WarnsOfAParameterThatNobodyAverages) {
  const HeardLines heard;
  run_job(2, [&](const CommunicatorPtr& group) {
    const auto net = nn::make<nn::Linear>(3, 2), head = nn::make<nn::Linear>(2, 1);
    DistributedDataParallel<nn::Linear> ddp(net, group);
    NamedTensors all = ddp.named_parameters("net");
    EXPECT_EQ(all[0].first, "net.weight");
    for (const auto& each : head->named_parameters("head")) all.push_back(each);
    optim::SGD optimizer(all, {.lr = 0.1});
    Step step(ddp, optimizer, [&](std::span<const Tensor> in) { return mean(head(ddp(in[0]))); },
              {.max_norm = 1});
    step({ones({4, 3})});
  });
  EXPECT_THAT(heard.lines(), Contains(HasSubstr("a parameter head.weight of shape [1, 2] that no "
                                                "DistributedDataParallel has")));
  EXPECT_THAT(heard.lines(), Contains(HasSubstr("ranks whose norms differ")));
}

TEST(TensorStates, AreLoadedInPlaceOrRefused) {
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    Tensor queue = arange(6).reshape({2, 3}).to(DType::f32);
    {
      checkpoint::Manager checkpoints(folder / "run", group);
      checkpoints.add("queue", queue);
      checkpoints.save(1);
      checkpoints.wait();
    }
    const Tensor view = queue;
    const std::vector<double> saved = queue.to_vector<double>();
    queue.fill_(0);
    {
      checkpoint::Manager checkpoints(folder / "run", group);
      checkpoints.add("queue", queue);
      EXPECT_EQ(checkpoints.load_newest(), 1);
      EXPECT_EQ(view.to_vector<double>(), saved);
    }
    Tensor longer = zeros({3, 3});
    checkpoint::Manager checkpoints(folder / "run", group);
    checkpoints.add("queue", longer);
    EXPECT_THAT([&] { checkpoints.load_newest(); },
                ::testing::ThrowsMessage<InvalidArgument>(
                    HasSubstr("value: f32 [2, 3] there, f32 [3, 3] here")));
  });
  Tensor undefined;
  EXPECT_THROW(checkpoint::state_of(undefined), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::train
