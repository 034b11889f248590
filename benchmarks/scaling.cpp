// One point of a scaling curve: a GPT's training step on the ranks that were started, on CPUs or
// GPUs, on one host or several. scripts/scaling.sh runs it for 1, 2, 4, ... ranks and draws the
// curve.
//
//     mpirun -np 4 build/bin/benchmark_scaling [--json] [--mode weak|strong] [--batch N]
//     [--rounds N] [--bucket-mb N] [--dtype f32|bf16] [--device auto|cpu|cuda]
//
// `--batch` is a rank's with weak scaling, and that of all ranks with strong scaling. `step_ms` is
// the median over rounds of the slowest rank's step, `apart_ms` the same where every rank trains
// for itself at the same time: what the ranks take from each other without a word between them.
// Phases are means over ranks of the medians: forward, backward until its last op, `exposed` until
// all averages are there, the optimizer's step.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/session.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/parallel/trace_recorder.hpp"
#include "support/report.hpp"
#include "support/train_cases.hpp"

namespace {

using namespace lockstep;
using Gpt = models::Gpt2;

constexpr std::int64_t vocabulary = 4096, time_steps = 256;

struct Options {
  std::string mode = "weak", device = "auto";
  DType dtype = DType::f32;
  std::int64_t batch = 4;
  int rounds = 20;
  std::size_t bucket_bytes = DistributedDataParallelOptions{}.bucket_bytes;
};

/// Milliseconds of one step, from moments that nobody waits for before it has ended.
struct StepTimes {
  double step = 0, forward = 0, backward = 0, exposed = 0, optimizer = 0, communication = 0,
         hidden_share = 1;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// A replica that trains, alone or with the others.
class Replica {
 public:
  Replica(const Session& session, const Options& options, std::int64_t batch)
      : session_(session), device_(session.device()), model_(make_model()) {
    model_->to(options.dtype);
    model_->to(device_);
    const Tensor tokens = benchmark::random_integers({batch, time_steps + 1}, vocabulary);
    inputs_ = tokens.slice(1, 0, time_steps).contiguous().to(device_);
    targets_ = tokens.slice(1, 1, time_steps + 1).reshape({-1}).to(device_);
  }

  nn::ModulePtr<Gpt> model() const { return model_; }

  /// One step of `forward`, the model or its wrapper. @param reducer of the wrapper, or null.
  template <class Forward>
  StepTimes step(Forward& forward, optim::Optimizer& optimizer, const parallel::Reducer* reducer) {
    using parallel::TraceMoment;
    session_.world()->barrier().synchronize();
    const TraceMoment start(device_);
    const Tensor loss = cross_entropy(forward(inputs_).reshape({-1, vocabulary}), targets_);
    const TraceMoment forward_end(device_);
    loss.backward();
    const TraceMoment backward_end(device_);
    optimizer.step();
    optimizer.zero_grad();
    const TraceMoment end(device_);
    synchronize(current_stream(device_));
    const auto between = [](auto from, auto to) {
      return std::chrono::duration<double, std::milli>(to - from).count();
    };
    StepTimes times{.step = between(start.time(), end.time()),
                    .forward = between(start.time(), forward_end.time()),
                    .backward = between(forward_end.time(), backward_end.time()),
                    .optimizer = between(backward_end.time(), end.time())};
    if (!reducer) return times;
    const parallel::ReducerTrace trace = reducer->trace();
    times.exposed = between(trace.backward_end, trace.synchronized);
    times.backward -= times.exposed;
    times.communication = trace.communication_seconds() * 1e3;
    times.hidden_share = trace.hidden_share();
    return times;
  }

 private:
  static nn::ModulePtr<Gpt> make_model() {
    manual_seed(1);
    return models::gpt2({.layers = 4,
                         .heads = 4,
                         .channels = 256,
                         .context = time_steps,
                         .vocabulary = vocabulary});
  }

  const Session& session_;
  Device device_;
  nn::ModulePtr<Gpt> model_;
  Tensor inputs_, targets_;
};

/// The mean over the ranks of each rank's median.
double mean_of(Session& session, std::span<const StepTimes> steps, double StepTimes::*member) {
  std::vector<double> values;
  for (const StepTimes& step : steps) values.push_back(step.*member);
  return comm::all_reduce_scalar(*session.world(), median(values), comm::ReduceOp::average());
}

/// The median over rounds of the slowest rank's step.
double slowest_of(Session& session, std::span<const StepTimes> steps) {
  std::vector<double> values;
  for (const StepTimes& step : steps)
    values.push_back(comm::all_reduce_scalar(*session.world(), step.step, comm::ReduceOp::max()));
  return median(values);
}

void measure(Session& session, const benchmark::Report& report, const Options& options) {
  const bool is_weak = options.mode == "weak";
  LOCKSTEP_CHECK(is_weak || options.batch % session.size() == 0, InvalidArgument, "--batch ",
                 options.batch, " of strong scaling over ", session.size(),
                 " ranks; give a multiple");
  const std::int64_t batch = is_weak ? options.batch : options.batch / session.size();
  Replica apart(session, options, batch), together(session, options, batch);
  DistributedDataParallel replica(together.model(), session.world(),
                                  {.bucket_bytes = options.bucket_bytes});
  optim::AdamW apart_optimizer(apart.model()->parameters()),
      together_optimizer(replica.parameters());
  std::vector<StepTimes> apart_times, together_times;
  const auto model = apart.model();
  constexpr int warm_up = 3;
  for (int round = 0; round < options.rounds + warm_up; ++round) {
    const StepTimes own = apart.step(model, apart_optimizer, nullptr);
    const StepTimes shared = together.step(replica, together_optimizer, &replica.reducer());
    if (round < warm_up) continue;
    apart_times.push_back(own);
    together_times.push_back(shared);
  }
  const auto hosts = comm::all_reduce_scalar(
      *session.world(), session.local_rank() == 0 ? std::int64_t{1} : std::int64_t{0});
  const auto mean = [&](double StepTimes::*member) {
    return mean_of(session, together_times, member);
  };
  const nlohmann::ordered_json fields{{"mode", options.mode},
                                      {"ranks", session.size()},
                                      {"hosts", hosts},
                                      {"device", session.device().is_cpu() ? "cpu" : "cuda"},
                                      {"backend", std::string(session.world()->backend())},
                                      {"threads", num_threads()},
                                      {"dtype", std::string(name(options.dtype))},
                                      {"batch_a_rank", batch},
                                      {"step_ms", slowest_of(session, together_times)},
                                      {"apart_ms", slowest_of(session, apart_times)},
                                      {"forward_ms", mean(&StepTimes::forward)},
                                      {"backward_ms", mean(&StepTimes::backward)},
                                      {"exposed_ms", mean(&StepTimes::exposed)},
                                      {"optimizer_ms", mean(&StepTimes::optimizer)},
                                      {"communication_ms", mean(&StepTimes::communication)},
                                      {"hidden_share", mean(&StepTimes::hidden_share)},
                                      {"buckets", replica.reducer().buckets().size()}};
  if (session.is_main()) report.add(fields);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; ++i) {
    const std::string option = argv[i], value = argv[i + 1];
    const int number = std::max(1, std::atoi(value.c_str()));
    if (option == "--mode") options.mode = value;
    if (option == "--device") options.device = value;
    if (option == "--dtype") options.dtype = value == "bf16" ? DType::bf16 : DType::f32;
    if (option == "--batch") options.batch = number;
    if (option == "--rounds") options.rounds = number;
    if (option == "--bucket-mb") options.bucket_bytes = static_cast<std::size_t>(number) << 20;
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  return Session::run(argc, argv,
                      [&](Session& session) {
                        measure(session, benchmark::Report("scaling", argc, argv), options);
                        return 0;
                      },
                      {.device = options.device});
}
