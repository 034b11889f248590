#include "comm/session/cpu_quota.hpp"

#include <fstream>
#include <locale>
#include <string>
#include <vector>

#include <sys/stat.h>

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

// A mounted tree of groups, and the process' place in it.
struct Hierarchy {
  fs::path mount;
  fs::path group;
};

// Lines are "0::/path" for version 2, and "4:cpu,cpuacct:/path" for a controller of version 1.
std::vector<Hierarchy> hierarchies(const fs::path& root, const fs::path& membership) {
  std::vector<Hierarchy> found;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = fs::path(line.substr(second + 1)).relative_path();
    if (controllers.empty()) found.push_back({root, group});
    if (("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    found.push_back({root / controllers, group});
    found.push_back({root / "cpu", group});
  }
  return found;
}

template <class T>
std::optional<T> read(const fs::path& path) {
  std::ifstream file(path);
  file.imbue(std::locale::classic());
  T value;
  if (file >> value) return value;
  return std::nullopt;
}

// The quota that one group sets, in cores.
std::optional<double> quota_of(const fs::path& group) {
  std::ifstream file(group / "cpu.max");  // "200000 100000", or "max 100000"
  file.imbue(std::locale::classic());
  double quota = 0, period = 0;
  if (file >> quota >> period && quota > 0 && period > 0) return quota / period;
  const auto old_quota = read<double>(group / "cpu.cfs_quota_us");  // -1: none
  const auto old_period = read<double>(group / "cpu.cfs_period_us");
  if (old_quota && old_period && *old_quota > 0 && *old_period > 0) return *old_quota / *old_period;
  return std::nullopt;
}

std::uint64_t number_of(const fs::path& group) {
  struct stat status {};
  return stat(group.c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

std::optional<CpuQuota> cpu_quota(const fs::path& root, const fs::path& membership) {
  std::optional<CpuQuota> least;
  for (const Hierarchy& hierarchy : hierarchies(root, membership)) {
    // Within a container the path may be the host's, of which only the end, or nothing, is mounted.
    for (fs::path group = hierarchy.group;; group = group.parent_path()) {
      const fs::path folder = hierarchy.mount / group;
      if (const auto cores = quota_of(folder); cores && (!least || *cores < least->cores))
        least = {*cores, number_of(folder)};
      if (group.empty() || group == group.parent_path()) break;
    }
  }
  return least;
}

}  // namespace lockstep::comm
