#include "lockstep/core/parallel.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <vector>

#include "core/thread_places.hpp"
#include "lockstep/core/error.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace lockstep {

#if defined(_OPENMP)

int num_threads() { return omp_get_max_threads(); }

ThreadPlaces thread_places() {
  const auto processors_of = [](int place) {
    std::vector<int> processors(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, processors.data());
    return processors;
  };
  ThreadPlaces places;
  const int own = omp_get_place_num();
  if (own >= 0) places.own = processors_of(own);
  for (int place = 0; place < omp_get_num_places(); ++place)
    for (const int processor : processors_of(place)) places.all.push_back(processor);
  return places;
}

void set_num_threads(int count) {
  LOCKSTEP_CHECK(count >= 1, InvalidArgument, "thread count must be at least 1, got ", count);
  omp_set_num_threads(count);
}

void parallel_for(std::int64_t total, std::int64_t grain,
                  FunctionRef<void(std::int64_t, std::int64_t)> body) {
  const std::int64_t parts =
      std::min<std::int64_t>(num_threads(), total / std::max<std::int64_t>(grain, 1));
  if (parts <= 1 || omp_in_parallel()) {
    if (total > 0) body(0, total);
    return;
  }
  std::exception_ptr failure;
  std::mutex failure_mutex;
#pragma omp parallel num_threads(static_cast <int>(parts))
  {
    const std::int64_t part = omp_get_thread_num(), count = omp_get_num_threads();
    try {
      const std::int64_t begin = total * part / count, end = total * (part + 1) / count;
      if (begin < end) body(begin, end);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

#else

int num_threads() { return 1; }

ThreadPlaces thread_places() { return {}; }

void set_num_threads(int count) {
  LOCKSTEP_CHECK(count >= 1, InvalidArgument, "thread count must be at least 1, got ", count);
}

void parallel_for(std::int64_t total, std::int64_t,
                  FunctionRef<void(std::int64_t, std::int64_t)> body) {
  if (total > 0) body(0, total);
}

#endif

}  // namespace lockstep
