#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace lockstep::comm {

/// Processor time that a process and others of its control group may use together, as containers
/// and batch systems limit it.
struct CpuQuota {
  double cores = 0;         ///< seconds of processor time a second
  std::uint64_t group = 0;  ///< tells groups of one machine apart
};

/// The least quota of this process' control group and those above it (versions 1 and 2); none if
/// nothing limits it, or the system does not say.
/// @param root where the groups are mounted.
/// @param membership the file that names the process' groups.
std::optional<CpuQuota> cpu_quota(const std::filesystem::path& root = "/sys/fs/cgroup",
                                  const std::filesystem::path& membership = "/proc/self/cgroup");

}  // namespace lockstep::comm
