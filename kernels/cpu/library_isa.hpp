#pragma once

#include <cstdint>
#include <optional>

/// @file
/// The instruction sets of oneDNN, which chooses by the processor for itself: products that all
/// ranks compute of the same operands must give all the same bits.

namespace lockstep::cpu_kernels {

/// As dnnl::cpu_isa, rising. What comes beyond these is for 16 bits, which ranks round of their own
/// batches.
enum class LibraryIsa : std::uint8_t { sse41, avx, avx2, avx512_core };

/// The name that ONEDNN_MAX_CPU_ISA has for it.
const char* name_of(LibraryIsa isa);
/// The best that this machine has and ONEDNN_MAX_CPU_ISA, or DNNL_MAX_CPU_ISA, allows.
LibraryIsa library_isa();
/// Has oneDNN use none above `isa`. @return false where a better one is in use already, and stays.
bool limit_library_isa(LibraryIsa isa);
/// Tells that oneDNN is in use from now on. @return what it is to keep to, if anything.
std::optional<LibraryIsa> begin_library();

}  // namespace lockstep::cpu_kernels
