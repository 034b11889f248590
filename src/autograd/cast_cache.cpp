#include "lockstep/autograd/cast_cache.hpp"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "backend/backend.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/node.hpp"
#include "lockstep/core/thread_kept.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
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

  CachedCast() = default;
  CachedCast(const Tensor& of, const Tensor& made, StreamRef on)
      : leaf(of),
        cast(made),
        leaf_stamp(of.impl().value_stamp()),
        cast_stamp(made.impl().value_stamp()),
        stream(on),
        recording(recording_of_thread()) {}

  bool serves(DType dtype, StreamRef current) const {
    return cast.defined() && cast.dtype() == dtype && stream == current &&
           recording == recording_of_thread() && leaf.impl().value_stamp() == leaf_stamp &&
           cast.impl().value_stamp() == cast_stamp;
  }
};

struct CastCache {
  std::unordered_map<const TensorImpl*, CachedCast> casts;
  std::vector<Tensor> together;  // are cast with the first of them that is used in that dtype
  DType together_dtype = DType::bf16;
};

constinit thread_local int scopes = 0;
constinit thread_local bool is_enabled = false;

CastCache& cache_of_thread() {
  static thread_local lockstep::detail::KeptByThread<CastCache> kept;
  return kept.get();
}

/// True for parameters, also while they are frozen.
bool is_parameter(const TensorImpl& tensor) {
  return tensor.node && static_cast<const Node&>(*tensor.node).is_leaf();
}

/// Casts those of the leaves by one launch that no collective still writes.
void cast_now(std::span<const Tensor> leaves, DType dtype) {
  const Device device = leaves[0].device();
  const StreamRef stream = current_stream(device);
  auto& casts = cache_of_thread().casts;
  std::vector<ArrayView> outs, ins;
  std::vector<std::pair<Tensor, Tensor>> made;
  for (const Tensor& leaf : leaves) {
    const bool is_meant = is_parameter(leaf.impl()) && leaf.dtype() == DType::f32 &&
                          leaf.device() == device && leaf.is_contiguous() &&
                          !leaf.impl().storage->gate();
    if (!is_meant || casts[&leaf.impl()].serves(dtype, stream)) continue;
    const Tensor cast = empty(leaf.shape(), {dtype, device});
    ins.push_back(leaf.view());
    outs.push_back(cast.view());
    made.emplace_back(leaf, cast);
  }
  backend::of(device).multi_tensor.round({.outs = outs, .ins = ins}, stream);
  for (const auto& [leaf, cast] : made)  // none of them serves before it is written
    casts[&leaf.impl()] = CachedCast(leaf, cast, stream);
}

bool is_cast_together(const CastCache& cache, const Tensor& operand, DType dtype) {
  return dtype == cache.together_dtype &&
         std::ranges::any_of(cache.together, [&](const Tensor& t) { return t.is_same(operand); });
}

}  // namespace

CastCacheScope::CastCacheScope(bool enabled) noexcept
    : previous_(std::exchange(is_enabled, enabled)) {
  ++scopes;
}

CastCacheScope::~CastCacheScope() {
  is_enabled = previous_;
  if (--scopes > 0) return;
  CastCache& cache = cache_of_thread();
  cache.casts.clear();
  cache.together.clear();
}

bool CastCacheScope::active() noexcept { return is_enabled; }

Tensor cast_operand(const Tensor& operand, DType dtype) {
  const NoGradGuard no_recording;
  if (!is_enabled || !is_parameter(operand.impl())) return operand.to(dtype);
  CastCache& cache = cache_of_thread();
  if (is_cast_together(cache, operand, dtype)) cast_now(std::exchange(cache.together, {}), dtype);
  CachedCast& cached = cache.casts[&operand.impl()];
  const StreamRef stream = current_stream(operand.device());
  if (!cached.serves(dtype, stream)) {
    cached = {};  // its memory may serve the next one
    cached = CachedCast(operand, operand.to(dtype), stream);
  }
  // An alias: what an op makes of its operand must not change what the next one is given.
  return cached.cast.detach();
}

void cast_together(std::span<const Tensor> leaves, DType dtype) {
  if (!is_enabled) return;
  CastCache& cache = cache_of_thread();
  cache.together.assign(leaves.begin(), leaves.end());
  cache.together_dtype = dtype;
}

std::vector<Tensor> cast_among(std::span<const Tensor> tensors) {
  std::vector<Tensor> found;
  const CastCache& cache = cache_of_thread();
  for (const Tensor& tensor : tensors) {
    const auto cached = cache.casts.find(&tensor.impl());
    if (cached != cache.casts.end() && cached->second.cast.defined()) found.push_back(tensor);
  }
  return found;
}

}  // namespace lockstep::autograd
