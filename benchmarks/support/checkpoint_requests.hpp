#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/contents.hpp"
#include "checkpoint/file_reader.hpp"
#include "checkpoint/share.hpp"
#include "lockstep/io/crc32c.hpp"
#include "support/checkpoint_training.hpp"
#include "support/process_memory.hpp"

/// @file
/// A rank whose checkpoints are measured on request, so that a peer's can take turns. All ranks get
/// the same requests. Times are those of the slowest.

namespace lockstep::benchmark {

/// Answers "first", "copy", "save", "load", "checksums", "beside" and "stalls".
class CheckpointRequests {
 public:
  CheckpointRequests(Session& session, const std::filesystem::path& folder,
                     const CheckpointTraining::Sizes& sizes)
      : world_(*session.host_world()),
        group_(session.host_world()),
        folder_(folder),
        training_(group_, sizes),
        share_(static_cast<std::size_t>(sizes.state_megabytes() * 1e6 / session.size())),
        from_(share_, std::byte{1}),
        to_(std::max(share_, 2 * chunk_bytes), std::byte{2}),
        // What is read back would be read beside the peer's turns; `beside` has it.
        checkpoints_(checkpoints_folder(), group_, {.keep_last = 1, .read_back = false}) {
    training_.add_to(checkpoints_);
    for (int i = 0; i < 3; ++i) training_.step();
  }

  nlohmann::json answer(const std::string& request) {
    if (request == "first") return first();
    if (request == "copy")
      return {{"seconds", slowest(world_, [&] { std::memcpy(to_.data(), from_.data(), share_); })}};
    if (request == "save") return save();
    if (request == "load") return load();
    if (request == "checksums") return checksums();
    if (request == "beside") return beside();
    if (request == "stalls") return stalls();
    LOCKSTEP_THROW(InvalidArgument, "no request '", request,
                   "'; there are first, copy, save, load, checksums, beside and stalls");
  }

 private:
  static constexpr std::size_t chunk_bytes = std::size_t{1} << 20;  // as loads read
  static constexpr int first_steps = 8;  // before the 10 behind which `save_if_due` would save
  static constexpr int idle_steps = 8;
  static constexpr double longest_reading_back = 5;  // of it so many seconds are measured

  /// The most memory beyond what there was before, on any rank, in MB.
  template <class Work>
  double memory_of(const Work& work) {
    forget_peak_memory();
    const double before = memory_mb("VmRSS");
    work();
    return largest(world_, memory_mb("VmHWM") - before);
  }

  double timed_step() {
    return slowest(world_, [&] { training_.step(); });
  }

  /// @return how long each step took.
  std::vector<double> come_to_first(checkpoint::Manager& manager) {
    std::vector<double> steps;
    for (int i = 0; i < first_steps; ++i) {
      manager.save_if_due(i);  // the first call begins to get the memory
      steps.push_back(timed_step());
    }
    return steps;
  }

  /// The first save of the process, as a training loop comes to it: asked behind each step.
  nlohmann::json first() {
    nlohmann::json result;
    const double memory = memory_of([&] {
      come_to_first(checkpoints_);
      result = save();
    });
    result["memory_mb"] = memory;
    result["share_mb"] = double(share_) / 1e6;
    return result;
  }

  /// From the call until it is on disk, without training beside.
  nlohmann::json save() {
    double call = 0;
    const double whole = slowest(world_, [&] {
      call = seconds([&] { checkpoints_.save(++step_); });
      if (!checkpoints_.wait()) throw Error(checkpoints_.error());
    });
    newest_ = checkpoints_folder() / ("step-" + std::to_string(step_));
    wait_until_deleted(checkpoints_folder());
    return {{"seconds", whole}, {"call", largest(world_, call)}};
  }

  std::filesystem::path checkpoints_folder() const { return folder_ / "saved"; }

  /// The checkpoint that a save has replaced is deleted behind it: not beside what comes next.
  static void wait_until_deleted(const std::filesystem::path& folder) {
    const auto is_left = [&] {
      for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().filename().string().starts_with(".deleting-")) return true;
      return false;
    };
    while (is_left()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  void drop_cache() const {
    for (const auto& file : std::filesystem::directory_iterator(newest_))
      if (file.path().extension() == ".safetensors") {
        const checkpoint::FileReader reader(file.path());
        reader.drop_cache(0, reader.size());
      }
  }

  /// From disk, and once more from the page cache.
  nlohmann::json load() {
    drop_cache();
    double disk = 0;
    const double memory =
        memory_of([&] { disk = slowest(world_, [&] { checkpoints_.load(newest_); }); });
    read_part(false);  // loads from the disk go past the page cache
    const double cached = slowest(world_, [&] { checkpoints_.load(newest_); });
    return {{"seconds", disk}, {"cached", cached}, {"memory_mb", memory}};
  }

  /// Reads this rank's part of all files, from the page cache, as loads read it; no way but this
  /// one leaves the checksums out. Into memory that is there: that takes the least time beside
  /// them.
  double read_part(bool with_checksums) {
    const checkpoint::Manifest manifest = checkpoint::read_manifest(newest_);
    std::vector<checkpoint::FileRecord> files;
    for (const char* stem : {"model", "optimizer"}) {
      const auto contents = checkpoint::read_stem(newest_, manifest, stem);
      files.insert(files.end(), contents.files.begin(), contents.files.end());
    }
    std::vector<std::uint64_t> sizes;
    for (const auto& file : files) sizes.push_back(file.size);
    const auto parts = checkpoint::equal_parts(sizes, world_.rank(), world_.size());
    return slowest(world_, [&] {
      for (std::size_t i = 0; i < files.size(); ++i) {
        const checkpoint::FileReader reader(newest_ / files[i].name);
        for (std::uint64_t at = parts[i].first; at < parts[i].second; at += chunk_bytes) {
          const std::size_t place = (at - parts[i].first) % (to_.size() - chunk_bytes);
          const auto chunk = std::span(to_).subspan(
              place, std::min<std::size_t>(chunk_bytes, parts[i].second - at));
          reader.read(at, chunk);
          if (with_checksums) checksum_ ^= io::crc32c(chunk);
        }
      }
    });
  }

  /// What checksums add to reading.
  nlohmann::json checksums() {
    std::vector<double> with, without;
    for (int i = 0; i < 5; ++i) {
      without.push_back(read_part(false));
      with.push_back(read_part(true));
    }
    return {{"seconds", median_of(with)}, {"without", median_of(without)}};
  }

  /// What training stands still for behind the first save of a manager, and behind later ones: the
  /// call, and what the step behind it takes longer than the median one.
  nlohmann::json stalls() {
    checkpoint::Manager manager(folder_ / "stalls", group_, {.keep_last = 1, .read_back = false});
    training_.add_to(manager);
    std::vector<double> idle = come_to_first(manager);
    const auto call_and_step = [&] {
      const double call = slowest(world_, [&] { manager.save(++step_); });
      const double both = call + timed_step();
      if (!manager.wait()) throw Error(manager.error());
      wait_until_deleted(folder_ / "stalls");
      for (int i = 0; i < 2; ++i) idle.push_back(timed_step());
      return both;
    };
    const double first = call_and_step();
    std::vector<double> later;
    for (int i = 0; i < 3; ++i) later.push_back(call_and_step());
    const double alone = median_of(idle);
    return {{"seconds", median_of(later) - alone}, {"first", first - alone}, {"step", alone}};
  }

  /// Steps beside a save whose files are written unhurriedly, and read back, and without.
  nlohmann::json beside() {
    std::optional<checkpoint::Manager> manager(std::in_place, folder_ / "beside", group_,
                                               checkpoint::ManagerOptions{.keep_last = 1});
    training_.add_to(*manager);
    manager->save(++step_);  // gets its memory; `stalls` tells of a first save
    if (!manager->wait()) throw Error(manager->error());
    std::vector<double> idle, writing, reading;
    const auto step = [&] { return timed_step(); };
    const auto any = [&](bool own) { return largest(world_, own ? 1 : 0) > 0; };
    for (int i = 0; i < idle_steps; ++i) idle.push_back(step());
    const double call = slowest(world_, [&] { manager->save(++step_); });
    const auto saved = folder_ / "beside" / ("step-" + std::to_string(step_));
    do writing.push_back(step());
    while (any(!std::filesystem::exists(saved)));
    if (!manager->wait()) throw Error(manager->error());
    while (sum(reading) < longest_reading_back && any(!manager->is_read_back()))
      reading.push_back(step());
    manager.reset();  // reading back is given up
    for (int i = 0; i < idle_steps; ++i) idle.push_back(step());
    const double alone = median_of(idle);
    return {{"seconds", sum(writing)},
            {"step", alone},
            {"call", call},
            {"speed", alone * double(writing.size()) / sum(writing)},
            {"lost", call + sum(writing) - alone * double(writing.size())},
            {"reading_back", sum(reading)},
            {"speed_reading_back",
             reading.empty() ? 1 : alone * double(reading.size()) / sum(reading)}};
  }

  static double sum(const std::vector<double>& times) {
    return std::accumulate(times.begin(), times.end(), 0.0);
  }

  comm::Communicator& world_;
  CommunicatorPtr group_;
  std::filesystem::path folder_;
  CheckpointTraining training_;
  std::size_t share_;  // in bytes
  std::vector<std::byte> from_, to_;
  checkpoint::Manager checkpoints_;
  std::int64_t step_ = 0;         // of the last save into any folder
  std::filesystem::path newest_;  // what `save` saved last
  std::uint32_t checksum_ = 0;
};

}  // namespace lockstep::benchmark
