#include "comm/staged/staged_buffers.hpp"

#include <numeric>
#include <utility>

#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep::comm::staged {
namespace {

/// Bytes of an operation on one rank.
struct Layout {
  std::size_t input = 0, output = 0;              ///< what is read, what is written
  std::size_t input_begin = 0, output_begin = 0;  ///< where they lie in one block of memory
  std::size_t whole = 0;                          ///< of that block
};

// Parts lie in their places within the whole, as calls in place have them: that saves memory.
Layout layout_of(const Operation& operation, int rank) {
  constexpr std::size_t alignment = 256;
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * size_of(operation.dtype);
  };
  const std::size_t whole = bytes(operation.count);
  const auto own = operation.counts.begin() + rank;
  const auto part = [&] { return bytes(*own); };
  const auto before = [&] {
    return bytes(std::accumulate(operation.counts.begin(), own, std::int64_t{0}));
  };
  const bool is_root = operation.peer == rank;
  switch (operation.kind) {
    case OperationKind::all_reduce: return {.input = whole, .output = whole, .whole = whole};
    case OperationKind::reduce_scatter:
      return {.input = whole, .output = part(), .output_begin = before(), .whole = whole};
    case OperationKind::all_gather:
      return {.input = part(), .output = whole, .input_begin = before(), .whole = whole};
    case OperationKind::broadcast:
      return {.input = is_root ? whole : 0, .output = is_root ? 0 : whole, .whole = whole};
    case OperationKind::all_to_all: {
      const std::size_t output_begin = (whole + alignment - 1) / alignment * alignment;
      return {.input = whole,
              .output = whole,
              .output_begin = output_begin,
              .whole = output_begin + whole};
    }
    case OperationKind::send: return {.input = whole, .whole = whole};
    case OperationKind::receive: return {.output = whole, .whole = whole};
    case OperationKind::barrier: break;
  }
  return {};
}

}  // namespace

StagedBuffers::StagedBuffers(Operation& operation, int rank) {
  const Layout layout = layout_of(operation, rank);
  if (layout.whole == 0) return;
  block_ = pinned_allocator().allocate(layout.whole, {});
  auto* const data = static_cast<std::byte*>(block_->data);
  // The operation's input is read, never written to.
  input_ = {const_cast<std::byte*>(operation.input), data + layout.input_begin, layout.input};
  output_ = {operation.output, data + layout.output_begin, layout.output};
  if (operation.input) operation.input = input_.on_host;
  if (operation.output) operation.output = output_.on_host;
}

StagedBuffers::StagedBuffers(StagedBuffers&& other) noexcept
    : block_(std::exchange(other.block_, nullptr)), input_(other.input_), output_(other.output_) {}

StagedBuffers::~StagedBuffers() {
  if (block_) pinned_allocator().deallocate(block_);
}

void StagedBuffers::copy_in(StreamRef stream) const {
  device_runtime(stream.device.type).copy(input_.on_host, input_.on_device, input_.bytes, stream);
}

void StagedBuffers::copy_back(StreamRef stream) const {
  device_runtime(stream.device.type)
      .copy(output_.on_device, output_.on_host, output_.bytes, stream);
}

void StagedBuffers::note_use(StreamRef stream) noexcept {
  if (!block_) return;
  try {
    pinned_allocator().record_stream(block_, stream);
  } catch (...) {
    block_ = nullptr;  // not given out again: what the device does with it is unknown
  }
}

}  // namespace lockstep::comm::staged
