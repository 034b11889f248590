#include "kernels/kernel_runner.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/options.hpp"
#include "kernels/builtins.hpp"
#include "kernels/kernel_findings.hpp"
#include "kernels/shared_variables.hpp"
#include "kernels/watching.hpp"
#include "memory/address_space.hpp"
#include "profile/profile.hpp"

namespace simgpu {

namespace {

/// What the checks have not stopped, or not seen, the processor refuses.
constexpr KernelFaultHandler fault_handler{
    .runs_kernel = [] { return polled != nullptr; },
    .is_below_stack =
        [](const void* address) {
          return kernel_runner().scheduler().fibers().is_below_stack(
              reinterpret_cast<std::uintptr_t>(address));
        },
    .end =
        [](const KernelFault& fault) {
          fault.overflow ? found_stack_overflow(*fault.overflow, fault.in_c_library)
                         : found_fault(fault);
          // A lock of the library's would never be given back.
          if (fault.overflow && fault.in_c_library) std::_Exit(EXIT_FAILURE);
          kernel_runner().stop(fault.overflow ? cudaErrorHardwareStackError
                                              : cudaErrorIllegalAddress);
        }};

}  // namespace

KernelRunner::KernelRunner() { handle_kernel_faults(fault_handler); }

KernelRunner& kernel_runner() {
  static KernelRunner* const instance = new KernelRunner;  // outlives whatever still runs at exit
  return *instance;
}

namespace {

std::uint64_t blocks_to_run(std::uint64_t blocks) {
  constexpr std::uint64_t sampled = 8;
  switch (options().execute) {
    case Execute::all: return blocks;
    case Execute::sample: return std::min(blocks, sampled);
    case Execute::none: return 0;
  }
  return blocks;
}

}  // namespace

profile::Fields KernelRunner::measured() const {
  profile::Fields fields;
  fields.add("blocks_run", blocks_run_);
  if (blocks_run_ == 0 || !options().watch_kernels) return fields;
  const auto add = [&](const char* name, std::uint64_t count, std::uint64_t of_blocks) {
    const double scale = double(launch_->shape.blocks()) / double(of_blocks);
    fields.add(name, std::llround(double(count) * scale));
  };
  const DeviceTraffic& traffic = device_watch_.traffic();
  add("read_bytes", traffic.read, blocks_run_);
  add("write_bytes", traffic.written, blocks_run_);
  add("read_distinct", traffic.distinct_read, blocks_run_);
  add("write_distinct", traffic.distinct_written, blocks_run_);
  if (requests_.blocks() == 0) return fields;
  const RequestCounts& requests = requests_.counts();
  add("requests", requests.requests, requests_.blocks());
  add("sectors", requests.sectors, requests_.blocks());
  add("ideal_sectors", requests.ideal_sectors, requests_.blocks());
  add("shared_requests", requests.ideal_shared_wavefronts, requests_.blocks());
  add("shared_wavefronts", requests.shared_wavefronts, requests_.blocks());
  add("atomics", requests.atomics, requests_.blocks());
  return fields;
}

std::vector<Access> KernelRunner::run(const KernelLaunch& launch) {
  launch_ = &launch;
  error_ = cudaSuccess;
  block_extent = launch.shape.block;
  grid_extent = launch.shape.grid;
  order_.emplace(launch.shape.blocks(), launch.seed);
  blocks_run_ = blocks_to_run(launch.shape.blocks());
  order_->limit(blocks_run_);
  const bool watched = options().watch_kernels;
  if (watched) prepare_watch(launch);
  requests_.begin_launch(watched && profile::is_on());
  spins_.begin_launch();
  rounds_in_vain_ = 0;
  waits_for_host_since_.reset();
  begin_findings(launch, scheduler_);
  {
    const WatchScope scope(watched ? this : nullptr, this);
    scheduler_.run(launch.thread, launch.shape.block, *this);
  }
  requests_.end_launch();
  std::vector<Access> touched = watched ? device_watch_.finish() : std::vector<Access>{};
  // What was reported as an access is not to be found as damage again.
  if (!is_first(Finding::out_of_bounds)) mend_guards();
  end_findings();
  return touched;
}

void KernelRunner::stop(cudaError_t error) {
  error_ = error;
  barrier_.forget();
  left_.clear();
  scheduler_.abandon();
}

void KernelRunner::prepare_watch(const KernelLaunch& launch) {
  begin_epochs();
  device_watch_.begin(launch);
  module_ = module_of(launch.kernel);
  static_watch_.watch(module_.own_begin, module_.own_bytes);
  dynamic_watch_.watch(dynamic_.begin(), launch.shape.shared_bytes);
}

/// Those of all launches are told apart, until there are too many.
void KernelRunner::begin_epochs() {
  if (time_.epoch > AccessStamp::last_epoch / 2) {
    time_.epoch = 1;
    device_watch_.races().forget();
    static_watch_.forget();
    dynamic_watch_.forget();
  }
  time_.launch_start = time_.epoch + 1;
}

bool KernelRunner::next_block() {
  static_watch_.end_block();
  dynamic_watch_.end_block();
  std::uint64_t block = 0;
  if (!order_->next(block)) {
    if (left_.empty()) return false;
    go_on();
    return true;
  }
  const dim3& grid = launch_->shape.grid;
  block_index = {static_cast<unsigned>(block % grid.x),
                 static_cast<unsigned>(block / grid.x % grid.y),
                 static_cast<unsigned>(block / grid.x / grid.y)};
  dynamic_.start_block(launch_->shape.shared_bytes);
  collectives_.start_block();
  shared_start_ = time_.block_start = ++time_.epoch;
  if (watching) device_watch_.races().begin_block(block_index);
  requests_.begin_block();
  scheduler_.start_block();
  return true;
}

Ballot KernelRunner::block_barrier(bool predicate, const void* place) {
  return barrier_.arrive(predicate, place, [this] { ++time_.epoch; });
}

void KernelRunner::warp_barrier(unsigned mask) {
  collectives_.join(mask, {});
  if (watching) device_watch_.races().warp_barrier();
}

/// Since Volta a barrier waits for those threads of the block that have not left (CUDA C++
/// Programming Guide, compute capability 7.x, independent thread scheduling).
void KernelRunner::resolve_stall() {
  if (end_meetings()) return;
  if (barrier_.waiting() > 0 && barrier_.waiting() + scheduler_.left() == scheduler_.threads()) {
    note_leavers(scheduler_.left());
    ++time_.epoch;
    barrier_.let_waiting_go();
    return;
  }
  found_stall();
  if (!collectives_.let_waiting_go()) barrier_.let_waiting_go();
}

SharedTime KernelRunner::now() {
  const unsigned thread = scheduler_.current();
  return {time_.epoch, static_cast<std::uint16_t>(thread), collectives_.completed(thread)};
}

/// Arguments that a kernel takes by reference lie where the launch has copied them.
bool KernelRunner::is_argument(std::uintptr_t address, AccessKind kind) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(launch_->thread.arguments.get());
  return kind == AccessKind::read && address - begin < launch_->argument_bytes;
}

void KernelRunner::access_host_side(const MemoryAccess& access) {
  if (scheduler_.fibers().is_stack(access.address) || is_argument(access.address, access.kind))
    return;
  if (!watch_host_side(access)) stop(cudaErrorIllegalAddress);
}

bool KernelRunner::watch_host_side(const MemoryAccess& access) {
  const WatchScope off(nullptr, this);
  if (static_watch_.holds(access.address)) {
    access_shared(static_watch_, access);
  } else if (dynamic_watch_.holds(access.address) &&
             dynamic_watch_.holds(access.address + access.bytes - 1)) {
    access_shared(dynamic_watch_, access);
  } else {
    return access_elsewhere(access.address, access.bytes, access.kind);
  }
  return true;
}

void KernelRunner::access_shared(SharedWatch& watch, const MemoryAccess& access) {
  if (requests_.are_noted()) requests_.note_shared(scheduler_.current(), access);
  watch.access(access.address, access.bytes, access.kind, now(), shared_start_);
}

/// Constants of the program are fine; the host's memory is not, and a device cannot reach it.
bool KernelRunner::access_elsewhere(std::uintptr_t address, unsigned bytes, AccessKind kind) {
  const char* const does = kind == AccessKind::read ? "reads " : "writes ";
  const unsigned thread = scheduler_.current();
  if (dynamic_.is_outside(address)) {
    found(Finding::shared_memory_bounds, thread,
          does + std::to_string(bytes) + " bytes at offset " +
              std::to_string(static_cast<std::ptrdiff_t>(address - dynamic_.begin())) + " of the " +
              std::to_string(dynamic_.bytes()) + " bytes of dynamic shared memory");
  } else if (!module_.holds(address)) {
    // A library's own thread variables come into being when they are first used.
    module_ = module_of(launch_->kernel);
    static_watch_.watch(module_.own_begin, module_.own_bytes);
    if (static_watch_.holds(address)) return true;
    char where[24];
    std::snprintf(where, sizeof where, "0x%zx", static_cast<std::size_t>(address));
    found(Finding::out_of_bounds, thread,
          does + std::to_string(bytes) + " bytes at " + where +
              ", which is neither device nor pinned memory\n  the kernel ends here, and all later "
              "calls with cudaErrorIllegalAddress");
    return false;
  }
  return true;
}

std::string KernelRunner::describe_shared(std::uintptr_t address) const {
  if (dynamic_watch_.holds(address))
    return "byte " + std::to_string(address - dynamic_watch_.begin()) +
           " of the dynamic shared memory";
  if (const auto variable = shared_variable_at(module_, address))
    return "byte " + std::to_string(variable->offset) + " of '" + variable->name + "' (" +
           std::to_string(variable->bytes) + " bytes of shared memory)";
  return "byte " + std::to_string(address - static_watch_.begin()) + " of the static shared memory";
}

}  // namespace simgpu
