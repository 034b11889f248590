#pragma once

#include <vector>

namespace lockstep {

/// The processors of the places that OpenMP gives threads (OMP_PROC_BIND, OMP_PLACES,
/// GOMP_CPU_AFFINITY): it binds the first thread to one of them before main begins. Empty where it
/// binds none, and in a build without OpenMP.
std::vector<int> processors_of_places();

}  // namespace lockstep
