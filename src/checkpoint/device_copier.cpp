#include "checkpoint/device_copier.hpp"

#include <algorithm>
#include <exception>

#include "checkpoint/stream_copy.hpp"
#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t block_size = std::size_t{8} << 20;

}  // namespace

DeviceCopier::DeviceCopier(Device device)
    : stream_(device),
      blocks_{Block{Storage::allocate_pinned(block_size), Event(device), {}},
              Block{Storage::allocate_pinned(block_size), Event(device), {}}} {}

DeviceCopier::~DeviceCopier() {
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
  DeviceRuntime& runtime = device_runtime(stream_.ref().device.type);
  for (auto& block : blocks_) block.to = {};  // of a copy that threw
  for (std::size_t number = 0; !to.empty(); ++number) {
    Block& block = blocks_[number % blocks_.size()];
    empty(block);
    block.to = to.first(std::min(to.size(), block_size));
    runtime.copy(block.memory->data(), from, block.to.size(), stream_);
    block.filled.record(stream_);
    from += block.to.size();
    to = to.subspan(block.to.size());
  }
  for (Block& block : blocks_) empty(block);
}

}  // namespace lockstep::checkpoint
