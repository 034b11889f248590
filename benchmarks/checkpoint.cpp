// What a checkpoint costs: how long a save keeps training, how long it takes to be durable, how
// long a load takes, beside copies of a rank's own part.
//
//     mpirun -np 2 benchmark_checkpoint --folder /tmp/x --mb 384 --tensors 64

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/lockstep.hpp>
#include <nlohmann/json.hpp>

namespace ls = lockstep;

namespace {

struct Options {
  std::filesystem::path folder = "checkpoints";
  std::int64_t megabytes = 384, tensors = 64, rounds = 5;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    if (name == "--folder") options.folder = value;
    if (name == "--mb") options.megabytes = std::stoll(std::string(value));
    if (name == "--tensors") options.tensors = std::stoll(std::string(value));
    if (name == "--rounds") options.rounds = std::stoll(std::string(value));
  }
  return options;
}

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The time of the slowest rank.
double slowest(ls::comm::Communicator& group, const std::function<void()>& body) {
  group.barrier().wait();
  return ls::comm::all_reduce_scalar(group, seconds(body), ls::comm::ReduceOp::max());
}

int run(ls::Session& session, const Options& options) {
  ls::comm::Communicator& world = *session.host_world();
  ls::NamedTensors tensors;
  const std::int64_t numel = options.megabytes * 1'000'000 / 4 / options.tensors;
  for (std::int64_t i = 0; i < options.tensors; ++i)
    tensors.emplace_back("tensor" + std::to_string(i), ls::full({numel}, 0.5 + double(i)));
  ls::checkpoint::Manager checkpoints(options.folder, session.host_world(), {.keep_last = 1});
  checkpoints.add("model", ls::checkpoint::TensorState{
                               .pieces =
                                   [&] {
                                     std::vector<ls::checkpoint::Piece> pieces;
                                     for (const auto& [name, tensor] : tensors)
                                       pieces.push_back({.name = name, .tensor = tensor});
                                     return pieces;
                                   },
                               .load = [](const ls::NamedTensors&) {}});
  const auto part = static_cast<std::size_t>(options.megabytes * 1'000'000 / session.size());
  std::vector<char> from(part, 1), to(part, 2);
  for (std::int64_t round = 1; round <= options.rounds; ++round) {
    const double copy = slowest(world, [&] { std::memcpy(to.data(), from.data(), part); });
    double stall = 0;
    const double durable = slowest(world, [&] {
      stall = seconds([&] { checkpoints.save(round); });
      if (!checkpoints.wait()) throw ls::Error(checkpoints.error());
    });
    stall = ls::comm::all_reduce_scalar(world, stall, ls::comm::ReduceOp::max());
    const double load = slowest(world, [&] { checkpoints.load_newest(); });
    if (session.is_main())
      std::cout << nlohmann::ordered_json{{"ranks", session.size()},
                                          {"megabytes", options.megabytes},
                                          {"round", round},
                                          {"copy_own_s", copy},
                                          {"stall_s", stall},
                                          {"durable_s", durable},
                                          {"durable_gb_s",
                                           double(options.megabytes) / 1e3 / durable},
                                          {"load_s", load},
                                          {"load_gb_s", double(options.megabytes) / 1e3 / load}}
                       .dump()
                << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  return ls::Session::run(argc, argv, [&](ls::Session& session) { return run(session, options); });
}
