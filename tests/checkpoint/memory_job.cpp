// How much memory a rank takes at most that trains 96 MiB of weights and moments, in MiB:
//
//     checkpoint_memory_job plain|save|load FOLDER
//
// plain: without checkpoints. save: it saves behind each of two steps. load: it goes on from there.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/lockstep.hpp"

namespace ls = lockstep;

namespace {

/// The most memory that this process had, in MiB.
std::int64_t peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      std::int64_t kib = 0;
      status >> kib;
      return kib >> 10;
    }
  return -1;
}

int run(ls::Session& session, std::string_view mode, const std::string& folder) {
  constexpr std::int64_t width = 1024, layers = 8;  // 32 MiB of weights
  auto net = ls::nn::make<ls::nn::Sequential>();
  for (std::int64_t i = 0; i < layers; ++i)
    net->append(ls::nn::make<ls::nn::Linear>(
        ls::nn::LinearOptions{.in = width, .out = width, .bias = false}));
  ls::DistributedDataParallel ddp(net, session.host_world());
  ls::optim::AdamW optimizer(ddp.named_parameters(), {.lr = 1e-4});
  std::optional<ls::checkpoint::Manager> checkpoints;
  if (mode != "plain") {
    checkpoints.emplace(folder, session.host_world());
    checkpoints->add("model", ddp);
    checkpoints->add("optimizer", optimizer, ddp);
    if (mode == "load" && checkpoints->load_newest() != 2) return 1;
  }
  const ls::Tensor x = ls::ones({4, width});
  for (std::int64_t step = 1; step <= 2; ++step) {
    ls::mean(ls::square(ddp(x))).backward();
    optimizer.step();
    optimizer.zero_grad();
    if (mode == "save") checkpoints->save(step);
  }
  if (checkpoints && !checkpoints->wait()) return 1;
  std::cout << "peak " + std::to_string(peak_mib()) + "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ls::Session::run(argc, argv,
                          [&](ls::Session& session) { return run(session, argv[1], argv[2]); });
}
