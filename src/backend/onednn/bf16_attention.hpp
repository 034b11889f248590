#pragma once

#include "arguments/attention.hpp"

/// @file
/// Blocked attention whose products multiply in bf16 and add in f32. What goes into a product is
/// rounded to bf16: operands as they are given, probabilities and the gradients of scores once
/// more; scores, statistics of the softmax and all sums are f32.

namespace lockstep::backend {

/// True if all arrays are bf16, which blocked attention could run, and the machine multiplies in
/// bf16 by cpu_kernels::bf16_attention_loops.
bool fits_bf16(const kernels::AttentionArguments& a);
bool fits_bf16(const kernels::AttentionBackwardArguments& a);

/// Runs it. A head, or in backward the heads that share keys, is one thread's work.
void bf16_attention(const kernels::AttentionArguments& a);
void bf16_attention(const kernels::AttentionBackwardArguments& a);

}  // namespace lockstep::backend
