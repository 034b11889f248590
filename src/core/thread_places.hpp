#pragma once

#include <vector>

namespace lockstep {

/// The processors of the places that OpenMP gives threads (OMP_PROC_BIND, OMP_PLACES,
/// GOMP_CPU_AFFINITY). Empty where it binds none, and in a build without OpenMP.
struct ThreadPlaces {
  std::vector<int> own;  ///< to which it bound the calling thread, the first one before main begins
  std::vector<int> all;
};
ThreadPlaces thread_places();

}  // namespace lockstep
