#include "base/launcher.hpp"

#include <cstdlib>

namespace simgpu {
namespace {

int number(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

LauncherCounts launcher_counts() {
  constexpr struct {
    const char *ranks, *local_ranks;
  } names[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
               {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},
               {"PMI_SIZE", "MPI_LOCALNRANKS"},
               {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}};
  for (const auto& launcher : names)
    if (const int local = number(launcher.local_ranks); local > 0)
      return {.ranks = number(launcher.ranks), .local_ranks = local};
  return {};
}

}  // namespace simgpu
