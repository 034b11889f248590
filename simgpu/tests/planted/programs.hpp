#pragma once

/// @file
/// The programs. Each is right, unless the fault of the same name was planted; where its own source
/// has no switch, planted.cmake puts one into a copy of a file of lockstep's.

namespace planted {

// Two ranks that train (training.hpp), over copies of lockstep's own files.
void communication_ignores_backward();
void optimizer_ignores_all_reduce();
void bucket_written_twice();
void collectives_out_of_order();
void event_leak();
void gather_ignores_optimizer();
void forward_ignores_gather();

// Shards and buckets on their way (ZeRO, stages 2 and 3), and buckets that are laid out anew.
void shard_written_while_sent();
void weight_used_before_gathered();
void bucket_freed_while_reduced();
void replaced_bucket_freed();
void registered_bucket_replaced();

// A checkpoint that is copied beside training.
void optimizer_ignores_save();
void other_stream_ignores_save();

// The measured plan of buckets.
void plans_differ();
void plan_before_all_measured();
void bucket_past_the_end();

// Collectives.
void count_mismatch();
void odd_collective_address();
void gather_out_of_place();

// Memory.
void freed_without_record_stream();
void uninitialized_read();
void host_reads_too_early();
void allocation_during_capture();
void stale_static_gradient();
void block_freed_while_graph_lives();
void captured_copy_of_dead_variable();
void pinned_freed_in_flight();

// Kernels.
void missing_syncthreads();
void shared_index_out_of_range();
void kernel_misses_tail();
void plain_add_of_blocks();
void missing_threadfence();
void neighbour_without_barrier();
void block_atomic_of_blocks();
void two_barriers();
void wait_without_end();
void misaligned_vector();
void no_peer_access();
void recursion_without_end();

// Products.
void wrong_leading_dimension();
void wrong_epilogue();
void product_over_operand();

// Patterns of bugs that shipped elsewhere.
void reduced_buffer_freed();
void hook_on_side_stream();
void gradient_of_another_stream();
void shared_gradient_buffer();
void stale_gathered_data();
void root_gradient_of_another_stream();
void replayed_gradient_accumulated();

}  // namespace planted
