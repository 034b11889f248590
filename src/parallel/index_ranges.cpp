#include "lockstep/parallel/index_ranges.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

std::string range(std::size_t first, std::size_t last) {
  return first == last ? std::to_string(first) : detail::concat(first, "-", last);
}

}  // namespace

void IndexRanges::add(std::size_t index) {
  if (count_ > 0 && index != last_ + 1) earlier_ += range(first_, last_) + ' ';
  if (count_ == 0 || index != last_ + 1) first_ = index;
  last_ = index;
  ++count_;
}

std::string IndexRanges::text() const {
  return count_ == 0 ? std::string() : earlier_ + range(first_, last_);
}

}  // namespace lockstep::parallel
