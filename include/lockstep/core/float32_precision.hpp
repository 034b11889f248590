#pragma once

/// @file
/// How exactly a GPU multiplies f32.

namespace lockstep {

/// What a GPU rounds the operands of f32 products and convolutions to; sums are f32 either way.
/// PyTorch's `torch.backends.fp32_precision`, with its words.
enum class Float32Precision {
  ieee,  ///< not at all: 24 bits
  tf32,  ///< to 11 bits where tensor cores take the product, several times as fast
};

/// Sets it for all GPU ops of the process, on any thread, from now on; steps that were captured
/// keep what they have. `ieee` at first, for convolutions too (PyTorch lets those round). CPUs, f64
/// and 16-bit types know no such choice.
void set_float32_precision(Float32Precision precision) noexcept;

/// What was set last.
Float32Precision float32_precision() noexcept;

}  // namespace lockstep
