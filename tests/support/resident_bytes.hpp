#pragma once

#include <cstdint>
#include <fstream>

#include <unistd.h>

namespace lockstep::testing {

/// Memory of this process that it has now.
inline std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace lockstep::testing
