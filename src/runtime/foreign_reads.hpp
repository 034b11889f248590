#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/core/shape.hpp"

/// @file
/// What a captured step reads and has not made.

namespace lockstep {

/// The arrays (Storages) that a step reads and has not made, in the order in which it does. They
/// live as long as this, so that no launch reads memory that is gone; who keeps them so does not
/// count among those who have them.
class ForeignReads {
 public:
  /// @param reader for whoever is told of it. @param shape of the tensor through which it reads
  void note(const IntrusivePtr<RefCounted>& array, std::string_view reader, const Shape& shape);
  /// Somebody else says of this array whether launches find it: a leaf, of its gradient.
  void note_watched(const RefCounted* array) { watched_.insert(array); }
  /// Leaves those to who watches them.
  void give_up_watched();
  void clear() noexcept { all_.clear(); }
  /// "a tensor of shape [2] that mul reads in the step, which did not make it," of the first one
  /// that nobody has any more; empty if there is none.
  std::string lost() const;

 private:
  struct Read {
    Keeper array;
    std::string reader;
    Shape shape;
  };

  std::vector<Read> all_;
  std::unordered_set<const RefCounted*> met_, watched_;
};

}  // namespace lockstep
