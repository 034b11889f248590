// Random models, trained in random ways by some ranks: equal to one process.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/amp/grad_scaler.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "lockstep/nn/checkpoint.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/parallel/delayed_reduction.hpp"
#include "lockstep/parallel/divergence_check.hpp"
#include "lockstep/parallel/power_sgd.hpp"
#include "lockstep/train/periodic_averaging.hpp"
#include "lockstep/train/step_graph.hpp"
#include "parallel/replicas.hpp"

namespace lockstep::parallel::testing {
namespace {

using Calls = std::vector<std::size_t>;  // of layers, which may come twice, or not at all

/// What is trained, and how: the same on all ranks for a seed.
struct Plan {
  explicit Plan(std::uint64_t from) : seed(from), random(from) {
    layers = number(1, 5);
    for (std::size_t i = 0; i < layers; ++i) {
      dtypes.push_back(chance(5) ? DType::f32 : DType::f64);
      has_bias.push_back(!chance(3));
      is_frozen.push_back(i > 0 && chance(5));
      is_computed_again.push_back(chance(4));
    }
    ranks = static_cast<int>(number(1, 4));
    steps = static_cast<int>(number(2, 4));
    micro_batches = static_cast<int>(number(1, 3));
    constexpr std::size_t sizes[] = {1, 200, 2000, std::size_t{25} << 20};
    use = static_cast<Use>(number(0, 2));
    options = {.bucket_bytes = sizes[number(0, 3)],
               .first_bucket_bytes = sizes[number(0, 3)],
               .find_unused_parameters = use == Use::changing,
               .static_graph = use == Use::fixed,
               .zero_stage = static_cast<int>(number(0, 3))};
    if (options.zero_stage == 3) use_all();  // ranks gather together what they use
    is_weighted = chance(2);
    some_lack_data = is_weighted && options.zero_stage < 3 && chance(2);
    is_adaptive = chance(2);
    clips = chance(2);
    scales = !some_lack_data && chance(3);
    is_captured = use != Use::changing && !some_lack_data && chance(3);
    if (use != Use::changing && options.zero_stage == 0 && chance(2)) {
      options.bucket_plan = BucketPlanning::measured;
      steps += 2;  // those after the plan
    }
    calls_modules = chance(2);
    evaluates = chance(3);
    looks = !is_captured && chance(4);
  }

  /// With options that may not go together, or not with what the ranks do.
  static Plan with_any_options(std::uint64_t from) {
    Plan plan(from);
    plan.steps += 2;
    plan.options.find_unused_parameters =
        plan.use == Use::changing ? !plan.chance(6) : plan.chance(4);
    plan.options.static_graph = plan.use == Use::fixed ? !plan.chance(6) : plan.chance(4);
    if (plan.chance(2)) plan.options.zero_stage = 0;
    plan.options.bucket_plan = plan.chance(4) ? BucketPlanning::measured : BucketPlanning::pytorch;
    plan.some_lack_data = plan.chance(5);
    plan.scales = plan.chance(4);
    plan.is_captured = plan.use != Use::changing && plan.chance(3);
    plan.hook = plan.chance(3) ? static_cast<Hook>(plan.number(1, 4)) : Hook::none;
    plan.async = plan.chance(6) ? static_cast<Async>(plan.number(1, 2)) : Async::none;
    plan.checks_divergence = plan.chance(4);
    plan.one_skips = plan.chance(12);
    if (plan.chance(5)) {
      plan.options.reduction = GradientReduction::reproducible;
      plan.options.micro_batches = plan.ranks * plan.micro_batches;
      if (!plan.chance(4)) plan.options.zero_stage = 0;
    }
    return plan;
  }
  /// False of ways to train that are meant to differ from one process.
  bool is_exact() const {
    if (async == Async::local)
      return use == Use::all && !is_adaptive && !clips && !is_weighted && !scales;
    return async == Async::none && hook != Hook::rounding && hook != Hook::delayed;
  }

  /// Backwards over which gradients are averaged: other ones than the last of a rank add up.
  int averaged_count() const {
    return options.reduction == GradientReduction::reproducible ? ranks * micro_batches : ranks;
  }
  void use_all() {
    use = Use::all;
    options.find_unused_parameters = options.static_graph = false;
  }
  std::size_t number(std::size_t least, std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(least, most)(random);
  }
  bool chance(std::size_t of) { return number(1, of) == 1; }

  /// Layers that a rank's forward calls; by its own way where parameters may be unused.
  Calls calls(int rank, int step) const {
    Calls called;
    if (use == Use::all)
      for (std::size_t i = 0; i < layers; ++i) called.push_back(i);
    const auto of = static_cast<std::uint64_t>(rank + 1) * 1000;
    Plan own(*this, seed + (use == Use::all ? 0 : of) +
                        (use == Use::changing ? static_cast<std::uint64_t>(step) : 0));
    for (std::size_t more = own.number(1, 3); more > 0; --more)
      called.push_back(own.number(0, layers - 1));
    called.push_back(0);  // which is trained
    return called;
  }
  /// Rows of a rank's batch; none where its data has ended.
  std::int64_t rows(int rank, int step) const {
    if (!is_weighted) return 2;
    if (some_lack_data && rank > 0 && (rank + step) % 2 == 0) return 0;
    return 1 + (rank + step) % 3;
  }
  Batch batch(int rank, int step, int micro) const {
    Generator generator(seed * 7919 + static_cast<std::uint64_t>(100 * step + 10 * rank + micro));
    const TensorOptions f64{.dtype = DType::f64};
    const std::int64_t count = rows(rank, step);
    return {randn({count, width}, f64, generator), randn({count, width}, f64, generator)};
  }

  enum class Use : unsigned char { all, fixed, changing };
  enum class Hook : unsigned char { none, averaging, power_sgd, rounding, delayed };
  enum class Async : unsigned char { none, local, diloco };
  static constexpr std::int64_t width = 5;
  std::uint64_t seed;
  std::mt19937_64 random;
  std::size_t layers;
  std::vector<DType> dtypes;
  std::vector<bool> has_bias, is_frozen, is_computed_again;
  int ranks, steps, micro_batches;
  Use use;
  DistributedDataParallelOptions options;
  bool is_weighted, some_lack_data, is_adaptive, clips, scales, is_captured;
  bool calls_modules;  // with their hooks
  bool evaluates;      // the replica, between steps
  bool looks;          // at all parameters, between forward and backward
  Hook hook = Hook::none;
  Async async = Async::none;
  bool checks_divergence = false, one_skips = false;

 private:
  Plan(const Plan& other, std::uint64_t from) : Plan(other) { random.seed(from); }
};

std::ostream& operator<<(std::ostream& out, const Plan& plan) {
  return out << "seed " << plan.seed << ": " << plan.layers << " layers, " << plan.ranks
             << " ranks, " << plan.micro_batches << " micro-batches, buckets of "
             << plan.options.bucket_bytes << ", use " << static_cast<int>(plan.use) << ", zero "
             << plan.options.zero_stage << ", plan " << static_cast<int>(plan.options.bucket_plan)
             << ", weighted " << plan.is_weighted << ", without data " << plan.some_lack_data
             << ", adaptive " << plan.is_adaptive << ", clips " << plan.clips << ", scales "
             << plan.scales << ", captured " << plan.is_captured << ", finds unused "
             << plan.options.find_unused_parameters << ", static " << plan.options.static_graph
             << ", hook " << static_cast<int>(plan.hook) << ", async "
             << static_cast<int>(plan.async) << ", checks " << plan.checks_divergence
             << ", one skips " << plan.one_skips << ", reproducible " << plan.options.micro_batches
             << ", calls modules " << plan.calls_modules << ", evaluates " << plan.evaluates
             << ", looks " << plan.looks;
}

struct RandomNet : nn::Module {
  explicit RandomNet(const Plan& from) : layers(this, "layers"), plan(from) {
    for (std::size_t i = 0; i < plan.layers; ++i) {
      layers->append(nn::make<nn::Linear>(nn::LinearOptions{
          Plan::width, Plan::width, plan.has_bias[i], {.dtype = plan.dtypes[i]}}));
    }
    fill(*this, plan.seed);
    for (std::size_t i = 0; i < plan.layers; ++i)
      if (plan.is_frozen[i]) layers[i]->requires_grad_(false);
  }

  Tensor forward(const Tensor& x, const Calls& calls) {
    Tensor y = x;
    for (const std::size_t i : calls) {
      const auto layer = [this, i](const Tensor& in) {
        const Tensor x_i = in.to(plan.dtypes[i]);
        return tanh(plan.calls_modules ? layers[i](x_i) : layers[i]->forward(x_i));
      };
      y = plan.is_computed_again[i] ? nn::checkpoint(layer, y) : layer(y);
    }
    return y.to(DType::f64);
  }

  nn::Child<nn::ModuleList<nn::Linear>> layers;
  const Plan& plan;
};

template <class Parameters>
std::unique_ptr<optim::Optimizer> optimizer_of(const Plan& plan, const Parameters& parameters) {
  if (plan.is_adaptive)
    return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 1e-2, .eps = 1e-2});
  return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
}

std::vector<double> train_alone(const Plan& plan) {
  const auto net = nn::make<RandomNet>(plan);
  const auto optimizer = optimizer_of(plan, net->named_parameters());
  for (int step = 0; step < plan.steps; ++step) {
    Tensor total = zeros({}, {.dtype = DType::f64});
    double weights = 0;
    for (int rank = 0; rank < plan.ranks; ++rank)
      for (int micro = 0; micro < plan.micro_batches; ++micro) {
        const Batch batch = plan.batch(rank, step, micro);
        const auto rows = static_cast<double>(batch.x.size(0));
        // Of a static graph, a rank that has no data now, but had some, has zeros.
        const bool has_had_data = plan.rows(rank, 0) > 0 || step > 1;
        if (rows == 0 && (!plan.options.static_graph || !has_had_data)) continue;
        if (rows == 0) {
          const Tensor x = zeros({1, Plan::width}, {.dtype = DType::f64});
          total = total + net->forward(x, plan.calls(rank, step)).sum() * 0.0;
          continue;
        }
        const double weight = plan.is_weighted ? rows : 1.0 / plan.averaged_count();
        total = total + loss_of(net->forward(batch.x, plan.calls(rank, step)), batch) * weight;
        weights += weight;
      }
    (plan.is_weighted ? total / weights : total).backward();
    if (plan.clips) optim::clip_grad_norm_(net->parameters(), 0.05);
    optimizer->step();
    optimizer->zero_grad();
  }
  return values_of(*net);
}

using RandomReplica = DistributedDataParallel<RandomNet>;

void register_hook(const Plan& plan, RandomReplica& replica) {
  using enum Plan::Hook;
  if (plan.hook == averaging)
    replica.register_comm_hook("averages", [](GradBucket& bucket) -> BucketExchange {
      co_await bucket.all_reduce(bucket.buffer(), comm::ReduceOp::average());
    });
  if (plan.hook == power_sgd)  // which only averages, before its start
    replica.register_comm_hook(std::make_shared<PowerSgd>());
  if (plan.hook == rounding) replica.register_comm_hook(compress_buckets(DType::bf16));
  if (plan.hook == delayed) replica.register_comm_hook(std::make_shared<DelayedReduction>());
}

std::unique_ptr<PeriodicAveraging> averaging_of(const Plan& plan, RandomReplica& replica,
                                                optim::Optimizer& optimizer) {
  if (plan.async == Plan::Async::local)
    return std::make_unique<LocalSGD>(replica, optimizer, LocalSGDOptions{.sync_every = 1});
  if (plan.async == Plan::Async::diloco)
    return std::make_unique<DiLoCo>(replica, optimizer, DiLoCoOptions{.sync_every = 2});
  return nullptr;
}

std::vector<double> train_on(Communicator& group, const Plan& plan) {
  const auto net = nn::make<RandomNet>(plan);
  RandomReplica replica(net, share(group), plan.options);
  register_hook(plan, replica);
  const auto optimizer = optimizer_of(plan, replica.named_parameters());
  const auto averaging = averaging_of(plan, replica, *optimizer);
  amp::GradScaler scaler(
      {.init_scale = 64, .enabled = plan.scales, .group = replica.shard_group()});
  const int rank = group.rank();
  int step = 0;
  const StepGraph::Step run = [&](std::span<const Tensor> in) {
    for (int micro = 0; micro < plan.micro_batches; ++micro) {
      std::optional<RandomReplica::NoSync> local;
      if (micro + 1 < plan.micro_batches) local.emplace(replica.no_sync());
      const auto at = static_cast<std::size_t>(2 * micro);
      const Batch batch{in[at], in[at + 1]};
      const auto rows = static_cast<double>(batch.x.size(0));
      if (rows == 0) {
        if (!local) replica.backward_without_data();
        continue;
      }
      const Tensor loss = scaler.scale(loss_of(replica(batch.x, plan.calls(rank, step)), batch));
      if (plan.looks) {
        const auto whole = replica.whole_parameters();
        (void)values_of(*net);
      }
      if (plan.is_weighted)
        replica.backward(loss, rows);
      else
        loss.backward();
    }
    if (plan.clips) {
      scaler.clip_and_step(*optimizer, 0.05);
    } else {
      scaler.step(*optimizer);
    }
    scaler.update();
    optimizer->zero_grad();
    return std::vector<Tensor>{};
  };
  StepGraph graph(run, {.group = share(group)});
  const auto evaluate = [&] {
    const NoGradGuard no_recording;
    (void)replica(plan.batch(0, step, 0).x, plan.calls(0, step));
  };
  std::optional<DivergenceCheck> divergence;
  if (plan.checks_divergence)
    divergence.emplace(net->named_parameters(), share(group), DivergenceCheckOptions{.every = 1});
  for (; step < plan.steps; ++step) {
    std::vector<Tensor> in;
    for (int micro = 0; micro < plan.micro_batches; ++micro) {
      const Batch batch = plan.batch(rank, step, micro);
      in.insert(in.end(), {batch.x, batch.target});
    }
    if (plan.one_skips && rank == 1 && step == 1) continue;
    plan.is_captured ? graph(in) : run(in);
    if (plan.evaluates) evaluate();
    const auto whole = replica.whole_parameters();
    if (divergence) divergence->step();
  }
  if (averaging) averaging->synchronize();
  const auto whole = replica.whole_parameters();
  expect_equal_replicas(group, *net);
  return values_of(*net);
}

// LOCKSTEP_RANDOM_TRAININGS=10000 tries more of them.
TEST(RandomTraining, EqualsOneProcess) {
  const char* const asked = std::getenv("LOCKSTEP_RANDOM_TRAININGS");
  const std::uint64_t count = asked ? std::stoull(asked) : 200;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    const Plan plan(seed);
    const std::vector<double> alone = train_alone(plan);
    const bool is_exact = std::ranges::count(plan.dtypes, DType::f32) == 0;
    comm::run_ranks(plan.ranks, [&](Communicator& group) {
      expect_close(train_on(group, plan), alone, is_exact ? 1e-8 : 1e-3, is_exact ? 1e-10 : 1e-4);
    });
    ASSERT_FALSE(::testing::Test::HasFailure()) << plan;
  }
}

/// What came of a training on one rank: values of parameters, or an error.
struct Outcome {
  std::vector<double> values;
  std::string error;
};

std::vector<Outcome> try_on_all(const Plan& plan) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(plan.ranks));
  const auto train = [&](Communicator& group) {
    Outcome& own = outcomes[static_cast<std::size_t>(group.rank())];
    try {
      own.values = train_on(group, plan);
    } catch (const Error& error) {
      own.error = error.what();
      throw;  // as a program would end
    }
  };
  try {
    comm::run_ranks(plan.ranks, train, {.timeout = std::chrono::seconds(60)});
  } catch (const Error& error) {
    for (Outcome& each : outcomes)  // models that were trained to different ends are found then
      if (each.error.empty()) each.error = error.what();
  }
  return outcomes;
}

/// An error without what a rank was at when it heard of it from another.
std::string cause_of(std::string error) {
  const std::size_t mismatch = error.find("the ranks of world disagree");
  if (mismatch != std::string::npos)
    return error.substr(mismatch, error.find("\n  found by ") - mismatch);
  const std::size_t rank = error.find("rank ");
  if (error.starts_with("in ") && rank != std::string::npos) error.erase(0, rank);  // of a layer
  if (!error.starts_with("rank ") || error.find(" of world, in ") > 9) return error;
  std::smatch found;
  return std::regex_search(error, found, std::regex(": (rank \\d+( failed)?: .*)")) ? found[1].str()
                                                                                    : error;
}

/// Fails unless all ranks say the same, or quote one that says it.
void expect_refused_alike(const Plan& plan, const std::vector<Outcome>& outcomes) {
  std::set<std::string> of_no_rank;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    const std::string cause = cause_of(outcomes[r].error);
    ASSERT_FALSE(cause.empty()) << "rank " << r << " was refused nothing";
    EXPECT_EQ(cause.find("timed out"), std::string::npos) << cause;
    std::smatch found;
    if (!std::regex_search(cause, found, std::regex("^rank (\\d+)( failed)?: "))) {
      of_no_rank.insert(cause);
      continue;
    }
    const std::string& first = outcomes[std::stoul(found[1].str())].error;
    EXPECT_THAT(cause, ::testing::EndsWith(first)) << "rank " << r;
  }
  // Ranks that train alone for a while may be refused at once, each for parameters of its own.
  if (plan.async == Plan::Async::none) {
    EXPECT_LE(of_no_rank.size(), 1u) << ::testing::PrintToString(of_no_rank);
  }
}

void expect_as_one_process(const Plan& plan, const std::vector<Outcome>& outcomes) {
  EXPECT_FALSE(plan.one_skips && plan.ranks > 1) << "nobody noticed";
  for (const Outcome& each : outcomes) {
    EXPECT_EQ(each.error, "");
    EXPECT_EQ(each.values, outcomes[0].values);
    for (const double value : each.values) ASSERT_TRUE(std::isfinite(value));
  }
  const bool has_f32 = std::ranges::count(plan.dtypes, DType::f32) > 0;
  const auto& values = outcomes[0].values;
  if (plan.is_exact())
    expect_close(values, train_alone(plan), has_f32 ? 1e-3 : 1e-8, has_f32 ? 1e-4 : 1e-10);
  else if (plan.async == Plan::Async::none && plan.hook == Plan::Hook::rounding)
    expect_close(values, train_alone(plan), 0.05, 0.05);
}

TEST(RandomTraining, WithAnyOptionsEqualsOneProcessOrIsRefusedByAllAlike) {
  const char* const asked = std::getenv("LOCKSTEP_RANDOM_TRAININGS");
  const std::uint64_t count = asked ? std::stoull(asked) : 200;
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    const Plan plan = Plan::with_any_options(seed);
    const std::vector<Outcome> outcomes = try_on_all(plan);
    const bool is_refused =
        std::ranges::any_of(outcomes, [](const Outcome& each) { return !each.error.empty(); });
    refused += is_refused;
    is_refused ? expect_refused_alike(plan, outcomes) : expect_as_one_process(plan, outcomes);
    ASSERT_FALSE(::testing::Test::HasFailure()) << plan << "\n" << outcomes[0].error;
  }
  EXPECT_GT(refused, count / 10);
  EXPECT_LT(refused, count * 2 / 3);
}

}  // namespace
}  // namespace lockstep::parallel::testing
