#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/report.hpp"
#include "kernels/kernel_launch.hpp"
#include "kernels/spin_watch.hpp"
#include "kernels/thread_scheduler.hpp"
#include "memory/fault_handler.hpp"

/// @file
/// What is found wrong in the launch that runs: with its kernel, block and thread, once a kind and
/// launch.

namespace simgpu {

/// The findings that follow are about this launch.
void begin_findings(const KernelLaunch& launch, const ThreadScheduler& scheduler);
void end_findings();

/// True if the launch has no finding of this kind yet; ask before building the text.
bool is_first(Finding finding);
/// Reports, unless the launch has a finding of this kind already.
/// @param what goes on after "kernel softmax, block (0,0,0), thread (3,0,0): ".
void found(Finding finding, unsigned thread, const std::string& what);
/// The same of a block that may have run before.
void found_at(Finding finding, uint3 block, unsigned thread, const std::string& what);

/// A lane called a warp function with a mask that leaves itself out.
void found_lane_outside_mask(unsigned lane, unsigned mask);
/// A shuffle whose source lane did not take part.
void found_absent_source(unsigned thread, unsigned source, unsigned lanes);
/// An array indexed past its end, in a kernel or in the host's code.
void found_index(const std::string& what);
/// An access at an address that is no multiple of `alignment`.
/// @param does "reads 4 bytes". @param place of the kernel's code.
void found_misaligned(const std::string& does, const void* data, std::size_t alignment,
                      const void* place);
/// The running thread touched memory that is not there, and the processor refused it.
void found_fault(const KernelFault& fault);
/// The running thread has no stack left for what it runs.
/// @param ends_process the kernel cannot be ended alone.
void found_stack_overflow(const CallSite& site, bool ends_process);
/// A thread waits at one barrier, the running one comes to another; none if they are one line.
void found_barriers(unsigned waiting, const void* place, const void* other_place);
/// Threads wait and no one is left who could let them go on.
void found_stall();
/// A thread waits for memory to change, and no thread can change it.
/// @param not_begun blocks that cannot begin before one of those that wait ends.
void found_endless_wait(unsigned thread, const Poll& poll, std::uint64_t not_begun,
                        std::uint64_t waiting);
/// All threads that have not left the kernel wait at a barrier: no fault since Volta, but before.
void note_leavers(unsigned left);

/// "(3,0,0)".
std::string text_of(uint3 index);
/// The index of a thread of the launch that runs, by its number in its block.
std::string text_of_thread(unsigned thread);
/// "sum_kernel (kernels/sum.cu:12)" of a place in a kernel's code.
std::string text_of_place(const void* place);
/// "kernel softmax" and by whom it was launched.
std::string running_kernel();
std::string running_site();

}  // namespace simgpu
