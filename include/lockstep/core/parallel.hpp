#pragma once

#include <cstdint>

#include "lockstep/core/function_ref.hpp"

/// @file
/// Threads that share one op's work on the CPU.

namespace lockstep {

/// Number of threads that `parallel_for` of the calling thread may use.
int num_threads();

/// Sets the number of threads of the calling thread's ops, oneDNN's included.
/// @throws InvalidArgument below 1.
void set_num_threads(int count);

/// Splits [0, total) into contiguous parts and calls `body(begin, end)` on each, in parallel when
/// there are at least two parts of `grain` items. The first exception is rethrown once all parts
/// have ended. Nested calls run serially.
void parallel_for(std::int64_t total, std::int64_t grain,
                  FunctionRef<void(std::int64_t begin, std::int64_t end)> body);

}  // namespace lockstep
