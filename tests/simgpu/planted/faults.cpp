#include <algorithm>

#include "simgpu/planted/fault.hpp"
#include "simgpu/planted/programs.hpp"

namespace planted {

std::span<const Fault> faults() {
  static const std::vector<Fault> all{
      {.name = "communication-ignores-backward",
       .what = "the communication stream does not wait for the backward stream",
       .kind = "race",
       .places = {"ncclAllReduce", "NcclCommunicator::submit", "Reducer::launch",
                  "gradient of 0.weight"},
       .run = communication_ignores_backward},
      {.name = "optimizer-ignores-all-reduce",
       .what = "the optimizer does not wait for the all-reduce",
       .kind = "race",
       .places = {"ncclAllReduce", "Optimizer::step", "gradient of 0.weight"},
       .run = optimizer_ignores_all_reduce},
      {.name = "bucket-written-twice",
       .what = "a second contribution is added to a bucket that has left",
       .kind = "race",
       .places = {"ncclAllReduce", "cublasLtMatmul", "bucket 0, gradient of 0.weight"},
       .run = bucket_written_twice},
      {.name = "collectives-out-of-order",
       .what = "two ranks reduce their buckets in different order",
       .kind = "collective mismatch",
       .places = {"rank 0: AllReduce", "f32 x 128", "rank 1: AllReduce", "f32 x 512"},
       .run = collectives_out_of_order},
      {.name = "count-mismatch",
       .what = "one rank reduces fewer elements",
       .kind = "collective mismatch",
       .places = {"f32 x 16", "f32 x 12", "reduce_losses"},
       .run = count_mismatch},
      {.name = "event-leak",
       .what = "an event is not destroyed",
       .kind = "leak",
       .places = {"event", "NcclCommunicator::submit"},
       .run = event_leak},
      {.name = "freed-without-record-stream",
       .what = "a block is freed while a side stream uses it, without record_stream",
       .kind = "race",
       .places = {"'activation'", "given back by", "copy_on_side_stream", "stream 1"},
       .run = freed_without_record_stream},
      {.name = "uninitialized-read",
       .what = "memory is read that nothing wrote",
       .kind = "read of uninitialized memory",
       .places = {"never written", "'sum of gradients'", "mean_of"},
       .run = uninitialized_read},
      {.name = "host-reads-too-early",
       .what = "the host reads before the copy is done",
       .kind = "race with the host",
       .places = {"cudaMemcpyAsync", "the host", "read_loss", "'loss for the log'"},
       .run = host_reads_too_early},
      {.name = "missing-syncthreads",
       .what = "a __syncthreads is missing",
       .kind = "race in shared memory",
       .places = {"kernel sum_by_halves_kernel", "parts'", "missing_syncthreads"},
       .run = missing_syncthreads},
      {.name = "shared-index-out-of-range",
       .what = "an index of shared memory is out of range",
       .kind = "shared memory out of bounds",
       .places = {"kernel difference_kernel", "kernels.cu:38", "shared_index_out_of_range"},
       .run = shared_index_out_of_range},
      {.name = "kernel-misses-tail",
       .what = "a kernel misses the tail",
       .kind = "read of uninitialized memory",
       .places = {"last written by scale_by_fours_kernel", "kernel_misses_tail"},
       .run = kernel_misses_tail},
  };
  return all;
}

const Fault* find_fault(std::string_view name) {
  const auto found = std::ranges::find(faults(), name, &Fault::name);
  return found == faults().end() ? nullptr : &*found;
}

}  // namespace planted
