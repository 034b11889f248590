#include "lockstep/parallel/update_log.hpp"

#include <functional>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

// A model may be updated any number of times before its gradients are reduced again.
constexpr std::size_t longest = 4096;

std::string range(std::size_t first, std::size_t last) {
  return first == last ? std::to_string(first) : detail::concat(first, "-", last);
}

}  // namespace

void UpdateLog::note(std::size_t parameter, std::string_view how) {
  if (std::exchange(taken_, false)) {
    earlier_.clear();
    how_.clear();
  }
  if (how_ != how) {
    if (!how_.empty()) earlier_ = text() + ", ";
    if (earlier_.size() > longest)
      earlier_ = detail::concat("updates #", std::hash<std::string>{}(earlier_), ", ");
    how_ = how;
    ranges_.clear();
    first_ = parameter;
  } else if (parameter != last_ + 1) {
    ranges_ += range(first_, last_) + ' ';
    first_ = parameter;
  }
  last_ = parameter;
}

std::string UpdateLog::text() const {
  return detail::concat(earlier_, ranges_, range(first_, last_), " after ", how_);
}

std::string UpdateLog::take() {
  taken_ = true;
  return how_.empty() ? std::string() : "parameters " + text();
}

}  // namespace lockstep::parallel
