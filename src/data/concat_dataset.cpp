#include "lockstep/data/concat_dataset.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/tensor/factories.hpp"

namespace lockstep::data::detail {

std::vector<ConcatPart> split_indices(std::span<const std::int64_t> sizes,
                                      std::span<const std::int64_t> indices) {
  std::vector<std::int64_t> ends(sizes.size());
  std::partial_sum(sizes.begin(), sizes.end(), ends.begin());
  const std::int64_t total = ends.back();
  LOCKSTEP_CHECK(total > 0 && !indices.empty(), InvalidArgument, indices.size(),
                 " samples of data sets that have ", total, "; at least one is needed");
  std::vector<ConcatPart> parts;
  for (std::size_t row = 0; row < indices.size(); ++row) {
    const std::int64_t index = indices[row];
    LOCKSTEP_CHECK(index >= 0, InvalidArgument, "sample ", index, " is below 0");
    const std::int64_t sample = index % total;
    const auto pass = static_cast<std::uint64_t>(index / total);
    const auto end = std::ranges::upper_bound(ends, sample);
    const auto dataset = static_cast<std::size_t>(end - ends.begin());
    auto part = std::ranges::find_if(parts, [&](const ConcatPart& each) {
      return each.dataset == dataset && each.pass == pass;
    });
    if (part == parts.end()) part = parts.insert(part, {dataset, pass, {}, {}});
    part->indices.push_back(sample - (*end - sizes[dataset]));
    part->rows.push_back(static_cast<std::int64_t>(row));
  }
  return parts;
}

Tensor join_rows(std::span<const ConcatPart> parts, std::span<const Tensor> tensors) {
  const Tensor& model = tensors.front();
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto count = std::ssize(parts[i].rows);
    Shape expected = model.shape();
    if (model.dim() > 0) expected[0] = count;
    LOCKSTEP_CHECK(model.dim() > 0 && tensors[i].device().is_cpu() &&
                       tensors[i].dtype() == model.dtype() && tensors[i].shape() == expected,
                   InvalidArgument, "data set ", parts[i].dataset, " gave ", tensors[i].dtype(),
                   " ", tensors[i].shape(), " on ", tensors[i].device(), " for ", count,
                   " samples, where data set ", parts.front().dataset, " gave ", model.dtype(), " ",
                   model.shape(), "; samples of one batch need the same dtype and shape");
    rows += count;
  }
  Shape shape = model.shape();
  shape[0] = rows;
  Tensor joined = empty(shape, model.options());
  const std::size_t row_bytes = joined.nbytes() / static_cast<std::size_t>(rows);
  auto* to = static_cast<std::byte*>(joined.data_ptr());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor dense = tensors[i].contiguous();
    const auto* from = static_cast<const std::byte*>(dense.data_ptr());
    for (const std::int64_t row : parts[i].rows) {
      std::memcpy(to + static_cast<std::size_t>(row) * row_bytes, from, row_bytes);
      from += row_bytes;
    }
  }
  return joined;
}

}  // namespace lockstep::data::detail
