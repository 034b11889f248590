#pragma once

#include <vector>

#include "cpu/loops.hpp"
#include "lockstep/core/array_view.hpp"

namespace lockstep::host {

/// A vector of parameters brought into the accumulation type that row loops read; the view's own
/// memory where it has that type already.
class Widened {
 public:
  /// @param view contiguous or absent; @param type the accumulation type of the loop.
  Widened(const ArrayView& view, Accumulate type);
  /// The values, or null for an absent view.
  const void* data() const { return data_; }

 private:
  std::vector<double> storage_;
  const void* data_ = nullptr;
};

/// Layer norm's backward, or RMS norm's without `mean`: see `backend::Rows`.
void norm_backward(RowLoop<NormArguments> loop, NormArguments arguments, std::int64_t rows,
                   Accumulate type, const ArrayView& dweight, const ArrayView& dbias,
                   bool accumulate);

/// out = rows of the table. @throws InvalidArgument for an index out of range.
void embedding(const ArrayView& out, const ArrayView& table, const ArrayView& index);
/// Adds rows of dy to the table's gradient, each row's in the order of the index.
void embedding_backward(const ArrayView& dtable, const ArrayView& dy, const ArrayView& index,
                        std::int64_t padding_index, bool accumulate);

}  // namespace lockstep::host
