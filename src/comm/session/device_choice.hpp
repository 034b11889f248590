#pragma once

#include <string>

#include "lockstep/comm/bootstrap.hpp"
#include "lockstep/core/device.hpp"

namespace lockstep::comm {

/// Chooses this rank's device from "auto", "cpu", "cuda" or "cuda:N"; all ranks get the same kind.
/// Every rank must call it.
/// @throws InvalidArgument for other words or where ranks ask for different kinds, Unsupported
/// without enough GPUs; on every rank alike, Agreed.
Device choose_device(Bootstrap& bootstrap, const std::string& wanted);

/// Sets the threads of this process' CPU ops: `wanted`, OMP_NUM_THREADS, or the cores of its
/// affinity mask divided among the ranks of its machine that share the mask. Warns, once a machine,
/// where ranks get into each other's way or leave cores idle. Every rank must call it.
void choose_threads(Bootstrap& bootstrap, int wanted);

/// Has all ranks compute on their processors with the instruction set of the least: vectors of
/// other widths, and products that are rounded otherwise, would part replicas by roundings. Warns
/// where they differ. Every rank must call it, before it computes.
void choose_instructions(Bootstrap& bootstrap);

}  // namespace lockstep::comm
