// What the stages of ZeRO and the reproducible reduction cost, and what memory stages save: a GPT
// of 10.5 million parameters with AdamW, 4 sequences of 64 tokens a rank, all variants in turns
// within one run. Start it with a core for each rank:
//
//     mpirun -np 2 --bind-to core build/bin/benchmark_data_parallel_stages [--json] [--rounds N]
//     [--comm BACKEND]
//
// `step_ms` is the slowest rank's. Memory is rank 0's, by the pool, in bytes for each byte of f32
// parameters: between steps, and at most in one, activations included. Over `shm` buckets lie in
// memory of the group's, which the pool does not count: there it is left out, give --comm tcp.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/memory.hpp"
#include "lockstep/comm/session.hpp"
#include "lockstep/memory/memory_stats.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "support/device.hpp"
#include "support/train_cases.hpp"

namespace {

using namespace lockstep;

constexpr std::int64_t vocabulary = 4096, time_steps = 64, batch = 4;

nn::ModulePtr<models::Gpt2> make_model() {
  manual_seed(1);
  return models::gpt2(
      {.layers = 5, .heads = 6, .channels = 384, .context = time_steps, .vocabulary = vocabulary});
}

/// A way to train, what it took, and what it held.
struct Variant {
  std::string name;
  DistributedDataParallelOptions options = {};
  std::int64_t micro_batches = 1;  ///< of a rank in a step
  std::vector<double> times = {};
  double held = 0, most = 0;  ///< in bytes a byte of parameters
};

std::vector<Variant> variants(int ranks) {
  std::vector<Variant> all;
  for (const int stage : {0, 1, 2, 3})
    all.push_back({"stage " + std::to_string(stage), {.zero_stage = stage}});
  all.push_back({.name = "4 micro-batches", .micro_batches = batch});
  for (const std::int64_t count : {std::int64_t{1}, batch})
    all.push_back({"reproducible, " + std::to_string(count) + " a rank",
                   {.reduction = GradientReduction::reproducible,
                    .micro_batches = static_cast<int>(count) * ranks},
                   count});
  return all;
}

class Training {
 public:
  Training(Session& session, const Variant& variant)
      : group_(session.world()),
        micro_batches_(variant.micro_batches),
        replica_(make_model(), session.world(), variant.options),
        optimizer_(replica_.parameters(), {.lr = 1e-4}),
        tokens_(benchmark::random_integers({batch, time_steps + 1}, vocabulary)) {}

  /// @return the slowest rank's seconds.
  double step() {
    group_->barrier().wait();
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i + 1 < micro_batches_; ++i) {
      const auto local = replica_.no_sync();
      backward(i);
    }
    backward(micro_batches_ - 1);
    optimizer_.step();
    optimizer_.zero_grad();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return comm::all_reduce_scalar(*group_, seconds.count(), comm::ReduceOp::max());
  }
  double parameter_bytes() const {
    return static_cast<double>(replica_.module().parameter_count()) * sizeof(float);
  }

 private:
  void backward(std::int64_t micro_batch) {
    const std::int64_t rows = batch / micro_batches_;
    const Tensor own = tokens_.slice(0, micro_batch * rows, (micro_batch + 1) * rows);
    const Tensor inputs = own.slice(1, 0, time_steps).contiguous();
    const Tensor targets = own.slice(1, 1, time_steps + 1).reshape({-1});
    cross_entropy(replica_(inputs).reshape({-1, vocabulary}), targets).backward();
  }

  CommunicatorPtr group_;
  std::int64_t micro_batches_;
  DistributedDataParallel<models::Gpt2> replica_;
  optim::AdamW optimizer_;
  Tensor tokens_;
};

void measure_memory(Session& session, Variant& variant) {
  const std::size_t before = memory_allocated(cpu);
  Training training(session, variant);
  for (int step = 0; step < 3; ++step) training.step();
  const auto arrays = [&](std::size_t bytes) {
    return static_cast<double>(bytes - before) / training.parameter_bytes();
  };
  variant.held = arrays(memory_allocated(cpu));
  reset_peak_memory_stats(cpu);
  training.step();
  variant.most = arrays(max_memory_allocated(cpu));
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void run_in_turns(Session& session, std::vector<Variant>& all, int rounds) {
  std::vector<std::unique_ptr<Training>> trainings;
  for (const Variant& variant : all)
    trainings.push_back(std::make_unique<Training>(session, variant));
  constexpr int warm_up = 2;
  for (int round = 0; round < rounds + warm_up; ++round)
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double seconds = trainings[i]->step();
      if (round >= warm_up) all[i].times.push_back(seconds);
    }
}

int run(Session& session, const benchmark::Report& report, int rounds) {
  std::vector<Variant> all = variants(session.size());
  const bool counts_all = !comm::allocate_for(*session.world(), 1);
  if (counts_all)
    for (Variant& variant : all) measure_memory(session, variant);
  run_in_turns(session, all, rounds);
  if (!session.is_main()) return 0;
  for (const Variant& variant : all) {
    nlohmann::ordered_json fields{
        {"case", variant.name},
        {"ranks", session.size()},
        {"backend", session.world()->backend()},
        {"step_ms_median", median(variant.times) * 1e3},
        {"step_ms_minimum", std::ranges::min(variant.times) * 1e3},
        {"of_stage_0", median(variant.times) / median(all.front().times)}};
    if (counts_all) {
      fields["held"] = variant.held;
      fields["most"] = variant.most;
    }
    report.add(fields);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("data_parallel_stages", argc, argv);
  if (benchmark::has_no_gpu_case(report, argc, argv, "use benchmark_scaling --device cuda"))
    return 0;
  int rounds = 12;
  SessionOptions options{.device = "cpu"};
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--comm") == 0) options.communicator.backend = argv[i + 1];
  }
  return Session::run(
      argc, argv, [&](Session& session) { return run(session, report, rounds); }, options);
}
