// One rank of a data-parallel training that works on request, so that benchmarks/peers/
// data_parallel.py can interleave it with PyTorch's:
//
//     RANK=0 WORLD_SIZE=2 MASTER_ADDR=... benchmark_peer_rank MODE CASE FILE [--comm NAME]
//
// MODE: ddp, measured (plan of buckets), bf16 or powersgd (hooks), zero1, zero2, zero3. CASE:
// gpt_f32, gpt_amp (autocast to bf16), gpt_bf16 (parameters in bf16), or wide_f32, of which
// parameters take more than activations. Rank 0 writes the weights and the batches of all ranks to
// FILE. Requests, a line each, to all ranks but `alone`: "step", "alone" (the step without the
// other ranks), "all_reduce BYTES CALLS [in_place]" (in memory of the group's). Memory is what the
// process has beyond what it had before it made a model, its peak that of one step.

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/comm/memory.hpp"
#include "lockstep/comm/session.hpp"
#include "lockstep/io/safetensors.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/parallel/power_sgd.hpp"
#include "support/device.hpp"
#include "support/process_memory.hpp"
#include "support/serve.hpp"
#include "support/train_cases.hpp"

namespace {

using namespace lockstep;
using benchmark::forget_peak_memory, benchmark::memory_mb;
using Gpt = models::Gpt2;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t vocabulary = 4096;

struct Case {
  explicit Case(const std::string& name)
      : is_wide(name.starts_with("wide")),
        is_mixed(name.ends_with("amp")),
        dtype(name.ends_with("bf16") ? DType::bf16 : DType::f32) {}
  nn::ModulePtr<Gpt> make_model() const {
    manual_seed(1);
    return models::gpt2({.layers = 4,
                         .heads = is_wide ? 12 : 4,
                         .channels = is_wide ? 768 : 256,
                         .context = 256,
                         .vocabulary = vocabulary,
                         .tensor = {.dtype = dtype}});
  }
  bool is_wide, is_mixed;
  DType dtype;
  std::int64_t batch = is_wide ? 1 : 4, length = is_wide ? 64 : 256;
};

DistributedDataParallelOptions options_of(const std::string& mode) {
  DistributedDataParallelOptions options;
  if (mode == "measured") options.bucket_plan = parallel::BucketPlanning::measured;
  if (mode.starts_with("zero")) options.zero_stage = mode.back() - '0';
  return options;
}

/// Of all threads.
double processor_seconds() {
  std::timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

/// What the last backward's communication took, and what of it backward waited for; where buckets
/// were measured, also what the best ones would leave.
nlohmann::json overlap_of(const parallel::Reducer& reducer) {
  const parallel::ReducerTrace trace = reducer.trace();
  nlohmann::json overlap = {{"communication", trace.communication_seconds()},
                            {"exposed", seconds(trace.synchronized - trace.backward_end)},
                            {"hidden", trace.communication_seconds() * trace.hidden_share()},
                            {"backward", seconds(trace.backward_end - trace.first_gradient)}};
  if (const auto predicted = reducer.report().predicted)
    overlap["at_best"] = {{"communication", predicted->at_best.communication},
                          {"exposed", predicted->at_best.exposed}};
  return overlap;
}

class Rank {
 public:
  Rank(Session& session, const std::string& mode, const std::string& name, const std::string& file)
      : session_(session),
        case_(name),
        model_(case_.make_model()),
        replica_(model_, session.world(), options_of(mode)),
        optimizer_(replica_.named_parameters(), {.lr = 1e-4}) {
    const Tensor tokens =
        benchmark::random_integers({case_.batch * session.size(), case_.length + 1}, vocabulary);
    const Tensor own =
        tokens.slice(0, case_.batch * session.rank(), case_.batch * (session.rank() + 1));
    inputs_ = own.slice(1, 0, case_.length).contiguous();
    targets_ = own.slice(1, 1, case_.length + 1).reshape({-1});
    if (mode == "bf16") replica_.register_comm_hook(parallel::compress_buckets(DType::bf16));
    if (mode == "powersgd")
      replica_.register_comm_hook(std::make_shared<parallel::PowerSgd>(
          parallel::PowerSgdOptions{.matrix_approximation_rank = 4, .start_iteration = 2}));
    const auto whole = replica_.whole_parameters();
    if (!session.is_main()) return;
    NamedTensors state = model_->state_dict();
    state.emplace_back("tokens", tokens);
    io::save_safetensors(file, state);
  }

  nlohmann::json answer(const std::string& request) {
    std::istringstream words(request);
    std::string what;
    words >> what;
    if (what == "all_reduce") {
      std::int64_t bytes = 0;
      int calls = 1;
      std::string place;
      words >> bytes >> calls >> place;
      return all_reduce(values_of(bytes, place == "in_place"), calls);
    }
    if (what == "alone") {
      if (!alone_) make_alone();
      return step(*alone_, *alone_optimizer_);
    }
    nlohmann::json answer = step(replica_, optimizer_);
    answer["overlap"] = overlap_of(replica_.reducer());
    return answer;
  }

 private:
  template <class Forward>
  nlohmann::json step(Forward& forward, optim::Optimizer& optimizer) {
    forget_peak_memory();
    const double processor = processor_seconds();
    const auto start = Clock::now();
    const Tensor loss = [&] {
      const amp::Autocast mixed(DType::bf16, {.enabled = case_.is_mixed});
      return cross_entropy(forward(inputs_).reshape({-1, vocabulary}), targets_);
    }();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    const double value = loss.item();
    return {{"seconds", seconds(Clock::now() - start)},
            {"processor", processor_seconds() - processor},
            {"loss", value},
            {"memory_mb", memory_mb("VmRSS") - memory_before_},
            {"peak_mb", memory_mb("VmHWM") - memory_before_}};
  }

  std::span<float> values_of(std::int64_t bytes, bool in_place) {
    const auto size = static_cast<std::size_t>(bytes), count = size / sizeof(float);
    if (!in_place) {
      std::vector<float>& values = values_[bytes];
      if (values.empty()) values.assign(count, 1.0F / 1024);
      return values;
    }
    IntrusivePtr<comm::Memory>& memory = memory_[bytes];
    const bool is_new = !memory;
    if (is_new) memory = comm::allocate_for(*session_.world(), size);
    LOCKSTEP_CHECK(memory, Unsupported, "backend ", session_.world()->backend(),
                   " has no memory of its own for buffers");
    const std::span values(static_cast<float*>(memory->data()), count);
    if (is_new) std::ranges::fill(values, 1.0F / 1024);
    return values;
  }

  nlohmann::json all_reduce(std::span<float> values, int calls) {
    session_.world()->barrier().wait();
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i)
      session_.world()->all_reduce(comm::Buffer(values), comm::ReduceOp::sum()).wait();
    const double taken = seconds(Clock::now() - start);
    const double last = values.back();
    std::ranges::fill(values, 1.0F / 1024);
    return {{"seconds", taken / calls}, {"loss", last}};
  }

  void make_alone() {
    alone_ = case_.make_model();
    alone_optimizer_ = std::make_unique<optim::AdamW>((*alone_)->named_parameters(),
                                                      optim::AdamWOptions{.lr = 1e-4});
  }

  double memory_before_ = memory_mb("VmRSS");
  Session& session_;
  Case case_;
  nn::ModulePtr<Gpt> model_;
  DistributedDataParallel<Gpt> replica_;
  optim::AdamW optimizer_;
  std::optional<nn::ModulePtr<Gpt>> alone_;  // made once it is asked for, as it takes memory
  std::unique_ptr<optim::AdamW> alone_optimizer_;
  Tensor inputs_, targets_;
  std::map<std::int64_t, std::vector<float>> values_;  // by bytes
  std::map<std::int64_t, IntrusivePtr<comm::Memory>> memory_;
};

}  // namespace

int main(int argc, char** argv) {
  const benchmark::Report report("peer_rank", argc, argv);
  if (benchmark::has_no_gpu_case(report, argc, argv, "its peer trains on the CPU")) return 0;
  SessionOptions options{.device = "cpu"};
  if (argc > 5 && std::string(argv[4]) == "--comm") options.communicator.backend = argv[5];
  if (argc < 4) options.refusal = "benchmark_peer_rank MODE CASE FILE [--comm NAME]";
  return Session::run(
      argc, argv,
      [&](Session& session) {
        Rank rank(session, argv[1], argv[2], argv[3]);
        benchmark::serve_requests([&](const std::string& line) { return rank.answer(line); });
        return 0;
      },
      options);
}
