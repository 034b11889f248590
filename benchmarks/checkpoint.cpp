// What a checkpoint costs: how long a save keeps training, how fast training goes while it is
// written, and while it is read back, how long it takes to be durable, how long a load takes;
// beside copies of a rank's own part, and dd with O_DIRECT, which writes and reads as much in as
// many processes. And what a snapshot in memory behind each step costs: how long steps take with
// and without, in turn, and how much of the processors over all ranks.
//
//     mpirun -np 2 benchmark_checkpoint --folder /tmp/x --layers 8 --width 2048
//     RANK=0 WORLD_SIZE=1 benchmark_checkpoint --serve --folder /tmp/x --layers 30 --width 2032
//
// The second form answers requests (support/checkpoint_requests.hpp) on the standard input of each
// rank; benchmarks/peers/long_runs.py has them take turns with dd and PyTorch.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <iostream>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <lockstep/lockstep.hpp>
#include <nlohmann/json.hpp>

#include "support/checkpoint_requests.hpp"
#include "support/checkpoint_training.hpp"
#include "support/device.hpp"
#include "support/serve.hpp"

namespace ls = lockstep;

using ls::benchmark::CheckpointTraining, ls::benchmark::largest, ls::benchmark::slowest;

namespace {

struct Options {
  std::filesystem::path folder = "checkpoints";
  CheckpointTraining::Sizes sizes;
  std::int64_t rounds = 5, steps = 8;
  bool serves = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--serve") options.serves = true;
    if (name == "--serve" || name == "--json" || i + 1 == argc) continue;
    const std::string_view value = argv[++i];
    const auto number = [&] { return std::stoll(std::string(value)); };
    if (name == "--folder") options.folder = value;
    if (name == "--layers") options.sizes.layers = number();
    if (name == "--width") options.sizes.width = number();
    if (name == "--batch") options.sizes.batch = number();
    if (name == "--rounds") options.rounds = number();
    if (name == "--steps") options.steps = number();
  }
  return options;
}

/// Each rank's own file, of its share of the state.
class Disk {
 public:
  Disk(const std::filesystem::path& folder, int rank, double megabytes)
      : file_((folder / ("dd-" + std::to_string(rank))).string()),
        blocks_(std::max(1L, std::lround(megabytes * 1e6 / block))) {
    std::filesystem::create_directories(folder);
  }
  ~Disk() { remove(); }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  /// So that the next write makes a new one, as a save does.
  void remove() const { std::filesystem::remove(file_); }
  double gigabytes() const { return double(blocks_) * block / 1e9; }
  void write() const { dd("if=/dev/zero of=" + file_ + " oflag=direct conv=fsync"); }
  void read() const { dd("if=" + file_ + " of=/dev/null iflag=direct"); }

 private:
  static constexpr double block = 8 << 20;
  void dd(const std::string& arguments) const {
    const std::string command =
        "dd bs=8M count=" + std::to_string(blocks_) + " " + arguments + " 2>/dev/null";
    if (std::system(command.c_str()) != 0) throw ls::Error("this failed: " + command);
  }

  std::string file_;
  long blocks_;
};

/// Takes back nothing: what is measured is how a checkpoint is read, verified and exchanged.
ls::checkpoint::TensorState unused_state() {
  return {.pieces = [] { return std::vector<ls::checkpoint::Piece>(); },
          .load = [](const ls::NamedTensors&) {}};
}

/// Times of steps without a save, and how much of their speed is left beside one.
struct BesideTraining {
  double step = 0, call = 0, lost = 0, writing = 0, speed_while_writing = 0;
  double reading_back = 0, speed_while_reading_back = 0;
};

BesideTraining beside_training(ls::comm::Communicator& world, CheckpointTraining& training,
                               ls::checkpoint::Manager& checkpoints,
                               const std::filesystem::path& folder, std::int64_t number,
                               std::int64_t steps) {
  BesideTraining result;
  const auto step = [&] { return slowest(world, [&] { training.step(); }); };
  const auto saved = folder / ("step-" + std::to_string(number));
  std::vector<double> busy, idle, reading;
  for (std::int64_t i = 0; i < steps; ++i) idle.push_back(step());
  result.call = slowest(world, [&] { checkpoints.save(number); });
  while (largest(world, std::filesystem::exists(saved) ? 0 : 1) > 0) busy.push_back(step());
  if (!checkpoints.wait()) throw ls::Error(checkpoints.error());
  while (largest(world, checkpoints.is_read_back() ? 0 : 1) > 0) reading.push_back(step());
  for (std::int64_t i = 0; i < steps; ++i) idle.push_back(step());
  std::ranges::sort(idle);
  result.step = idle[idle.size() / 2];
  const double time = std::accumulate(busy.begin(), busy.end(), 0.0);
  const double time_without = result.step * double(busy.size());
  result.writing = time;
  result.speed_while_writing = time_without / time;
  result.lost = result.call + time - time_without;
  result.speed_while_writing =
      ls::comm::all_reduce_scalar(world, result.speed_while_writing, ls::comm::ReduceOp::min());
  result.reading_back = std::accumulate(reading.begin(), reading.end(), 0.0);
  result.speed_while_reading_back = result.step * double(reading.size()) / result.reading_back;
  return result;
}

/// Of a step.
struct Cost {
  double seconds = 0;     ///< of the slowest rank, the median
  double processors = 0;  ///< in seconds, of all ranks and threads
};

double processor_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

Cost cost_of_step(ls::comm::Communicator& world, std::int64_t steps,
                  const std::function<void()>& step) {
  std::vector<double> times;
  const double before = processor_seconds();
  for (std::int64_t i = 0; i < steps; ++i) times.push_back(slowest(world, step));
  const double own = (processor_seconds() - before) / double(steps);
  std::ranges::sort(times);
  return {.seconds = times[times.size() / 2],
          .processors = ls::comm::all_reduce_scalar(world, own, ls::comm::ReduceOp::sum())};
}

/// Steps without and with a snapshot in memory behind each.
nlohmann::ordered_json snapshots(ls::Session& session, CheckpointTraining& training,
                                 const Options& options) {
  ls::checkpoint::Manager manager(
      options.folder / "snapshots", session.host_world(),
      {.interval = ls::checkpoint::SaveInterval::every_steps(std::int64_t{1} << 40),
       .snapshot_every = 1});
  training.add_to(manager);
  std::int64_t made = 0;
  const auto with = [&] {
    training.step();
    manager.save_if_due(++made);
  };
  for (int i = 0; i < 3; ++i) with();  // which get their memory
  ls::comm::Communicator& world = *session.host_world();
  const Cost alone = cost_of_step(world, options.steps, [&] { training.step(); });
  const Cost beside = cost_of_step(world, options.steps, with);
  manager.save(made);  // then they go
  return {{"step_s", alone.seconds},
          {"step_with_snapshot_s", beside.seconds},
          {"step_processor_s", alone.processors},
          {"step_with_snapshot_processor_s", beside.processors}};
}

int run(ls::Session& session, const Options& options) {
  ls::comm::Communicator& world = *session.host_world();
  CheckpointTraining training(session.host_world(), options.sizes);
  ls::checkpoint::Manager checkpoints(options.folder, session.host_world(), {.keep_last = 1});
  training.add_to(checkpoints);
  ls::checkpoint::Manager reader(options.folder / "none", session.host_world());
  for (const char* name : {"model", "optimizer"}) reader.add(name, unused_state());
  for (int i = 0; i < 3; ++i) training.step();
  const double megabytes = options.sizes.state_megabytes();
  const Disk disk(options.folder, session.rank(), megabytes / session.size());
  checkpoints.save_if_due(0);  // gets its memory
  training.step();
  const auto part = static_cast<std::size_t>(megabytes * 1e6 / session.size());
  std::vector<char> from(part, 1), to(part, 2);
  for (std::int64_t round = 1; round <= options.rounds; ++round) {
    disk.remove();
    const double disk_write = slowest(world, [&] { disk.write(); });
    const double disk_read = slowest(world, [&] { disk.read(); });
    const double copy = slowest(world, [&] { std::memcpy(to.data(), from.data(), part); });
    const BesideTraining beside =
        beside_training(world, training, checkpoints, options.folder, 2 * round, options.steps);
    const double durable = slowest(world, [&] {
      checkpoints.save(2 * round + 1);
      if (!checkpoints.wait()) throw ls::Error(checkpoints.error());
    });
    const auto saved = options.folder / ("step-" + std::to_string(2 * round + 1));
    const double processors = processor_seconds();
    while (!checkpoints.is_read_back()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const double read_back = processor_seconds() - processors;  // of this rank
    const double read = slowest(world, [&] { reader.load(saved); });
    const double load = slowest(world, [&] { checkpoints.load(saved); });
    const double all = disk.gigabytes() * session.size();
    if (session.is_main())
      std::cout << nlohmann::ordered_json{{"ranks", session.size()},
                                          {"megabytes", megabytes},
                                          {"round", round},
                                          {"copy_own_s", copy},
                                          {"step_s", beside.step},
                                          {"save_call_s", beside.call},
                                          {"save_lost_s", beside.lost},
                                          {"writing_s", beside.writing},
                                          {"speed_while_writing", beside.speed_while_writing},
                                          {"reading_back_s", beside.reading_back},
                                          {"speed_while_reading_back",
                                           beside.speed_while_reading_back},
                                          {"read_back_processor_s", read_back},
                                          {"dd_write_gb_s", all / disk_write},
                                          {"durable_gb_s", megabytes / 1e3 / durable},
                                          {"dd_read_gb_s", all / disk_read},
                                          {"verified_read_gb_s", megabytes / 1e3 / read},
                                          {"durable_over_dd",
                                           megabytes / 1e3 / durable * disk_write / all},
                                          {"verified_read_over_dd",
                                           megabytes / 1e3 / read * disk_read / all},
                                          {"load_from_page_cache_gb_s", megabytes / 1e3 / load}}
                       .dump()
                << std::endl;
  }
  for (std::int64_t round = 1; round <= options.rounds; ++round) {
    const nlohmann::ordered_json cost = snapshots(session, training, options);
    if (session.is_main()) std::cout << cost.dump() << std::endl;
  }
  return 0;
}

int serve(ls::Session& session, const Options& options) {
  ls::benchmark::CheckpointRequests rank(session, options.folder, options.sizes);
  ls::benchmark::serve_requests([&](const std::string& line) { return rank.answer(line); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const ls::benchmark::Report report("checkpoint", argc, argv);
  if (ls::benchmark::has_no_gpu_case(report, argc, argv, "it trains over the host's group"))
    return 0;
  const Options options = parse(argc, argv);
  return ls::Session::run(argc, argv, [&](ls::Session& session) {
    return options.serves ? serve(session, options) : run(session, options);
  });
}
