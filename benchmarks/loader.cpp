// How fast a DataLoader hands out batches, and how long a training step waits for them. Beside each
// case stands a copy that reads and writes as many bytes, in turns with it.
//
//     benchmark_loader [--json] [CASE...]      tokens, images, order
//     benchmark_loader --serve CASE FOLDER
//
// The case order, which has no second form, is what the order of a billion samples costs.
//
// The second form writes the case's data to FOLDER and then answers the lines on standard input:
// "check W", "epoch W", "consume W" and "copy W" for W workers. benchmarks/peers/compare.py
// interleaves it with a peer.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>

#include <unistd.h>

#include "lockstep/io/safetensors.hpp"
#include "support/copy_rate.hpp"
#include "support/device.hpp"
#include "support/loader_cases.hpp"
#include "support/order_case.hpp"
#include "support/serve.hpp"

namespace {

using namespace lockstep;
using benchmark::LoaderCase;

// Batches that a consumer takes when its waiting is measured.
constexpr std::int64_t consumed = 100;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double copy_seconds(benchmark::Copier& copier, const LoaderCase& item, int workers) {
  return copier.seconds(item.batches, item.bytes_read + item.bytes_written, std::max(1, workers));
}

benchmark::Epoch consume(const LoaderCase& item, int workers) {
  return item.run(workers, {.step_seconds = item.step_seconds, .batches = consumed});
}

/// Median share of its time that a consumer waits.
double waits(const LoaderCase& item, int workers) {
  std::vector<double> shares;
  for (int round = 0; round < 3; ++round) {
    const auto epoch = consume(item, workers);
    shares.push_back(epoch.waited / epoch.seconds);
  }
  return median(std::move(shares));
}

void measure_case(const benchmark::Report& report, const LoaderCase& item, const std::string& name,
                  int workers) {
  benchmark::Copier copier;
  item.run(workers, {});
  std::vector<double> loading, copying;
  for (int round = 0; round < 7; ++round) {
    loading.push_back(item.run(workers, {}).seconds);
    copying.push_back(copy_seconds(copier, item, workers));
  }
  const double seconds = median(loading), count = static_cast<double>(item.batches);
  const double moved = (item.bytes_read + item.bytes_written) * count;
  report.add({{"case", name},
              {"workers", workers},
              {"us_a_batch_min", std::ranges::min(loading) / count * 1e6},
              {"us_a_batch_median", seconds / count * 1e6},
              {"samples_per_s", static_cast<double>(item.samples) / seconds},
              {"gb_per_s", 1e-9 * moved / seconds},
              {"copy_gb_per_s", 1e-9 * moved / median(copying)},
              {"share_of_copy", median(copying) / seconds},
              {"step_ms", item.step_seconds * 1e3},
              {"waits", waits(item, workers)}});
}

/// The answer to a line such as "epoch 2".
nlohmann::json answer(const LoaderCase& item, benchmark::Copier& copier, const std::string& line) {
  std::istringstream words(line);
  std::string request;
  int workers = 0;
  words >> request >> workers;
  if (request == "copy") return {{"seconds", copy_seconds(copier, item, workers)}};
  const auto epoch = request == "consume" ? consume(item, workers)
                                          : item.run(workers, {.checks = request == "check"});
  return {{"seconds", epoch.seconds}, {"waited", epoch.waited}, {"checksum", epoch.checksum}};
}

void serve(const std::string& name, const std::filesystem::path& folder) {
  const auto item = benchmark::loader_case(name, folder);
  io::save_safetensors(folder / "state.safetensors", item.state);
  std::ofstream(folder / "sizes.json") << nlohmann::json{
      {"samples", item.samples},
      {"batches", item.batches},
      {"batch_size", item.samples / item.batches},
      {"bytes_moved", (item.bytes_read + item.bytes_written) * static_cast<double>(item.batches)},
      {"step_seconds", item.step_seconds},
      {"consumed", consumed}};
  benchmark::Copier copier;
  benchmark::serve_requests([&](const std::string& line) { return answer(item, copier, line); });
}

/// A folder of this process, removed at the end.
class OwnFolder {
 public:
  OwnFolder() { std::filesystem::create_directories(path_); }
  ~OwnFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                ("lockstep-benchmark-loader-" + std::to_string(::getpid()));
};

}  // namespace

int main(int argc, char** argv) try {
  const benchmark::Report report("loader", argc, argv);
  if (benchmark::has_no_gpu_case(report, argc, argv, "batches are made on the host")) return 0;
  std::vector<std::string> words;
  bool serving = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--serve") == 0)
      serving = true;
    else if (std::strcmp(argv[i], "--json") != 0)
      words.emplace_back(argv[i]);
  }
  if (serving) {
    LOCKSTEP_CHECK(words.size() == 2, InvalidArgument, "--serve needs a case and a folder");
    serve(words[0], words[1]);
    return 0;
  }
  if (words.empty()) words = {"tokens", "images", "order"};
  const OwnFolder folder;
  for (const std::string& name : words) {
    if (name == "order") {
      benchmark::measure_order(report);
      continue;
    }
    const auto item = benchmark::loader_case(name, folder.path());
    for (const int workers : {0, 1, 2}) measure_case(report, item, name, workers);
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "benchmark_loader: " << error.what() << '\n';
  return 2;
}
