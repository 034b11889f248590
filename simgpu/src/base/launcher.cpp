#include "base/launcher.hpp"

#include <cstdlib>

namespace simgpu {
namespace {

int count_in(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

LauncherCounts launcher_counts() {
  constexpr struct {
    const char *ranks, *local_ranks, *rank;
  } names[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK"},
               {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_RANK"},
               {"PMI_SIZE", "MPI_LOCALNRANKS", "PMI_RANK"},
               {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK"}};
  for (const auto& launcher : names)
    if (const int local = count_in(launcher.local_ranks); local > 0)
      return {
          .ranks = count_in(launcher.ranks), .local_ranks = local, .rank = count_in(launcher.rank)};
  return {};
}

}  // namespace simgpu
