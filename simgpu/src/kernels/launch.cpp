#include "simgpu/launch.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/coverage.hpp"
#include "base/options.hpp"
#include "base/report.hpp"
#include "base/symbol_table.hpp"
#include "engine/access_check.hpp"
#include "engine/device_variables.hpp"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "engine/operation.hpp"
#include "kernels/argument_scan.hpp"
#include "kernels/kernel_runner.hpp"
#include "kernels/launch_syntax.hpp"
#include "kernels/limits.hpp"
#include "simgpu/simgpu.hpp"

namespace simgpu {
namespace {

thread_local std::optional<std::source_location> launch_location;
std::atomic<std::uint64_t> launch_count{0};

/// The last parts of a path: enough to find the file.
std::string short_path(std::string path) {
  std::size_t slash = path.size();
  for (int parts = 0; parts < 3; ++parts) {
    if (slash == 0) return path;
    slash = path.rfind('/', slash - 1);
    if (slash == std::string::npos) return path;
  }
  return path.substr(slash + 1);
}

/// "softmax_kernel<float> (kernels/cuda/softmax.cu:60)".
std::string launch_name(const void* kernel) {
  std::string name = function_name(kernel);
  if (const auto where = std::exchange(launch_location, std::nullopt))
    name += " (" + short_path(where->file_name()) + ":" + std::to_string(where->line()) + ")";
  return name;
}

/// What a call that holds the kernel and its arguments takes at most, whatever their alignment.
std::size_t bytes_of(std::initializer_list<KernelArgument> arguments) {
  std::size_t bytes = 2 * sizeof(std::max_align_t);
  for (const KernelArgument& each : arguments) bytes += each.size + alignof(std::max_align_t);
  return bytes;
}

/// Launches of a process get different orders of blocks, the same in each run.
std::uint64_t next_seed() {
  std::uint64_t x = options().seed * 0x9E3779B97F4A7C15u + ++launch_count;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// The device of the stream where that is another than the current one, which CUDA refuses.
std::optional<int> other_device_of(cudaStream_t stream) {
  int device = 0;
  if (stream == nullptr || device_of_stream(stream, &device) != cudaSuccess) return std::nullopt;
  return device == current_device() ? std::nullopt : std::optional(device);
}

/// What is known of a launch before it runs. Where nothing will, its bytes are those of the blocks
/// that its arguments point into.
profile::Fields profile_of(const KernelLaunch& launch, const std::vector<Access>& bounds) {
  if (!profile::is_on()) return {};
  const dim3 &grid = launch.shape.grid, &block = launch.shape.block;
  const std::vector<std::string> symbols = mangled_names(launch.kernel);
  profile::Fields fields;
  fields.add("kind", "kernel")
      .add("grid", {grid.x, grid.y, grid.z})
      .add("block", {block.x, block.y, block.z})
      .add("shared", launch.shape.shared_bytes)
      .add("symbol", symbols.empty() ? std::string() : symbols.front());
  if (options().execute != Execute::none) return fields;
  std::size_t read = 0, written = 0;
  for (const Access& access : bounds) (access.writes ? written : read) += access.bytes;
  return fields.add("read_distinct", read).add("write_distinct", written);
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::initializer_list<KernelArgument> arguments, KernelCall thread) {
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  cover_kernel(kernel);
  auto launch = std::make_shared<KernelLaunch>();
  launch->name = launch_name(kernel);
  const auto site = take_launch_site();
  launch->site = site ? *site : CallSite::here();
  launch->kernel = kernel;
  launch->device = current_device();
  launch->shape = {config.gridDim, config.blockDim, config.dynamicSmemBytes};
  if (const auto refusal = refusal_of(launch->shape, kernel)) {
    report(Finding::invalid_launch, "kernel " + launch->name + " is launched with " + refusal->why +
                                        "\nlaunched by " + describe(launch->site));
    return refusal->status;
  }
  if (const auto other = other_device_of(config.stream)) {
    report(Finding::invalid_launch,
           "kernel " + launch->name + " is launched on a stream of device " +
               std::to_string(*other) + " while device " + std::to_string(current_device()) +
               " is current\nlaunched by " + describe(launch->site));
    return cudaErrorInvalidResourceHandle;
  }
  ArgumentScan scan = scan_arguments(arguments);
  launch->thread = std::move(thread);
  launch->argument_bytes = bytes_of(arguments);
  launch->pointers = std::move(scan.pointers);
  launch->seed = next_seed();
  Operation operation;
  operation.profile = profile_of(*launch, scan.accesses);
  operation.name = launch->name;
  operation.site = launch->site;
  operation.accesses = scan.accesses;
  operation.accesses_are_bounds = true;
  operation.run = [launch = std::move(launch), bounds = std::move(scan.accesses),
                   variables = variables_on(current_device())] {
    if (has_sticky_error()) return true;
    std::optional<KernelLaunch> extended;  // until its measures are known
    if (!variables.empty()) {
      refer_to_variables_of(launch->device);
      add_variables(extended.emplace(*launch), variables);
    }
    touched(kernel_runner().run(extended ? *extended : *launch));
    // Garbage leads a kernel anywhere.
    const bool works = options().execute == Execute::all;
    if (works && kernel_runner().error() != cudaSuccess)
      raise_sticky_error(kernel_runner().error());
    // Unwatched, or run in part, a kernel may have written all that it could.
    if (!options().watch_kernels || !works) mark_written(bounds);
    if (profile::is_on()) measured(kernel_runner().measured());
    return true;
  };
  return enqueue(config.stream, std::move(operation));
}

}  // namespace

cudaError_t enqueue_launch(const cudaLaunchConfig_t& config, const void* kernel,
                           std::initializer_list<KernelArgument> arguments, KernelCall thread) {
  static EntryPoint entry("cudaLaunchKernelExC");
  return entry.call([&] { return launch(config, kernel, arguments, std::move(thread)); });
}

void set_launch_location(std::source_location where) { launch_location = where; }

std::size_t launches() { return launch_count; }

}  // namespace simgpu
