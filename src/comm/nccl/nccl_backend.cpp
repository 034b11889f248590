#include "comm/nccl/nccl_backend.hpp"

#include <cstdlib>
#include <cstring>
#include <exception>

#include "comm/nccl/launch_order.hpp"
#include "comm/nccl/nccl_calls.hpp"
#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep::comm {
namespace {

MemoryBlock* zeroed_scratch(StreamRef stream) {
  MemoryBlock* const block = device_allocator(stream.device).allocate(sizeof(NcclScratch), stream);
  device_runtime(stream.device.type).fill_bytes(block->data, 0, sizeof(NcclScratch), stream);
  return block;
}

}  // namespace

NcclBackend::NcclBackend(IntrusivePtr<NcclGroup> group, std::string name,
                         const CommunicatorOptions& options, ComparisonPtr comparison,
                         GroupMembership membership)
    : CommunicatorBackend(group->rank(), group->size(), std::move(name), options),
      group_(std::move(group)),
      comparison_(options.check_signatures ? std::move(comparison) : nullptr),
      stream_(group_->device(), StreamPriority::high),
      scratch_(zeroed_scratch(stream_)),
      contacts_(rank(), size()),
      longest_timeout_(*options.timeout),
      inquiry_(rank(), size(), membership.hub()),
      membership_(std::move(membership)),
      monitor_([this] { monitor(); }) {
  group_->set_idle_check([this] {
    bool is_idle = false;  // while a step is captured the device is not asked
    StepRecording::unless_any_is_open([&] { is_idle = !is_under_way(); });
    return is_idle;
  });
  membership_.listen(*this);
}

NcclBackend::~NcclBackend() {
  leave();
  device_allocator(device()).deallocate(scratch_);
}

// The communicator's own end is waited for with the last group's: the other ranks may still use it.
void NcclBackend::leave() noexcept {
  std::call_once(left_, [this] {
    call_last();
    const bool is_unwinding = std::uncaught_exceptions() > 0;
    if (is_unwinding && is_under_way()) abort("rank " + std::to_string(rank()) + " is unwinding");
    if (comparison_ && !is_unwinding) comparison_->flush();  // before the others can leave
    drain();  // while the monitor still watches what is under way
    has_left_ = true;
    group_->set_idle_check(nullptr);
    end_captured_steps();
    group_->finish();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    monitor_.join();
    announce_failure();
    if (name() == "world")
      group_->wait_for_endings(is_unwinding ? std::chrono::seconds(1) : options().leave_timeout);
  });
}

// NCCL wants no operation under way while it splits: the exchange of the plan was the last.
std::unique_ptr<CommunicatorBackend> NcclBackend::split(const SplitPlan& plan) {
  GroupMembership membership = membership_.part(plan.name, plan.members);
  auto part = group_->split(plan.color, plan.place, *options().timeout);
  if (!part) return nullptr;
  return std::make_unique<NcclBackend>(std::move(part), plan.name, options(), comparison_,
                                       std::move(membership));
}

void NcclBackend::declare(std::uint64_t subject, const std::string& end) {
  membership_.declare(name(), rank(), size(), subject, end);
}

namespace {

std::string refusal(const Bootstrap&, Device device) {
  return device.is_cuda() ? "" : "it works on GPUs";
}

// NCCL would register what captured collectives use with the network, and takes that back some
// calls after their graph has ended, when its memory may have gone.
void keep_nccl_from_registering_graphs() { setenv("NCCL_GRAPH_REGISTER", "0", 0); }

std::unique_ptr<CommunicatorBackend> make(WorldPlan&& plan) {
  Bootstrap& bootstrap = plan.bootstrap;
  LaunchOrder::ask_nccl_for_it();
  keep_nccl_from_registering_graphs();
  ncclUniqueId id{};
  std::string bytes;
  // An empty id tells the others that rank 0 has none, so that nobody waits for it.
  if (bootstrap.rank() == 0 && ncclGetUniqueId(&id) == ncclSuccess)
    bytes.assign(id.internal, sizeof id.internal);
  bytes = bootstrap.broadcast_bytes(bytes, 0, "unique id of NCCL");
  LOCKSTEP_CHECK(bytes.size() == sizeof id.internal, Unsupported,
                 "rank 0 got no unique id from NCCL: ", ncclGetLastError(nullptr));
  std::memcpy(id.internal, bytes.data(), bytes.size());
  auto group = make_intrusive<NcclGroup>(plan.device, id, bootstrap.rank(), bootstrap.size(),
                                         *plan.options.timeout);
  return std::make_unique<NcclBackend>(std::move(group), "world", plan.options, plan.comparison,
                                       std::move(plan.membership));
}

}  // namespace

const BackendFactory& nccl_backend() {
  static const BackendFactory factory{"nccl", refusal, make};
  return factory;
}

}  // namespace lockstep::comm
