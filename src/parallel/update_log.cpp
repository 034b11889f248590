#include "lockstep/parallel/update_log.hpp"

#include <functional>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

// A model may be updated any number of times before its gradients are reduced again.
constexpr std::size_t longest = 4096;

void shorten(std::string& text) {
  if (text.size() > longest) text = detail::concat("#", std::hash<std::string>{}(text), ", ");
}

}  // namespace

void UpdateLog::note(std::size_t parameter, std::string_view how) {
  if (std::exchange(taken_, false)) {
    earlier_ = {};
    how_.clear();
  }
  if (how_ != how) {
    if (!how_.empty()) {
      earlier_.how += last_update() + ", ";
      earlier_.parameters += parameters_.text() + ", ";
      shorten(earlier_.how);
      shorten(earlier_.parameters);
    }
    how_ = how;
    parameters_ = {};
  }
  parameters_.add(parameter);
}

std::string UpdateLog::last_update() const {
  return detail::concat(parameters_.count(), " parameters after ", how_);
}

std::string UpdateLog::take() {
  taken_ = true;
  if (how_.empty()) return {};
  return detail::concat(earlier_.how, last_update(), " (", earlier_.parameters, parameters_.text(),
                        ")");
}

}  // namespace lockstep::parallel
