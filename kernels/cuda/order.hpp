#pragma once

#include <cstddef>

#include "arguments/order.hpp"

namespace lockstep::cuda_kernels {

/// Bytes of scratch memory that `argsort` needs.
std::size_t argsort_scratch_bytes(const kernels::ArgsortArguments& arguments);
void argsort(const kernels::ArgsortArguments& arguments, void* scratch, StreamRef stream);
void search(const kernels::SearchArguments& arguments, StreamRef stream);

}  // namespace lockstep::cuda_kernels
