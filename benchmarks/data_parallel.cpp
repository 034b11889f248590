// What data parallelism costs: a training step of one rank alone against the same step on every
// rank with the gradients averaged, in turns within one run. Start it with a core for each rank:
//
//     mpirun -np 2 --bind-to core build/bin/benchmark_data_parallel [--json] [--rounds N]
//     [--bucket-mb N] [--plans [--link LATENCY_US,MB_PER_S]]
//
// `efficiency` is the time alone over the time together; `machine_ceiling` the same where every
// rank trains for itself at the same time, so what the ranks take from each other without a word
// between them; `hidden_share` the part of the all-reduce that ran while backward computed.
// `check_ms` is what a DivergenceCheck adds to a step that has one, on the slowest rank, and
// `check_share_at_100` what one at every 100th step adds to all of them.
//
// --plans compares the measured plan of buckets with that by sizes alone, in turns, also over a
// link that is emulated by waiting: `exposed_ms` is what backward waits for the last bucket after
// its own end, and `predicted` what the measurements of the first steps say of that.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>

#include "comm/slow_link.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/session.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/parallel/divergence_check.hpp"
#include "support/device.hpp"
#include "support/train_cases.hpp"

namespace {

using namespace lockstep;

constexpr std::int64_t vocabulary = 4096, time_steps = 256, batch = 4;

nn::ModulePtr<models::Gpt2> make_model(DType dtype) {
  manual_seed(1);
  auto model = models::gpt2(
      {.layers = 4, .heads = 4, .channels = 256, .context = time_steps, .vocabulary = vocabulary});
  model->to(dtype);
  return model;
}

/// Seconds that an action takes.
template <class Action>
double timed(const Action& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Seconds of one step of `forward`'s model.
template <class Forward>
double timed_step(Forward& forward, optim::Optimizer& optimizer, const Tensor& inputs,
                  const Tensor& targets) {
  return timed([&] {
    const Tensor loss = cross_entropy(forward(inputs).reshape({-1, vocabulary}), targets);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  });
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// What the command line may change.
struct Options {
  int rounds = 20;
  std::size_t bucket_bytes = DistributedDataParallelOptions{}.bucket_bytes;
  bool compares_plans = false;
  std::optional<comm::LinkSpeed> link;
};

/// A replica and what its steps took.
struct PlannedReplica {
  PlannedReplica(const comm::CommunicatorPtr& group, parallel::BucketPlanning plan,
                 const Options& options)
      : replica(make_model(DType::f32), group,
                {.bucket_bytes = options.bucket_bytes, .bucket_plan = plan}),
        optimizer(replica.parameters()) {}

  DistributedDataParallel<models::Gpt2> replica;
  optim::AdamW optimizer;
  std::vector<double> times, exposed, hidden;
};

void compare_plans(Session& session, const benchmark::Report& report, const Options& options) {
  using parallel::BucketPlanning;
  LOCKSTEP_CHECK(session.size() > 1, InvalidArgument, "--plans compares nothing on one rank");
  const comm::CommunicatorPtr group =
      options.link ? comm::over_slow_link(*session.world(), *options.link) : session.world();
  const Tensor tokens = benchmark::random_integers({batch, time_steps + 1}, vocabulary);
  const Tensor inputs = tokens.slice(1, 0, time_steps).contiguous();
  const Tensor targets = tokens.slice(1, 1, time_steps + 1).reshape({-1});
  PlannedReplica by_sizes(group, BucketPlanning::pytorch, options);
  PlannedReplica measured(group, BucketPlanning::measured, options);
  for (int round = 0; round < options.rounds + 4; ++round)
    for (PlannedReplica* each : {&by_sizes, &measured}) {
      group->barrier().wait();
      const double seconds = timed_step(each->replica, each->optimizer, inputs, targets);
      const parallel::HiddenCommunication achieved = each->replica.report().achieved;
      if (round < 4) continue;  // measured, planned, warmed up
      each->times.push_back(seconds);
      each->exposed.push_back(achieved.exposed);
      each->hidden.push_back(achieved.hidden_share);
    }
  if (!session.is_main()) return;
  const auto prediction = measured.replica.report().predicted.value();
  for (PlannedReplica* each : {&by_sizes, &measured}) {
    const bool is_measured = each == &measured;
    const auto& predicted = is_measured ? prediction.now : prediction.by_sizes_alone;
    report.add({{"case", is_measured ? "gpt f32 measured" : "gpt f32 by sizes"},
                {"ranks", session.size()},
                {"step_ms_median", median(each->times) * 1e3},
                {"exposed_ms_median", median(each->exposed) * 1e3},
                {"exposed_ms_minimum", std::ranges::min(each->exposed) * 1e3},
                {"exposed_ms_predicted", predicted.exposed * 1e3},
                {"hidden_share_median", median(each->hidden)},
                {"hidden_share_predicted", predicted.hidden_share},
                {"buckets", each->replica.reducer().buckets().size()},
                {"latency_us", prediction.cost.latency * 1e6},
                {"mb_per_s", 1e-6 / prediction.cost.seconds_per_byte}});
  }
}

void run_case(Session& session, const benchmark::Report& report, DType dtype,
              const Options& options) {
  const Tensor tokens = benchmark::random_integers({batch, time_steps + 1}, vocabulary);
  const Tensor inputs = tokens.slice(1, 0, time_steps).contiguous();
  const Tensor targets = tokens.slice(1, 1, time_steps + 1).reshape({-1});
  const auto alone = make_model(dtype), replica = make_model(dtype);
  DistributedDataParallel together(replica, session.world(),
                                   {.bucket_bytes = options.bucket_bytes});
  optim::AdamW alone_optimizer(alone->parameters()), together_optimizer(together.parameters());

  const auto slowest = [&](double seconds) {
    return comm::all_reduce_scalar(*session.world(), seconds, comm::ReduceOp::max());
  };
  parallel::DivergenceCheck check(replica->named_parameters(), session.world(), {.every = 1});
  std::vector<double> alone_times, apart_times, together_times, check_times, hidden;
  for (int round = 0; round < options.rounds + 2; ++round) {
    session.world()->barrier().wait();
    double own = 0;
    if (session.is_main()) own = timed_step(alone, alone_optimizer, inputs, targets);
    session.world()->barrier().wait();
    const double apart = timed_step(alone, alone_optimizer, inputs, targets);
    session.world()->barrier().wait();
    const double shared = timed_step(together, together_optimizer, inputs, targets);
    const double checked = timed([&] { check.step(); });
    if (round < 2) continue;  // warm-up
    alone_times.push_back(own);
    apart_times.push_back(slowest(apart));
    together_times.push_back(slowest(shared));
    check_times.push_back(slowest(checked));
    hidden.push_back(together.reducer().trace().hidden_share());
  }
  const double communication = together.reducer().trace().communication_seconds();
  if (!session.is_main()) return;
  report.add({{"case", std::string("gpt ") + std::string(name(dtype))},
              {"ranks", session.size()},
              {"threads", num_threads()},
              {"alone_ms_median", median(alone_times) * 1e3},
              {"together_ms_median", median(together_times) * 1e3},
              {"machine_ceiling", median(alone_times) / median(apart_times)},
              {"efficiency", median(alone_times) / median(together_times)},
              {"efficiency_of_minima",
               *std::ranges::min_element(alone_times) / *std::ranges::min_element(together_times)},
              {"check_ms_median", median(check_times) * 1e3},
              {"check_share_at_100", median(check_times) / (100 * median(together_times))},
              {"check_share_of_minima",
               std::ranges::min(check_times) / (100 * std::ranges::min(together_times))},
              {"together_ms_minimum", std::ranges::min(together_times) * 1e3},
              {"check_ms_minimum", std::ranges::min(check_times) * 1e3},
              {"all_reduce_ms", communication * 1e3},
              {"hidden_share_median", median(hidden)},
              {"buckets", together.reducer().buckets().size()}});
}

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("data_parallel", argc, argv);
  if (benchmark::has_no_gpu_case(report, argc, argv, "use benchmark_scaling --device cuda"))
    return 0;
  Options options;
  for (int i = 1; i < argc; ++i) options.compares_plans |= std::strcmp(argv[i], "--plans") == 0;
  for (int i = 1; i + 1 < argc; ++i) {
    double latency_us = 0, mb_per_s = 0;
    if (std::strcmp(argv[i], "--link") == 0 &&
        std::sscanf(argv[i + 1], "%lf,%lf", &latency_us, &mb_per_s) == 2 && mb_per_s > 0)
      options.link = {.latency = latency_us * 1e-6, .seconds_per_byte = 1e-6 / mb_per_s};
    const int value = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--rounds") == 0) options.rounds = value;
    if (std::strcmp(argv[i], "--bucket-mb") == 0)
      options.bucket_bytes = static_cast<std::size_t>(value) << 20;
  }
  return Session::run(argc, argv,
                      [&](Session& session) {
                        if (options.compares_plans) compare_plans(session, report, options);
                        for (const DType dtype : {DType::f32, DType::bf16})
                          if (!options.compares_plans) run_case(session, report, dtype, options);
                        return 0;
                      },
                      {.device = "cpu"});
}
