#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// @file
/// What the environment asks of the simulated GPU.

namespace simgpu {

/// When operations run, within what streams and events allow.
enum class Order : unsigned char {
  random,  ///< durations drawn from the seed
  early,   ///< at once, in the order of the calls
  late,    ///< only when something waits for them
};

/// How accesses of the host to device memory, and to pinned memory in use, are caught.
enum class HostWatch : unsigned char {
  keys,   ///< memory protection keys: each access
  pages,  ///< the protection of pages: each access while the device does not work
  off
};

/// How much of the work is done; without all of it values mean nothing.
enum class Execute : unsigned char {
  all,
  sample,  ///< some blocks of each kernel, and of what libraries compute nothing
  none     ///< nothing but what the host wrote or will read is copied
};

/// The environment variables, read once.
struct Options {
  /// LOCKSTEP_SIM_DEVICES, 0 to 16; by default one for each rank that a launcher started on this
  /// host.
  int devices = 1;
  std::size_t memory = std::size_t{8} << 30;  ///< LOCKSTEP_SIM_MEMORY, bytes of each device
  std::uint64_t seed = 0;                     ///< LOCKSTEP_SIM_SEED
  Order order = Order::random;                ///< LOCKSTEP_SIM_ORDER=random|early|late
  bool abort_on_finding = false;              ///< LOCKSTEP_SIM_ON_FINDING=report|abort
  bool report_leaks = false;                  ///< LOCKSTEP_SIM_LEAKS=1
  bool host_threads_apart = false;            ///< LOCKSTEP_SIM_HOST_THREADS=together|apart
  /// LOCKSTEP_SIM_HOST_WATCH=keys|pages|off. Keys where the machine has them, else pages.
  HostWatch host_watch = HostWatch::keys;
  bool watch_kernels = true;  ///< LOCKSTEP_SIM_WATCH=0: accesses go unchecked
  bool notes = false;         ///< LOCKSTEP_SIM_NOTES=1: what is no fault is told as well
  /// LOCKSTEP_SIM_KEEP: parts of functions' names, separated by semicolons. What they make, they
  /// keep for the life of the process: no leak.
  std::string keepers;
  bool host_waits = false;  ///< LOCKSTEP_SIM_HOST_WAITS=1: told at the end of the process
  std::string coverage;     ///< LOCKSTEP_SIM_COVERAGE: a file for what the program reached, or none
  std::string profile;  ///< LOCKSTEP_SIM_PROFILE: a file for what devices were asked for, or none
  Execute execute = Execute::all;  ///< LOCKSTEP_SIM_EXECUTE=all|sample|none
  std::string faults;              ///< LOCKSTEP_SIM_FAULT, see simgpu/simgpu.hpp

  /// @throws std::invalid_argument for a value that means nothing, with what would be right.
  static Options from_environment();
};

/// The options of this process. A variable that means nothing ends the process with a message.
const Options& options();

}  // namespace simgpu
