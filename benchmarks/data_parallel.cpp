// What data parallelism costs: a training step of one rank alone against the same step on every
// rank with the gradients averaged, in turns within one run. Start it with a core for each rank:
//
//     mpirun -np 2 --bind-to core build/bin/benchmark_data_parallel [--json] [--rounds N]
//     [--bucket-mb N]
//
// `efficiency` is the time alone over the time together; `machine_ceiling` the same where every
// rank trains for itself at the same time, so what the ranks take from each other without a word
// between them; `hidden_share` the part of the all-reduce that ran while backward computed.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>

#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/session.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "support/report.hpp"
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

/// Seconds of one step of `forward`'s model.
template <class Forward>
double timed_step(Forward& forward, optim::Optimizer& optimizer, const Tensor& inputs,
                  const Tensor& targets) {
  const auto start = std::chrono::steady_clock::now();
  const Tensor loss = cross_entropy(forward(inputs).reshape({-1, vocabulary}), targets);
  loss.backward();
  optimizer.step();
  optimizer.zero_grad();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// What the command line may change.
struct Options {
  int rounds = 20;
  std::size_t bucket_bytes = DistributedDataParallelOptions{}.bucket_bytes;
};

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
  std::vector<double> alone_times, apart_times, together_times, hidden;
  for (int round = 0; round < options.rounds + 2; ++round) {
    session.world()->barrier().wait();
    double own = 0;
    if (session.is_main()) own = timed_step(alone, alone_optimizer, inputs, targets);
    session.world()->barrier().wait();
    const double apart = timed_step(alone, alone_optimizer, inputs, targets);
    session.world()->barrier().wait();
    const double shared = timed_step(together, together_optimizer, inputs, targets);
    if (round < 2) continue;  // warm-up
    alone_times.push_back(own);
    apart_times.push_back(slowest(apart));
    together_times.push_back(slowest(shared));
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
              {"all_reduce_ms", communication * 1e3},
              {"hidden_share_median", median(hidden)},
              {"buckets", together.reducer().buckets().size()}});
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; ++i) {
    const int value = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--rounds") == 0) options.rounds = value;
    if (std::strcmp(argv[i], "--bucket-mb") == 0)
      options.bucket_bytes = static_cast<std::size_t>(value) << 20;
  }
  return Session::run(argc, argv,
                      [&](Session& session) {
                        const benchmark::Report report("data_parallel", argc, argv);
                        for (const DType dtype : {DType::f32, DType::bf16})
                          run_case(session, report, dtype, options);
                        return 0;
                      },
                      {.device = "cpu"});
}
