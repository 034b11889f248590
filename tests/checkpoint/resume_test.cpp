// Runs that go on from a checkpoint, on other ranks too, with all that a step may have.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "checkpoint/training_run.hpp"

namespace lockstep {
namespace {

using testing::TrainingRunOptions, testing::TrainingRun, testing::run_job, testing::TaskKind,
    testing::TemporaryFolder;
namespace fs = std::filesystem;

/// What came of a run.
struct Outcome {
  std::vector<std::int64_t> samples = {};  ///< in the order of the run, of all ranks
  std::vector<std::string> bytes = {};     ///< of each rank
  std::vector<double> losses = {}, weights = {};
};

constexpr std::int64_t saved_step = 3, last_step = 8;  // epochs have 5

/// How it is run, and from where.
struct Start {
  int ranks = 2;
  fs::path folder = {};
  fs::path checkpoint = {};  ///< empty: from the beginning
  std::int64_t from = 0, to = last_step;
  bool saves = false;  ///< behind each step
};

Outcome run(const Start& start, const TrainingRunOptions& given) {
  const auto ranks = static_cast<std::size_t>(start.ranks);
  std::vector<std::vector<std::vector<std::int64_t>>> seen(ranks);
  Outcome outcome{.bytes = std::vector<std::string>(ranks)};
  std::vector<CommunicatorPtr> gpus;
  if (given.device.is_cuda()) gpus = comm::make_thread_group(start.ranks, {}, given.device);
  run_job(start.ranks, [&](const CommunicatorPtr& group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    TrainingRunOptions options = given;
    if (!gpus.empty()) options.host = group;
    TrainingRun run(gpus.empty() ? group : gpus[rank], start.folder, options);
    if (!start.checkpoint.empty()) run.checkpoints().load(start.checkpoint);
    run.on_step = [&](std::int64_t step) {
      if (start.saves) run.checkpoints().save(step);
    };
    run.train(start.to);
    ASSERT_TRUE(run.checkpoints().wait()) << run.checkpoints().error();
    if (given.device.is_cpu()) {  // on a GPU NCCL alone is captured
      EXPECT_EQ(run.fallback_reason(), "");
    }
    seen[rank] = run.seen();
    outcome.bytes[rank] = run.bytes();
    const std::vector<double> weights = run.weights();
    if (rank > 0) return;
    outcome.losses = run.losses();
    outcome.weights = weights;
  });
  for (std::size_t step = 0; step < seen[0].size(); ++step)
    for (const auto& own : seen)
      outcome.samples.insert(outcome.samples.end(), own[step].begin(), own[step].end());
  return outcome;
}

/// What a run must have seen that goes on behind a step.
std::vector<std::int64_t> rest(const Outcome& whole, std::int64_t step) {
  return {whole.samples.begin() + step * TrainingRunOptions().batch, whole.samples.end()};
}

void expect_close(const Outcome& found, const Outcome& expected) {
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  double worst = 0;
  for (std::size_t i = 0; i < found.weights.size(); ++i)
    worst = std::max(worst, std::abs(found.weights[i] - expected.weights[i]) -
                                1.3e-6 * std::abs(expected.weights[i]));
  EXPECT_LE(worst, 5e-5);
}

// --- Other ranks, workers, batches ahead and micro-batches ---

struct Shares {
  int ranks, workers, prefetch;
  std::int64_t micro_batch;
};

/// A run saved on 2 ranks, 3 workers and micro-batches of 8, and all on which it goes on.
class Resume {
 public:
  Resume(TaskKind kind, int zero, Device device = cpu,
         GradientReduction reduction = GradientReduction::standard) {
    options_.kind = kind;
    options_.device = device;
    options_.replica.zero_stage = zero;
    // The statistics of norms are those of the batches of all ranks, so that their number is one
    // of the things that change nothing.
    options_.synchronizes_norms = true;
    options_.step.micro_batch = 8;
    if (reduction == GradientReduction::reproducible) {
      options_.replica.reduction = reduction;
      options_.replica.micro_batches = 4;
      options_.step.micro_batch = 4;
    }
    whole_ = run({.folder = folder_ / "whole", .saves = true}, options_);
  }
  void goes_on(const Shares& each) const {
    SCOPED_TRACE(detail::concat(each.ranks, " ranks, ", each.workers, " workers, ", each.prefetch,
                                " batches ahead, micro-batches of ", each.micro_batch));
    TrainingRunOptions options = options_;
    options.workers = each.workers;
    options.prefetch = each.prefetch;
    options.step.micro_batch = each.micro_batch;
    // Parts of a batch have statistics of their own.
    if (options.kind == TaskKind::resnet && each.ranks != 2) options.step.micro_batch = 0;
    const Outcome found = run({.ranks = each.ranks,
                               .folder = folder_ / "again",
                               .checkpoint = folder_ / detail::concat("whole/step-", saved_step)},
                              options);
    EXPECT_EQ(found.samples, rest(whole_, saved_step));
    if (options.replica.reduction == GradientReduction::reproducible) {
      for (const std::string& bytes : found.bytes) EXPECT_TRUE(bytes == whole_.bytes[0]);
    } else if (each.ranks == 2 && each.micro_batch == 8) {
      EXPECT_TRUE(found.bytes == whole_.bytes);
    } else if (options.kind != TaskKind::resnet || each.ranks != 2) {
      expect_close(found, whole_);
    }
  }

 private:
  TemporaryFolder folder_;
  TrainingRunOptions options_;
  Outcome whole_;
};

// The others of the matrix are slow: ctest -R ResumeMatrix
TEST(Resume, GoesOnWithOtherRanksWorkersBatchesAheadAndMicroBatches) {
  for (const TaskKind kind : {TaskKind::gpt, TaskKind::resnet})
    for (const int zero : {0, 3}) {
      SCOPED_TRACE(detail::concat(name_of(kind), ", zero_stage ", zero));
      const Resume resume(kind, zero);
      for (const Shares& each : {Shares{1, 2, 8, 4}, {2, 0, 1, 8}, {3, 1, 1, 8}, {4, 3, 8, 4}})
        resume.goes_on(each);
    }
}

TEST(Resume, GpuGoesOnWithOtherRanksAndWorkers) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Resume resume(TaskKind::gpt, 2, cuda(0));
  for (const Shares& each : {Shares{1, 2, 8, 4}, {2, 0, 1, 8}, {3, 1, 8, 8}}) resume.goes_on(each);
}

using MatrixCase = std::tuple<TaskKind, int, DeviceType>;
class ResumeMatrix : public ::testing::TestWithParam<MatrixCase> {};

TEST_P(ResumeMatrix, SlowGoesOnWithEveryNumber) {
  const auto& [kind, zero, device] = GetParam();
  if (device == DeviceType::cuda && cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const bool is_cpu = device == DeviceType::cpu;
  const Resume resume(kind, zero, is_cpu ? cpu : cuda(0));
  for (const int ranks : {1, 2, 3, 4})
    for (const std::int64_t micro_batch : {4, 8})
      for (const int workers : {0, 1, 2, 3})
        for (const int prefetch : {1, 8})
          // Loaders know little of devices, and a simulated one takes long.
          if (is_cpu || (workers == ranks % 4 && prefetch == (micro_batch == 4 ? 1 : 8)))
            resume.goes_on({ranks, workers, prefetch, micro_batch});
}

INSTANTIATE_TEST_SUITE_P(Runs, ResumeMatrix,
                         ::testing::Combine(::testing::Values(TaskKind::perceptron, TaskKind::gpt,
                                                              TaskKind::resnet),
                                            ::testing::Values(0, 1, 2, 3),
                                            ::testing::Values(DeviceType::cpu, DeviceType::cuda)),
                         [](const auto& each) {
                           const bool is_gpu = std::get<2>(each.param) == DeviceType::cuda;
                           return detail::concat(name_of(std::get<0>(each.param)), "Zero",
                                                 std::get<1>(each.param),
                                                 is_gpu ? "OnAGpu" : "OnTheCpu");
                         });

// --- The same bits on other numbers of ranks ---

TEST(ResumeMatrixReproducible, SlowGoesOnBitwiseWithEveryNumber) {
  for (const TaskKind kind : {TaskKind::perceptron, TaskKind::gpt}) {
    SCOPED_TRACE(name_of(kind));
    const Resume resume(kind, 0, cpu, GradientReduction::reproducible);
    for (const int ranks : {1, 2, 4})
      for (const int workers : {0, 1, 2, 3})
        for (const int prefetch : {1, 8}) resume.goes_on({ranks, workers, prefetch, 4});
  }
}

TEST(Resume, GoesOnBitwiseFromFourToTwoToFourRanksWhereAveragesAreReproducible) {
  for (const TaskKind kind : {TaskKind::perceptron, TaskKind::gpt}) {
    const TemporaryFolder folder;
    TrainingRunOptions options{.kind = kind, .dropout = true};
    options.replica.reduction = GradientReduction::reproducible;
    options.replica.micro_batches = 4;
    options.step.micro_batch = 4;
    const Outcome whole = run({.ranks = 4, .folder = folder / "whole"}, options);
    std::vector<std::int64_t> samples;
    Outcome part;
    fs::path from;
    std::int64_t step = 0;
    for (const auto& [ranks, to] : {std::pair{4, 3}, {2, 6}, {4, 8}}) {
      options.workers = ranks - 2;
      part = run(
          {.ranks = ranks, .folder = folder / "parts", .checkpoint = from, .to = to, .saves = true},
          options);
      samples.insert(samples.end(), part.samples.begin(), part.samples.end());
      step = to;
      from = folder / detail::concat("parts/step-", step);
    }
    EXPECT_EQ(samples, whole.samples);
    EXPECT_EQ(part.bytes == whole.bytes, true) << name_of(kind);
  }
}

// --- All that a step may have ---

struct Condition {
  std::string name;
  TrainingRunOptions options;
};

std::vector<Condition> conditions() {
  using enum TaskKind;
  return {
      {"accumulation", {.kind = gpt, .step = {.micro_batch = 3}}},
      {"scaler, average and clipping in f16",
       {.kind = gpt,
        .step = {.autocast = DType::f16, .max_norm = 0.1},
        .scales = true,
        .averages = true}},
      {"capture, autocast, average and accumulation",
       {.kind = gpt,
        .step = {.autocast = DType::bf16, .micro_batch = 3, .capture = true},
        .averages = true}},
      {"small buckets", {.kind = gpt, .replica = {.bucket_bytes = 100, .first_bucket_bytes = 100}}},
      {"unused parameters, each rank its own buffers",
       {.uses_mean = true,
        .replica = {.find_unused_parameters = true, .broadcast_buffers = false}}},
      {"static graph, rank 0's buffers", {.uses_mean = true, .replica = {.static_graph = true}}},
      {"accumulation, rank 0's buffers", {.uses_mean = true, .step = {.micro_batch = 3}}},
      {"batch norm and accumulation", {.kind = resnet, .step = {.micro_batch = 3}}},
      {"ZeRO 2, scaler, average and accumulation",
       {.kind = gpt,
        .step = {.micro_batch = 3},
        .replica = {.zero_stage = 2},
        .scales = true,
        .averages = true}},
      {"ZeRO 3 and batch norm", {.kind = resnet, .replica = {.zero_stage = 3}}},
  };
}

void expect_goes_on(const Condition& condition, int ranks, Device device,
                    const std::vector<std::int64_t>& steps) {
  SCOPED_TRACE(detail::concat(condition.name, " on ", ranks, " ranks"));
  const TemporaryFolder folder;
  TrainingRunOptions options = condition.options;
  options.dropout = true;
  options.device = device;
  const Outcome whole = run({.ranks = ranks, .folder = folder / "whole", .saves = true}, options);
  options.workers = 0;
  for (const std::int64_t step : steps) {
    const Outcome found = run({.ranks = ranks,
                               .folder = folder / "again",
                               .checkpoint = folder / detail::concat("whole/step-", step)},
                              options);
    EXPECT_EQ(found.samples, rest(whole, step)) << "behind step " << step;
    EXPECT_TRUE(found.bytes == whole.bytes) << "behind step " << step;
    EXPECT_EQ(found.losses, std::vector(whole.losses.begin() + step, whole.losses.end()))
        << "behind step " << step;
  }
}

TEST(Resume, GoesOnBitwiseOnAsManyRanksWhateverAStepHas) {
  for (const Condition& condition : conditions())
    if (!condition.options.step.capture) expect_goes_on(condition, 3, cpu, {2, 4});
}

TEST(Resume, CapturedStepsGoOnBitwise) {
  for (const Condition& condition : conditions())
    if (condition.options.step.capture) expect_goes_on(condition, 3, cpu, {2, 4});
}

TEST(Resume, GpuGoesOnBitwiseWhateverAStepHas) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  for (const Condition& condition : conditions())
    if (condition.options.averages && !condition.options.step.capture)
      expect_goes_on(condition, 2, cuda(0), {3});
}

TEST(Resume, SlowGpuGoesOnBitwiseWhateverAStepHas) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  for (const Condition& condition : conditions()) expect_goes_on(condition, 2, cuda(0), {1, 3, 5});
}

/// Of which another one has a layer more, and more outputs.
struct GrowingNet : nn::Module {
  GrowingNet(std::int64_t outputs, bool has_more)
      : hidden(this, "hidden", 6, 4), output(this, "output", 4, outputs) {
    if (has_more) more.emplace(this, "more", 2, 2);
  }
  Tensor forward(const Tensor& x) {
    Tensor y = output(relu(hidden(x))).sum();
    return more ? y + (*more)(ones({1, 2})).sum() : y;
  }
  nn::Child<nn::Linear> hidden, output;
  std::optional<nn::Child<nn::Linear>> more;
};

/// A replica of it, with its optimizer.
struct NetRun {
  NetRun(const CommunicatorPtr& group, const fs::path& folder, int zero_stage, bool is_larger,
         const checkpoint::ManagerOptions& options)
      : net(nn::make<GrowingNet>(is_larger ? 3 : 1, is_larger)),
        ddp(net, group, {.zero_stage = zero_stage}),
        optimizer(ddp.named_parameters(), {.lr = 0.1}),
        checkpoints(folder, group, options) {
    checkpoints.add("model", ddp);
    checkpoints.add("optimizer", optimizer, ddp);
    checkpoints.add("losses", losses);
  }
  void step() {
    ddp(ones({2, 6})).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  std::vector<float> values(const std::string& name) {
    const auto whole = ddp.whole_parameters();
    for (const auto& [each, tensor] : net->state_dict())
      if (each == name) return tensor.to_vector<float>();
    return {};
  }
  std::int64_t steps_of(const std::string& parameter) {
    for (const auto& [name, value] : optimizer.state_dict())
      if (name == parameter + ".step") return value.item<std::int64_t>();
    return -1;
  }

  nn::ModulePtr<GrowingNet> net;
  DistributedDataParallel<GrowingNet> ddp;
  optim::AdamW optimizer;
  double losses = 3;
  checkpoint::Manager checkpoints;
};

// It is no damage: the checkpoint before would not have it otherwise.
TEST(Resume, AValueOfAnotherKindIsAnotherProgramsAndMayBeLeft) {
  using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::ThrowsMessage;
  const TemporaryFolder folder;
  run_job(1, [&](const CommunicatorPtr& group) {
    double number = 1.5;
    checkpoint::Manager saved(folder / "run", group, {.asynchronous = false});
    saved.add("best", number);
    for (const std::int64_t step : {1, 2}) saved.save(step);
    saved.wait();
  });
  run_job(1, [&](const CommunicatorPtr& group) {
    std::string text = "none";
    checkpoint::Manager strict(folder / "run", group);
    strict.add("best", text);
    EXPECT_THAT([&] { strict.load_newest(); },
                ThrowsMessage<InvalidArgument>(HasSubstr("is of another kind")));
  });
  run_job(1, [&](const CommunicatorPtr& group) {
    std::string text = "none";
    checkpoint::Manager partial(folder / "run", group, {.partial = true});
    partial.add("best", text);
    EXPECT_EQ(partial.load_newest(), 2);
    EXPECT_EQ(text, "none");
    EXPECT_THAT(partial.load_report().left, ElementsAre(HasSubstr("is of another kind")));
  });
}

TEST(Resume, PartialLoadsTakeWhatFitsAndSayWhatTheyLeave) {
  using ::testing::Contains, ::testing::ElementsAre, ::testing::HasSubstr;
  for (const int zero_stage : {0, 3}) {
    SCOPED_TRACE(zero_stage);
    const TemporaryFolder folder;
    run_job(2, [&](const CommunicatorPtr& group) {
      manual_seed(1);
      NetRun saved(group, folder / "run", zero_stage, false, {});
      for (int i = 0; i < 2; ++i) saved.step();
      saved.checkpoints.save(2);
      ASSERT_TRUE(saved.checkpoints.wait());

      NetRun strict(group, folder / "strict", zero_stage, true, {});
      const auto before = strict.values("hidden.weight");
      EXPECT_THROW(strict.checkpoints.load(folder / "run/step-2"), InvalidArgument);
      EXPECT_EQ(strict.values("hidden.weight"), before);

      NetRun other(group, folder / "partial", zero_stage, true, {.partial = true});
      const auto output = other.values("output.weight");
      double best = 7;
      other.checkpoints.add("best", best);
      other.losses = 0;
      other.optimizer.set_lr(0.5);
      EXPECT_EQ(other.checkpoints.load(folder / "run/step-2"), 2);
      EXPECT_EQ(other.values("hidden.weight"), saved.values("hidden.weight"));
      EXPECT_EQ(other.values("output.weight"), output);
      EXPECT_EQ(other.steps_of("hidden.weight"), 2);
      EXPECT_EQ(other.steps_of("output.weight"), 0);
      EXPECT_EQ(other.steps_of("more.bias"), 0);
      EXPECT_EQ(other.losses, 3);
      EXPECT_EQ(best, 7);
      const checkpoint::LoadReport& report = other.checkpoints.load_report();
      EXPECT_THAT(report.loaded, ElementsAre("model", "optimizer", "losses"));
      EXPECT_EQ(report.left.size(), 1U + 4 + 4 + 2);
      for (const char* line :
           {"best: the checkpoint has none",
            "model: output.weight: f32 [1, 4] there, f32 [3, 4] here",
            "model: more.bias: the checkpoint has none", "optimizer: more.bias.group: missing",
            "optimizer: groups.0.lr: 0.1 there, 0.5 here stays"})
        EXPECT_THAT(report.left, Contains(line));
      other.step();

      NetRun same(group, folder / "same", zero_stage, false, {.partial = true});
      same.checkpoints.load(folder / "run/step-2");
      EXPECT_EQ(same.checkpoints.load_report().left.size(), 0U);
      same.step();
      saved.step();
      EXPECT_EQ(same.values("output.weight"), saved.values("output.weight"));
    });
  }
}

TEST(Resume, ATensorThatHasTheShapeOfAShardIsNone) {
  using ::testing::Contains, ::testing::HasSubstr, ::testing::ThrowsMessage;
  const TemporaryFolder folder;
  const auto body = [&](const CommunicatorPtr& group) {
    const auto train = [&](auto layer, const Shape& shape, checkpoint::Manager& manager,
                           const auto& then) {
      auto net = nn::make<nn::Sequential>();
      net->append(layer);
      DistributedDataParallel ddp(net, group, {.zero_stage = 3});
      optim::AdamW optimizer(ddp.named_parameters(), {.lr = 0.1});
      manager.add("model", ddp);
      manager.add("optimizer", optimizer, ddp);
      ddp(ones(shape)).sum().backward();
      optimizer.step();
      then();
    };
    checkpoint::Manager saved(folder / "run", group, {.asynchronous = false});
    train(nn::make<nn::LayerNorm>(12), {2, 12}, saved, [&] { saved.save(1); });
    for (const bool partial : {false, true}) {
      checkpoint::Manager other(folder / (partial ? "a" : "b"), group, {.partial = partial});
      // Rank 1 has all 12 weights, and rank 0 none.
      train(nn::make<nn::Linear>(4, 3), {2, 4}, other, [&] {
        const auto load = [&] { other.load(folder / "run/step-1"); };
        if (!partial) {
          EXPECT_THAT(load,
                      ThrowsMessage<InvalidArgument>(HasSubstr("0.weight: f32 [12] there, f32 "
                                                               "[3, 4] here")));
          return;
        }
        load();
        const auto& [loaded, left] = other.load_report();
        EXPECT_THAT(left, Contains("model: 0.weight: f32 [12] there, f32 [3, 4] here"));
        EXPECT_THAT(loaded, ::testing::Not(Contains("model")));
        EXPECT_THAT(other.load_report().left, Contains(HasSubstr("optimizer: 0.weight.exp_avg: ")));
      });
    }
  };
  run_job(2, body);
}

// Ranks read but their shards of it.
TEST(Resume, OfATensorOfAnotherDtypeTheWholeShapeIsTold) {
  using ::testing::HasSubstr, ::testing::ThrowsMessage;
  const TemporaryFolder folder;
  run_job(2, [&](const CommunicatorPtr& group) {
    auto layer = nn::make<nn::Linear>(4, 3);
    DistributedDataParallel ddp(layer, group, {.zero_stage = 3});
    checkpoint::Manager saved(folder / "run", group, {.asynchronous = false});
    saved.add("model", ddp);
    saved.save(1);
    auto exact = nn::make<nn::Linear>(4, 3);
    exact->to(DType::f64);
    DistributedDataParallel other(exact, group, {.zero_stage = 3});
    checkpoint::Manager loading(folder / "other", group);
    loading.add("model", other);
    EXPECT_THAT(
        [&] { loading.load(folder / "run/step-1"); },
        ThrowsMessage<InvalidArgument>(HasSubstr("weight: f32 [3, 4] there, f64 [3, 4] here")));
  });
}

}  // namespace
}  // namespace lockstep
