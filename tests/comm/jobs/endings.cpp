#include "comm/jobs/endings.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "comm/jobs/event.hpp"
#include "io/file_calls.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/checkpoint/manager.hpp"
#include "lockstep/checkpoint/states.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/sampler.hpp"
#include "lockstep/data/tensor_dataset.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/parallel/delayed_reduction.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/train/periodic_averaging.hpp"
#include "lockstep/train/step_graph.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace {

/// Two layers, between which something may happen.
struct Net : nn::Module {
  nn::Child<nn::Linear> first{this, "first", 8, 64};
  nn::Child<nn::Linear> last{this, "last", 64, 4};
  std::function<void()> between;

  Tensor forward(const Tensor& x) {
    const Tensor hidden = first(x);
    if (between) between();
    return last(hidden);
  }
};

/// A model that all ranks train, in several buckets.
struct Training {
  nn::ModulePtr<Net> net;
  DistributedDataParallel<Net> replica;
  optim::SGD optimizer;
  Tensor x;

  explicit Training(const Session& session)
      : net(on_device(session.device())),
        replica(net, session.world(), {.bucket_bytes = 1 << 10, .first_bucket_bytes = 1 << 8}),
        optimizer(replica.named_parameters(), {.lr = 1e-3}),
        x(full({4, 8}, 1.0 + session.rank(), {.device = session.device()})) {}

  static nn::ModulePtr<Net> on_device(Device device) {
    auto net = nn::make<Net>();
    net->to(device);
    return net;
  }
  std::vector<Tensor> step(const Tensor& input) {
    const Tensor loss = mean(square(replica(input)));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return {loss};
  }
};

constexpr int last_step = 5, all_steps = 1000;

// Trains on; the ending comes behind a step, with all that is alive by then.
int train_until(Ending& ending, const std::function<void()>& step) {
  for (int i = 0; i < all_steps; ++i) {
    step();
    if (i == last_step && ending()) return 0;
  }
  return 0;
}

int end_with_open_work(Session& session, Ending& ending) {
  // Never destroyed: the memory has to stay for as long as what is under way.
  static const Tensor& values = *new Tensor(ones({100'000}, {.device = session.device()}));
  const comm::Buffer buffer{values.data_ptr(), values.numel(), values.dtype()};
  return train_until(ending, [&] {
    for (int i = 0; i < 3; ++i) session.world()->all_reduce(buffer);
  });
}

int end_between_steps(Session& session, Ending& ending) {
  Training training(session);
  return train_until(ending, [&] { training.step(training.x); });
}

int end_in_forward(Session& session, Ending& ending) {
  Training training(session);
  for (int i = 0; i < all_steps; ++i) {
    if (i == last_step) training.net->between = [&] { ending(); };
    const Tensor y = training.replica(training.x);
    training.net->between = {};
    if (i == last_step && ending.returns()) return 0;
    mean(square(y)).backward();
  }
  return 0;
}

// A hook cannot return from `main`: it throws, and who calls backward returns.
int end_in_backward(Session& session, Ending& ending) {
  Training training(session);
  for (int i = 0; i < all_steps; ++i) {
    const Tensor loss = mean(square(training.replica(training.x)));
    if (i == last_step)
      training.net->first->weight.register_hook([&](const Tensor&) -> Tensor {
        if (ending()) throw std::runtime_error("not computed");
        return {};
      });
    try {
      loss.backward();
    } catch (const std::exception&) {
      if (ending.returns()) return 0;
      throw;
    }
  }
  return 0;
}

int end_with_captured_step(Session& session, Ending& ending) {
  Training training(session);
  StepGraph graph([&](std::span<const Tensor> in) { return training.step(in[0]); },
                  {.num_warmup_iters = 2, .group = session.world()});
  return train_until(ending, [&] { graph({training.x}); });
}

int end_with_loader(Session& session, Ending& ending) {
  Training training(session);
  data::DataLoader loader(data::TensorDataset({full({8000, 8}, 0.5)}), data::RandomSampler(8000, 1),
                          {.batch_size = 4, .num_workers = 2, .device = session.device()});
  int steps = 0;
  for (const auto& batch : loader) {
    training.step(batch[0]);
    if (steps++ == last_step && ending()) return 0;
  }
  return 0;
}

int end_while_averages_are_under_way(Session& session, Ending& ending) {
  Training training(session);
  DiLoCo averaging(training.replica, training.optimizer,
                   {.sync_every = 4, .fragments = 2, .fragment_sync_delay = 2});
  return train_until(ending, [&] { training.step(training.x); });
}

int end_while_gradients_are_under_way(Session& session, Ending& ending) {
  Training training(session);
  training.replica.register_comm_hook(std::make_shared<parallel::DelayedReduction>());
  return train_until(ending, [&] { training.step(training.x); });
}

std::string bytes_of(const nn::Module& module) {
  std::string bytes;
  for (const auto& [name, tensor] : module.state_dict()) {
    const Tensor values = tensor.to(cpu).contiguous();
    bytes.append(static_cast<const char*>(values.data_ptr()), values.nbytes());
  }
  return bytes;
}

std::atomic<bool> is_writing = false;

/// Ends in the midst of the second checkpoint, which all ranks write beside their training, to the
/// folder JOB_FOLDER. Started again it returns whether it got the weights that were saved.
int end_while_saving(Session& session, Ending& ending) {
  Training training(session);
  const std::filesystem::path folder = std::getenv("JOB_FOLDER");
  const auto weights = [&](std::int64_t step) {
    return folder / ("weights-" + std::to_string(step));
  };
  // A part of it is each rank's to write.
  const auto large = nn::make<nn::Linear>(256, 256);
  checkpoint::Manager checkpoints(folder / "run", session.host_world(), {.read_back = false});
  checkpoints.add("model", training.replica);
  checkpoints.add("large", *large);
  if (const auto step = checkpoints.load_newest()) {
    if (session.rank() == 0)
      std::printf("goes on behind step %lld\n", static_cast<long long>(*step));
    return bytes_of(*training.net) == read_file(weights(*step)) ? 0 : 4;
  }
  for (int i = 0; i < all_steps; ++i) {
    training.step(training.x);
    if (i == last_step - 1 || i == last_step) {
      if (session.rank() == 0)
        std::ofstream(weights(i), std::ios::binary) << bytes_of(*training.net);
      if (i == last_step)
        io::file_calls.fsync = [](int file) {
          is_writing = true;
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          return ::fsync(file);
        };
      checkpoints.save(i);
      if (i < last_step) LOCKSTEP_CHECK(checkpoints.wait(), Error, checkpoints.error());
    }
    if (i == last_step) {
      while (!is_writing) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (ending()) return 0;
    }
    session.world()->barrier().synchronize();
  }
  return 0;
}

/// A process that rank 1 forks comes to an end, which is none of the job's.
int end_in_a_child(Session& session, Ending& ending) {
  if (const pid_t child = session.rank() == 1 ? fork() : 1; child == 0) {
    if (ending()) return 0;
  } else if (session.rank() == 1) {
    int status = -1;
    waitpid(child, &status, 0);
    std::printf("the child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  for (int i = 0; i < last_step; ++i) session.world()->barrier().synchronize();
  return 0;
}

}  // namespace

Ending::Ending(int rank) {
  const char *way = std::getenv("JOB_ENDING"), *culprit = std::getenv("JOB_CULPRIT");
  way_ = way ? way : "throw";
  const int who = culprit ? std::atoi(culprit) : 1;
  is_mine_ = who == -1 || who == rank;
}

bool Ending::operator()() {
  if (!is_mine_) return false;
  note_event();
  if (way_ == "throw") throw std::runtime_error("this is the end");
  if (way_ == "exit") std::exit(0);
  if (way_ == "exit3") std::exit(3);
  if (way_ == "kill") std::raise(SIGKILL);
  if (way_ == "segv") std::raise(SIGSEGV);
  if (way_ == "term") std::raise(SIGTERM);
  if (way_ == "abort") std::abort();
  return true;
}

std::map<std::string, std::function<int(Session&, Ending&)>> ending_stages() {
  return {{"open-work", end_with_open_work},
          {"between-steps", end_between_steps},
          {"forward", end_in_forward},
          {"backward", end_in_backward},
          {"captured", end_with_captured_step},
          {"loader", end_with_loader},
          {"averages", end_while_averages_are_under_way},
          {"delayed", end_while_gradients_are_under_way},
          {"save", end_while_saving},
          {"child", end_in_a_child}};
}

}  // namespace lockstep::testing
