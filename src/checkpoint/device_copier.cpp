#include "checkpoint/device_copier.hpp"

#include <algorithm>
#include <exception>

#include "checkpoint/stream_copy.hpp"
#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t block_size = std::size_t{8} << 20;
constexpr std::size_t most_queued_bytes = std::size_t{64} << 20;
constexpr int most_queued = 64;

}  // namespace

void DeviceCopier::drain() noexcept {
  try {
    stream_.synchronize();
  } catch (const std::exception&) {  // the device has failed: it copies nothing any more
  }
}

void DeviceCopier::follow(StreamRef stream) {
  Event now(stream.device);
  now.record(stream);
  now.wait(stream_);
}

void DeviceCopier::empty(Block& block) {
  if (block.to.empty()) return;
  block.filled.synchronize();
  stream_copy(block.to, static_cast<const std::byte*>(block.memory->data()));
  block.to = {};
}

void DeviceCopier::copy(const std::byte* from, std::span<std::byte> to) {
  const Device device = stream_.ref().device;
  DeviceRuntime& runtime = device_runtime(device.type);
  if (!blocks_)
    blocks_ = {Block{Storage::allocate_pinned(block_size), Event(device), {}},
               Block{Storage::allocate_pinned(block_size), Event(device), {}}};
  for (auto& block : *blocks_) block.to = {};  // of a copy that threw
  for (std::size_t number = 0; !to.empty(); ++number) {
    Block& block = (*blocks_)[number % blocks_->size()];
    empty(block);
    block.to = to.first(std::min(to.size(), block_size));
    runtime.copy(block.memory->data(), from, block.to.size(), stream_);
    block.filled.record(stream_);
    from += block.to.size();
    to = to.subspan(block.to.size());
  }
  for (Block& block : *blocks_) empty(block);
}

void DeviceCopier::copy_into_pinned(const std::byte* from, std::span<std::byte> to) {
  DeviceRuntime& runtime = device_runtime(stream_.ref().device.type);
  while (!to.empty()) {
    const auto block = to.first(std::min(to.size(), block_size));
    if (queued_bytes_ + block.size() > most_queued_bytes || queued_ == most_queued) wait();
    runtime.copy(block.data(), from, block.size(), stream_);
    queued_bytes_ += block.size();
    ++queued_;
    from += block.size();
    to = to.subspan(block.size());
  }
}

void DeviceCopier::wait() {
  stream_.synchronize();
  queued_bytes_ = 0;
  queued_ = 0;
}

}  // namespace lockstep::checkpoint
