#include "lockstep/data/detail/failed_samples.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "core/failure_place.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::data {

void note_failed_samples(std::span<const std::int64_t> indices, std::uint64_t epoch) noexcept try {
  constexpr std::size_t shown = 32;
  std::string text = indices.empty()       ? "a rank's share, which is empty,"
                     : indices.size() == 1 ? "sample"
                                           : "samples";
  for (std::size_t i = 0; i < std::min(indices.size(), shown); ++i)
    text += lockstep::detail::concat(i == 0 ? " " : ", ", indices[i]);
  if (indices.size() > shown)
    text += lockstep::detail::concat(" and ", indices.size() - shown, " more");
  note_failure_place(lockstep::detail::concat(text, " of epoch ", epoch));
} catch (...) {  // no memory for the note: then the exception goes without
}

}  // namespace lockstep::data
