#include "lockstep/autograd/cast_cache.hpp"

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/node.hpp"
#include "lockstep/runtime/stream.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::autograd {
namespace {

/// What is cast while a step is captured is there in its launches alone.
std::uint64_t recording_of_thread() noexcept {
  const StepRecording* const recording = StepRecording::current();
  return recording ? recording->number() : 0;
}

/// The cast of a leaf, and what both were like when it was made.
struct CachedCast {
  Tensor leaf;  // keeps its address from being given to another
  Tensor cast;
  std::uint64_t leaf_stamp = 0, cast_stamp = 0;
  StreamRef stream;
  std::uint64_t recording = 0;

  bool serves(DType dtype, StreamRef current) const {
    return cast.defined() && cast.dtype() == dtype && stream == current &&
           recording == recording_of_thread() && leaf.impl().value_stamp() == leaf_stamp &&
           cast.impl().value_stamp() == cast_stamp;
  }
};

/// Of one thread.
struct CastCache {
  std::unordered_map<const TensorImpl*, CachedCast> casts;
  int scopes = 0;
  bool enabled = false;
};

thread_local CastCache cache;

/// True for parameters, also while they are frozen.
bool is_parameter(const TensorImpl& tensor) {
  return tensor.node && static_cast<const Node&>(*tensor.node).is_leaf();
}

}  // namespace

CastCacheScope::CastCacheScope(bool enabled) noexcept
    : previous_(std::exchange(cache.enabled, enabled)) {
  ++cache.scopes;
}

CastCacheScope::~CastCacheScope() {
  cache.enabled = previous_;
  if (--cache.scopes == 0) cache.casts.clear();
}

bool CastCacheScope::active() noexcept { return cache.enabled; }

Tensor cast_operand(const Tensor& operand, DType dtype) {
  const NoGradGuard no_recording;
  if (!cache.enabled || !is_parameter(operand.impl())) return operand.to(dtype);
  CachedCast& cached = cache.casts[&operand.impl()];
  const StreamRef stream = current_stream(operand.device());
  if (!cached.serves(dtype, stream)) {
    cached = {};  // its memory may serve the next one
    Tensor cast = operand.to(dtype);
    const std::uint64_t made = cast.impl().value_stamp();
    cached = {operand, std::move(cast), operand.impl().value_stamp(),
              made,    stream,          recording_of_thread()};
  }
  // An alias: what an op makes of its operand must not change what the next one is given.
  return cached.cast.detach();
}

}  // namespace lockstep::autograd
