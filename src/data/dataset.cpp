#include "lockstep/data/dataset.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::data {

void check_indices(std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t index : indices)
    LOCKSTEP_CHECK(index >= 0 && index < size, InvalidArgument, "a data set of ", size,
                   " samples is asked for sample ", index,
                   "; give the sampler the data set's size()");
}

}  // namespace lockstep::data
