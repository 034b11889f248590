#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/checkpoint/folder.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "support/temporary_folder.hpp"
#include "support/timeout_multiplier.hpp"

/// @file
/// Jobs of threads that save checkpoints, and what they have saved.

namespace lockstep::testing {

/// Plays all ranks of a job, none of which waits for another for long; body gets the group.
inline void run_job(int ranks, const std::function<void(const CommunicatorPtr&)>& body) {
  comm::run_ranks(ranks, [&](comm::Communicator& group) { body(CommunicatorPtr(&group)); },
                  {.timeout = std::chrono::seconds(20 * timeout_multiplier)});
}

/// The files of tensors of a checkpoint and their bytes.
inline std::map<std::string, std::string> tensor_files(const std::filesystem::path& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint))
    if (entry.path().filename().string().find(".safetensors") != std::string::npos)
      files[entry.path().filename()] = read_file(entry.path());
  return files;
}

/// The steps whose checkpoints a run's folder has.
inline std::vector<std::int64_t> steps_in(const std::filesystem::path& folder) {
  std::vector<std::int64_t> steps;
  for (const checkpoint::Found& each : checkpoint::list(folder)) steps.push_back(each.step);
  return steps;
}

/// Waits until what a save has taken out of a run's folder is deleted, which it does behind the
/// save.
inline void wait_until_deleted(const std::filesystem::path& folder) {
  const auto is_left = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(".deleting-") || name.starts_with(".saving-") ||
          name.starts_with(".old-"))
        return true;
    }
    return false;
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20 * timeout_multiplier);
  while (is_left() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace lockstep::testing
