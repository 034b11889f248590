#pragma once

/// @file
/// The namespace of functional code carries the instruction set it is compiled for.
///
/// The CPU engine compiles these headers once per instruction set. If the copies shared their
/// names, the linker would keep one of them, perhaps the one with instructions that the machine
/// lacks. So each level defines LOCKSTEP_ISA, which names an inline namespace of its own.

#ifndef LOCKSTEP_ISA
#define LOCKSTEP_ISA generic
#define LOCKSTEP_ALIGNED_PACKS true  // of groups of threads, on a GPU
#else
#define LOCKSTEP_ALIGNED_PACKS false
#endif
