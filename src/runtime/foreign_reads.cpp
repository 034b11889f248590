#include "runtime/foreign_reads.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep {

void ForeignReads::note(const IntrusivePtr<RefCounted>& array, std::string_view reader,
                        const Shape& shape) {
  if (met_.insert(array.get()).second) all_.push_back({Keeper(array), std::string(reader), shape});
}

void ForeignReads::give_up_watched() {
  std::erase_if(all_, [this](const Read& read) { return watched_.contains(read.array.get()); });
  watched_.clear();
}

std::string ForeignReads::lost() const {
  const auto lost = std::ranges::find_if(all_, [this](const Read& read) {
    return !read.array.is_wanted() && !watched_.contains(read.array.get());
  });
  if (lost == all_.end()) return {};
  return detail::concat("a tensor of shape ", lost->shape, " that ", lost->reader,
                        " reads in the step, which did not make it,");
}

}  // namespace lockstep
