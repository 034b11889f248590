#include "kernels/kernel_findings.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/options.hpp"
#include "base/symbols.hpp"
#include "kernels/builtins.hpp"
#include "kernels/kernel_runner.hpp"
#include "kernels/warp_collectives.hpp"
#include "kernels/watching.hpp"
#include "memory/address_space.hpp"

namespace simgpu {
namespace {

// Of the thread that runs kernels; others have none.
thread_local const KernelLaunch* running = nullptr;
thread_local const ThreadScheduler* threads = nullptr;
thread_local std::uint32_t kinds_seen = 0;

std::string hex(unsigned value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

/// Whether debug information knows the line.
bool has_line(const void* place) {
  const std::vector<Symbol> symbols = symbols_of(static_cast<const char*>(place) - 1);
  return std::ranges::any_of(symbols, [](const Symbol& each) { return each.line > 0; });
}

}  // namespace

void begin_findings(const KernelLaunch& launch, const ThreadScheduler& scheduler) {
  running = &launch;
  threads = &scheduler;
  kinds_seen = 0;
}

void end_findings() { running = nullptr; }

bool is_first(Finding finding) { return !(kinds_seen >> static_cast<unsigned>(finding) & 1); }

void found(Finding finding, unsigned thread, const std::string& what) {
  found_at(finding, block_index, thread, what);
}

void found_at(Finding finding, uint3 block, unsigned thread, const std::string& what) {
  if (!is_first(finding)) return;
  const WatchScope off(nullptr);
  kinds_seen |= 1u << static_cast<unsigned>(finding);
  // Once for each place of a launch, whichever block and thread it strikes: the same text is
  // counted, but not printed again.
  // Kernels may run while the process ends: it is never destroyed.
  static auto& first_texts =
      *new std::map<std::tuple<Finding, const void*, std::string>, std::string>;
  std::string site = running_site();
  std::string& text = first_texts[{finding, running->kernel, site}];
  if (text.empty())
    text = running_kernel() + ", block " + text_of(block) + ", thread " + text_of_thread(thread) +
           ": " + what + "\n" + site;
  report(finding, text);
}

void note_leavers(unsigned left) {
  if (!options().notes || !is_first(Finding::barrier_divergence)) return;
  const WatchScope off(nullptr);
  note(running_kernel() + ", block " + text_of(block_index) + ": a barrier is passed although " +
       std::to_string(left) + " threads have left, which devices before Volta do not do\n" +
       running_site());
}

void found_lane_outside_mask(unsigned lane, unsigned mask) {
  const WatchScope off(nullptr);
  found(Finding::barrier_divergence, threads->current(),
        "calls a warp function with the mask " + hex(mask) + ", which does not hold its own lane " +
            std::to_string(lane));
}

void found_absent_source(unsigned thread, unsigned source, unsigned lanes) {
  const WatchScope off(nullptr);
  found(Finding::barrier_divergence, thread,
        "a shuffle reads lane " + std::to_string(source) + ", which is not among the lanes " +
            hex(lanes) + " that take part");
}

void found_misaligned(const std::string& does, const void* data, std::size_t alignment,
                      const void* place) {
  char where[24];
  std::snprintf(where, sizeof where, "%p", data);
  found(Finding::misaligned, threads->current(),
        does + " at " + where + ", which is no multiple of " + std::to_string(alignment) +
            "\n      at " + text_of_place(place) +
            "\n  the kernel ends here, and all later calls with cudaErrorMisalignedAddress");
}

void found_fault(const KernelFault& fault) {
  const WatchScope off(nullptr);
  char where[24];
  std::snprintf(where, sizeof where, "%p", fault.address);
  const std::string what =
      !fault.address
          ? "uses an address that is not aligned, or that no memory can have"
          : std::string(fault.writes ? "writes to " : "reads ") +
                (is_tracked(fault.address) ? describe_address(fault.address)
                                           : where + std::string(", where no memory is"));
  found(Finding::out_of_bounds, threads->current(),
        what + "\n      at " + text_of_place(fault.place) +
            "\n  the kernel ends here, and all later calls with cudaErrorIllegalAddress");
}

void found_stack_overflow(const CallSite& site, bool ends_process) {
  const WatchScope off(nullptr);
  found(
      Finding::stack_overflow, threads->current(),
      "needs more than its stack of " + std::to_string(FiberPool::stack_kib) + " KiB\n      at " +
          describe(site) +
          "\n  a GPU's thread has 512 KiB at most, and for recursion cudaLimitStackSize, 1 KiB by "
          "default\n  " +
          (ends_process ? "the process ends here, within a function of the C library"
                        : "the kernel ends here, and all later calls with "
                          "cudaErrorHardwareStackError"));
}

void found_barriers(unsigned waiting, const void* place, const void* other_place) {
  if (!is_first(Finding::barrier_divergence)) return;
  const WatchScope off(nullptr);
  // The compiler makes copies of a barrier, which lines alone tell from two: without them nothing
  // is known. Never destroyed, for kernels that run at exit.
  static auto& alike = *new std::set<std::pair<const void*, const void*>>;
  if (alike.count({place, other_place}) != 0) return;
  const std::string one = text_of_place(place), other = text_of_place(other_place);
  if (one == other || !has_line(place) || !has_line(other_place)) {
    alike.insert({place, other_place});
    return;
  }
  found(Finding::barrier_divergence, threads->current(),
        "comes to the barrier at " + other + "\n  while thread " + text_of_thread(waiting) +
            " waits at the one at " + one + "\n  all threads of a block must come to the same one");
}

void found_index(const std::string& what) {
  if (running)
    found(Finding::index_bounds, threads->current(), what);
  else
    report(Finding::out_of_bounds, what);
}

namespace {

/// Threads in one state: how many, and the first of them.
struct Group {
  unsigned count = 0;
  unsigned first = 0;

  void add(unsigned thread) {
    if (count++ == 0) first = thread;
  }
  std::string text(const char* does) const {
    if (count == 0) return "";
    return ", " + std::to_string(count) + " " + does + " (such as " +
           text_of(threads->index_of(first)) + ")";
  }
};

}  // namespace

void found_stall() {
  if (!is_first(Finding::barrier_divergence)) return;
  const WatchScope off(nullptr);
  Group at_barrier, at_warp_collective, left;
  for (unsigned thread = 0; thread < threads->threads(); ++thread) {
    const ThreadState state = threads->state(thread);
    (state == ThreadState::at_barrier           ? at_barrier
     : state == ThreadState::at_warp_collective ? at_warp_collective
                                                : left)
        .add(thread);
  }
  const bool barrier = at_barrier.count != 0;
  found(Finding::barrier_divergence, barrier ? at_barrier.first : at_warp_collective.first,
        std::string("waits at a ") + (barrier ? "barrier" : "shuffle, vote or __syncwarp") +
            " that not all threads reach: of " + std::to_string(threads->threads()) + " threads" +
            at_barrier.text("wait at __syncthreads").substr(at_barrier.count ? 1 : 0) +
            at_warp_collective.text("wait for lanes of their warp").substr(barrier ? 0 : 1) +
            left.text("have left the kernel"));
}

void found_endless_wait(unsigned thread, const Poll& poll, std::uint64_t not_begun,
                        std::uint64_t waiting) {
  const WatchScope off(nullptr);
  const auto* const data = reinterpret_cast<const void*>(poll.address);
  const std::string memory =
      is_tracked(data) ? describe_address(data) : kernel_runner().describe_shared(poll.address);
  std::string text = "waits for " + std::to_string(poll.bytes) +
                     " bytes to change, and no thread can change them: all that have not left the "
                     "kernel wait, too\n      at " +
                     text_of_place(poll.place) + "\n  memory  " + memory;
  if (not_begun > 0 && options().watch_kernels)
    text += "\n  " + std::to_string(not_begun) + " of the launch's " +
            std::to_string(running->shape.blocks()) +
            " blocks have not begun: the device holds no more than the " + std::to_string(waiting) +
            " that wait, and begins another one when one of them ends";
  else if (not_begun > 0)
    text += "\n  with LOCKSTEP_SIM_WATCH=0 no block begins before the one that runs ends";
  found(Finding::endless_wait, thread,
        text +
            "\n  the kernel ends here, and all later calls with cudaErrorLaunchTimeout; on a GPU "
            "it goes on for ever");
}

std::string text_of_place(const void* place) {
  CallSite site;
  site.frames[1] = const_cast<void*>(place);
  site.count = 2;
  return describe(site);
}

std::string text_of_thread(unsigned thread) { return text_of(threads->index_of(thread)); }

std::string running_kernel() { return "kernel " + running->name; }

std::string running_site() { return "launched by " + describe(running->site); }

std::string text_of(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
         std::to_string(index.z) + ")";
}

}  // namespace simgpu
