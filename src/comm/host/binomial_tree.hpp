#pragma once

#include <algorithm>
#include <bit>
#include <vector>

namespace lockstep::comm::host {

/// A rank's place in the binomial tree over 0 to size - 1 with root 0. A rank's subtree is a range
/// that begins with it, and its children's ranges follow one another: combining them in order takes
/// sums by the tree of `fold`, for any size. A rank has at most log2(size) children.
class BinomialTree {
 public:
  BinomialTree(int rank, int size) : rank_(rank), size_(size) {
    for (int step = 1; step < size && (rank & step) == 0; step *= 2)
      if (rank + step < size) children_.push_back(rank + step);
  }

  bool is_root() const { return rank_ == 0; }
  int parent() const { return rank_ & (rank_ - 1); }
  /// The ranks of smaller subtrees first.
  const std::vector<int>& children() const { return children_; }
  /// The end of the subtree of this rank or of one of its children.
  int end_of(int rank) const {
    const int width = rank == 0 ? size_ : 1 << std::countr_zero(static_cast<unsigned>(rank));
    return std::min(size_, rank + width);
  }

 private:
  int rank_, size_;
  std::vector<int> children_;
};

}  // namespace lockstep::comm::host
