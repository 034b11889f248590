#include "checkpoint/later_copies.hpp"

#include <algorithm>
#include <utility>

#include "checkpoint/stream_copy.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/memory/memory_pool.hpp"
#include "lockstep/memory/memory_tag.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/stream.hpp"
#include "runtime/background_failure.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t slice_bytes = std::size_t{4} << 20;  // after which it is told how far it is

/// Bytes of a device that its pool may have and has never handed out at once, but for copies.
/// @param copies bytes of former ones, that may be in the most it handed out.
std::size_t never_had(Device device, std::size_t copies) {
  const MemoryPool& pool = memory_pool(device);
  const PoolStatistics now = pool.statistics();
  const std::size_t free = device_runtime(device.type).memory_info(device.index).first;
  const std::size_t most = std::min(free + now.reserved_bytes, pool.limit());
  const std::size_t peak = now.peak_live_bytes - std::min(now.peak_live_bytes, copies);
  return most - std::min(most, std::max(now.live_bytes, peak));
}

}  // namespace

LaterCopies::~LaterCopies() { finish(); }

DeviceCopier& LaterCopies::copier_of(Device device) {
  const auto found =
      std::ranges::find(devices_, device, [](const auto& each) { return each.first; });
  if (found != devices_.end()) return *found->second;
  return *devices_.emplace_back(device, std::make_unique<DeviceCopier>(device)).second;
}

std::optional<Device> LaterCopies::device() const {
  if (devices_.empty()) return std::nullopt;
  return devices_.front().first;
}

void LaterCopies::add(const Tensor& tensor, std::uint64_t from, std::span<std::byte> to,
                      bool is_pinned) {
  const auto* const data = static_cast<const std::byte*>(tensor.data_ptr()) + from;
  const IntrusivePtr<Storage>& memory = tensor.impl().storage;
  copies_.push_back({memory, data, to,
                     std::unique_ptr<Read>(new Read{memory, BackgroundRead(data, to.size())}),
                     is_pinned});
}

void LaterCopies::copy_within(Device device) {
  std::size_t bytes = 0;
  std::vector<Copy*> copies;
  for (Copy& each : copies_) {
    if (each.memory->device() != device) continue;
    copies.push_back(&each);
    bytes += each.to.size();
  }
  if (static_cast<double>(bytes) > share_ * static_cast<double>(never_had(device, most_within_)))
    return;
  const MemoryTag tag("copies of a save");
  std::vector<IntrusivePtr<Storage>> within;
  try {
    for (const Copy* const each : copies)
      within.push_back(Storage::allocate(each->to.size(), device));
  } catch (const OutOfMemory&) {
    return;
  }
  const StreamRef stream = current_stream(device);
  within_.push_back({Event(device), {}});
  Within& all = within_.back();
  for (std::size_t i = 0; i < copies.size(); ++i) {
    Copy& each = *copies[i];
    device_runtime(device.type).copy(within[i]->data(), each.from, each.to.size(), stream);
    each.memory = std::move(within[i]);
    each.from = static_cast<const std::byte*>(each.memory->data());
    all.originals.push_back(std::move(each.original));
  }
  all.copied.record(stream);
  copied_within_ = true;
  most_within_ = std::max(most_within_, bytes);
}

void LaterCopies::start(Throttle& throttle) {
  failure_ = nullptr;
  copied_within_ = false;
  if (copies_.empty()) return;
  std::vector<Device> devices;
  for (const Copy& each : copies_) {
    const Device device = each.memory->device();
    if (device.is_cpu() || std::ranges::find(devices, device) != devices.end()) continue;
    devices.push_back(device);
    copy_within(device);
    copier_of(device).follow(current_stream(device));
  }
  copied_ = copies_.front().to.data();
  thread_ = std::thread([this, &throttle] {
    run();
    throttle.spend(processor_seconds());
  });
  for (const Device device : devices)
    if (copied_within_) reclaimable_.emplace_back(device, [this] { wait_until_copied(); });
}

void LaterCopies::discard() noexcept {
  copies_.clear();
  within_.clear();
  copied_ = nullptr;
}

void LaterCopies::run() noexcept {
  try {
    for (Within& all : within_) {
      all.copied.synchronize();
      all.originals.clear();
    }
    copy_into_pinned();
    // A copy goes with its tensor and its read: from there on others may write.
    for (Copy& each : copies_) {
      const Copy now = std::move(each);
      copy(now);
    }
    raise_background_failure();  // what was copied may be garbage
  } catch (...) {
    for (const auto& [device, copier] : devices_) copier->drain();
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
  copies_.clear();
  within_.clear();
  reach(nullptr);
}

/// All before others: it takes less time than a step, and nobody may see pages of the host's that a
/// copy is on its way to.
void LaterCopies::copy_into_pinned() {
  for (const Copy& each : copies_)
    if (each.is_pinned) copier_of(each.memory->device()).copy_into_pinned(each.from, each.to);
  for (const auto& [device, copier] : devices_) copier->wait();
  for (Copy& each : copies_)
    if (each.is_pinned)
      each = {.memory = {}, .from = {}, .to = each.to, .original = {}, .is_pinned = true};
}

void LaterCopies::copy(const Copy& each) {
  if (!each.memory) return reach(each.to.data() + each.to.size());  // it is there
  if (!each.memory->device().is_cpu()) {
    copier_of(each.memory->device()).copy(each.from, each.to);
    return reach(each.to.data() + each.to.size());
  }
  for (std::size_t at = 0; at < each.to.size();) {
    const auto slice = each.to.subspan(at, std::min(each.to.size() - at, slice_bytes));
    stream_copy(slice, each.from + at);
    at += slice.size();
    reach(slice.data() + slice.size());
  }
}

void LaterCopies::reach(const std::byte* end) {
  {
    const std::lock_guard lock(mutex_);
    copied_ = end;
  }
  progressed_.notify_all();
}

void LaterCopies::wait_until(const std::byte* end) {
  std::unique_lock lock(mutex_);
  progressed_.wait(lock, [&] { return !copied_ || copied_ >= end; });
  if (failure_) std::rethrow_exception(failure_);
}

void LaterCopies::wait_until_copied() {
  std::unique_lock lock(mutex_);
  progressed_.wait(lock, [&] { return !copied_; });
}

void LaterCopies::finish() {
  if (thread_.joinable()) thread_.join();
  reclaimable_.clear();
}

}  // namespace lockstep::checkpoint
