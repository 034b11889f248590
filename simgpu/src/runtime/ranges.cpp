#include "engine/entry.hpp"
#include "nvtx3/nvToolsExt.h"
#include "profile/profile.hpp"

/// @file
/// NVTX. As in the original, the numbers of ranges count from 0, and are negative where there is
/// none.

namespace {

thread_local int depth = 0;

int push(const char* name) {
  simgpu::profile::begin_range(name ? name : "");
  return depth++;
}

}  // namespace

int nvtxRangePushA(const char* message) { return push(message); }

int nvtxRangePushEx(const nvtxEventAttributes_t* attributes) {
  const bool is_text = attributes && attributes->messageType == NVTX_MESSAGE_TYPE_ASCII;
  return push(is_text ? attributes->message.ascii : nullptr);
}

int nvtxRangePop() {
  if (depth == 0) return -1;
  simgpu::profile::end_range();
  return --depth;
}
