#include "lockstep/nn/padding.hpp"

#include <algorithm>

#include "nn/describe.hpp"

namespace lockstep::nn {

Padding::Padding(PaddingMode mode, std::vector<std::int64_t> padding)
    : mode_(mode), padding_(std::move(padding)) {
  const std::int64_t least = std::ranges::min(padding_);
  LOCKSTEP_CHECK(least >= 0, InvalidArgument, "a padding layer: ", least,
                 " on a side; it must not be negative");
}

std::string Padding::describe() const {
  std::string result;
  for (const std::int64_t side : padding_) result += text(result.empty() ? "" : ", ", side);
  return result;
}

}  // namespace lockstep::nn
