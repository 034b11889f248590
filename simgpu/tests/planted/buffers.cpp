#include "lockstep/tensor/factories.hpp"
#include "planted/programs.hpp"
#include "planted/ranks.hpp"
#include "planted/switch.hpp"

/// @file
/// Buffers of collectives that do not lie as they must.

namespace planted {
namespace {

using namespace lockstep;

constexpr std::int64_t count = 64;

Tensor ones_on(const CommunicatorPtr& group, std::int64_t elements) {
  return ones({elements}, {.dtype = DType::f32, .device = group->device()});
}

/// Sums values that lie behind a header of one element.
void reduce_behind_header(const CommunicatorPtr& group, std::size_t header_bytes) {
  const Tensor message = ones_on(group, count + 1);
  group->all_reduce({static_cast<char*>(message.data_ptr()) + header_bytes, count, DType::f32})
      .wait();
  synchronize(current_stream(group->device()));
}

/// Gathers all ranks' values to where the own ones lie already: in place, if that is where they
/// belong.
void gather_in_place(const CommunicatorPtr& group, int place) {
  const Tensor all = ones_on(group, group->size() * count);
  group
      ->all_gather({all.data<float>() + place * count, count, DType::f32},
                   {all.data_ptr(), all.numel(), DType::f32})
      .wait();
  synchronize(current_stream(group->device()));
}

}  // namespace

void odd_collective_address() {
  const std::size_t header_bytes = is_planted("odd-collective-address") ? 2 : sizeof(float);
  run_ranks(2, [=](const CommunicatorPtr& group) { reduce_behind_header(group, header_bytes); });
}

// The check that refuses such a call is left out.
void gather_out_of_place() {
  const bool planted = is_planted("gather-out-of-place");
  run_ranks(2, [=](const CommunicatorPtr& group) {
    gather_in_place(group, planted ? 0 : group->rank());
  });
}

}  // namespace planted
