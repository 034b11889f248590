#include "kernels/device_watch.hpp"

#include <algorithm>

#include "engine/access_check.hpp"
#include "kernels/kernel_findings.hpp"
#include "kernels/kernel_runner.hpp"
#include "kernels/watching.hpp"
#include "memory/address_space.hpp"

namespace simgpu {

void DeviceWatch::begin(const std::vector<const void*>& pointers) {
  blocks_.clear();
  last_ = 0;
  traffic_ = {};
  for (const void* pointer : pointers) {
    const LiveRange range = find_live_range(pointer);
    const bool known = std::any_of(blocks_.begin(), blocks_.end(), [&](const Watched& watched) {
      return watched.block.begin == range.begin;
    });
    if (range.begin != range.end && !known) blocks_.push_back({range, {}, {}});
  }
}

DeviceWatch::Watched* DeviceWatch::search(std::uintptr_t address, unsigned bytes) {
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    if (blocks_[i].block.holds(address, bytes)) {
      last_ = i;
      return &blocks_[i];
    }
  return nullptr;
}

void DeviceWatch::refuse(std::uintptr_t address, unsigned bytes, bool writes) {
  const WatchScope off(nullptr);
  const Access access{reinterpret_cast<const void*>(address), bytes, writes};
  const unsigned thread = kernel_runner().scheduler().current();
  if (const auto problem = problem_of(access))
    found(problem->finding, thread, problem->text);
  else
    found(Finding::out_of_bounds, thread,
          std::string(writes ? "writes " : "reads ") + std::to_string(bytes) +
              " bytes of memory that no argument of the launch points to: " +
              describe_address(access.data));
  if (writes && is_writable(access.data, bytes)) set_initialized(access.data, bytes);
}

std::vector<Access> DeviceWatch::finish() {
  std::vector<Access> accesses;
  const auto add = [&](const Hull& hull, TouchMap& map, bool writes) {
    std::uint64_t& bytes = writes ? traffic_.distinct_written : traffic_.distinct_read;
    for (const AddressRange& range : map.take(hull.range, &bytes))
      accesses.push_back(
          {reinterpret_cast<const void*>(range.begin), range.end - range.begin, writes});
  };
  for (const Watched& block : blocks_) {
    add(block.read, read_, false);
    add(block.written, written_, true);
  }
  return accesses;
}

}  // namespace simgpu
