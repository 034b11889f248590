#include "kernels/device_watch.hpp"

#include <algorithm>

#include "engine/access_check.hpp"
#include "kernels/kernel_findings.hpp"
#include "kernels/kernel_runner.hpp"
#include "kernels/watching.hpp"
#include "memory/address_space.hpp"
#include "memory/allocations.hpp"
#include "memory/peer_access.hpp"

namespace simgpu {
namespace {

bool has_memory(const Access& access) {
  const Allocations& allocations = Allocations::instance();
  const auto* const data = static_cast<const std::byte*>(access.data);
  return allocations.find(data) && allocations.find(data + access.bytes - 1);
}

}  // namespace

void DeviceWatch::begin(const KernelLaunch& launch) {
  blocks_.clear();
  strange_.clear();
  last_ = 0;
  traffic_ = {};
  device_ = launch.device;
  races_.begin_launch(launch);
  for (const KernelLaunch::Pointer& pointer : launch.pointers) {
    const LiveRange range = find_live_range(pointer.data);
    if (range.begin == range.end || !can_reach(device_, pointer.data)) continue;
    const auto known = std::find_if(blocks_.begin(), blocks_.end(), [&](const Watched& watched) {
      return watched.block.begin == range.begin;
    });
    if (known != blocks_.end())
      known->touched.may_be_written |= pointer.may_write && known->touched.is_followed;
    else
      blocks_.push_back(
          {range, {}, {}, races_.begin_memory(blocks_.size(), range, pointer.may_write)});
  }
}

DeviceWatch::Watched* DeviceWatch::search(std::uintptr_t address, unsigned bytes) {
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    if (blocks_[i].block.holds(address, bytes)) {
      last_ = i;
      return &blocks_[i];
    }
  return follow(address, bytes);
}

/// A block of which the launch knows by a pointer in its memory, such as of a list of arrays, is
/// one of its own from the first access on.
DeviceWatch::Watched* DeviceWatch::follow(std::uintptr_t address, unsigned bytes) {
  const WatchScope off(nullptr);
  const auto* const data = reinterpret_cast<const void*>(address);
  const LiveRange block = find_live_range(data);
  if (!block.holds(address, bytes) || !can_reach(device_, data)) return nullptr;
  if (std::find(strange_.begin(), strange_.end(), block.begin) != strange_.end()) return nullptr;
  if (!leads_to(block)) {
    strange_.push_back(block.begin);
    return nullptr;
  }
  last_ = blocks_.size();
  blocks_.push_back({block, {}, {}, races_.begin_memory(last_, block, true)});
  return &blocks_.back();
}

/// Looks through the small ones first, which lists are, and of each one up to 256 MiB.
bool DeviceWatch::leads_to(const LiveRange& block) const {
  constexpr std::uintptr_t small = std::uintptr_t{1} << 16, most = std::uintptr_t{1} << 28;
  const auto is_in = [&](std::uintptr_t at, std::uintptr_t end) {
    for (; at + sizeof(std::uintptr_t) <= end; at += sizeof(std::uintptr_t))
      if (const auto word = *reinterpret_cast<const std::uintptr_t*>(at);
          word >= block.begin && word <= block.end)  // also past its end
        return true;
    return false;
  };
  const auto any_is_in = [&](bool wants_small) {
    return std::any_of(blocks_.begin(), blocks_.end(), [&](const Watched& watched) {
      const auto [begin, end] = watched.block;
      return (end - begin <= small) == wants_small &&
             is_in((begin + 7) & ~std::uintptr_t{7}, std::min(end, begin + most));
    });
  };
  return any_is_in(true) || any_is_in(false);
}

void DeviceWatch::refuse(std::uintptr_t address, unsigned bytes, bool writes) {
  if (!report_refused({reinterpret_cast<const void*>(address), bytes, writes}))
    kernel_runner().stop(cudaErrorIllegalAddress);
}

/// @return false if the device cannot make the access, which ends a kernel. In memory of others,
/// and in guards, it goes on as on a GPU, whose pages are large.
bool DeviceWatch::report_refused(const Access& access) const {
  const WatchScope off(nullptr);
  const bool can_go_on = has_memory(access) && can_reach(device_, access.data);
  const std::string end =
      can_go_on ? "" : "\n  the kernel ends here, and all later calls with cudaErrorIllegalAddress";
  const unsigned thread = kernel_runner().scheduler().current();
  const std::string does = std::string(access.writes ? "writes " : "reads ") +
                           std::to_string(access.bytes) + " bytes of memory that ";
  if (const auto problem = problem_of(access))
    found(problem->finding, thread, problem->text + end);
  else if (!can_go_on)
    found(Finding::peer_access, thread,
          does + "device " + std::to_string(device_) +
              " has no access to (cudaDeviceEnablePeerAccess): " + describe_address(access.data) +
              end);
  else
    found(Finding::out_of_bounds, thread,
          does + "no argument of the launch leads to: " + describe_address(access.data));
  const auto bytes = static_cast<unsigned>(access.bytes);
  if (access.writes && is_writable(access.data, bytes)) set_initialized(access.data, bytes);
  return can_go_on;
}

std::vector<Access> DeviceWatch::finish() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) races_.end_memory(i, blocks_[i].touched);
  races_.end_launch();
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
