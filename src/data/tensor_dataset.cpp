#include "lockstep/data/tensor_dataset.hpp"

#include <algorithm>

#include "data/signature.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::data {
namespace {

Tensor gather_rows(const Tensor& from, std::span<const std::int64_t> indices) {
  Shape shape = from.shape();
  const std::int64_t rows = shape[0];
  shape[0] = static_cast<std::int64_t>(indices.size());
  Tensor to = empty(shape, from.options());
  const std::size_t row_bytes = from.nbytes() / static_cast<std::size_t>(rows);
  const auto* source = static_cast<const std::byte*>(from.data_ptr());
  auto* target = static_cast<std::byte*>(to.data_ptr());
  for (const auto index : indices) {
    LOCKSTEP_CHECK(index >= 0 && index < rows, InvalidArgument, "sample ", index,
                   " is outside 0 to ", rows - 1);
    target = std::copy_n(source + static_cast<std::size_t>(index) * row_bytes, row_bytes, target);
  }
  return to;
}

}  // namespace

TensorDataset::TensorDataset(const std::vector<Tensor>& tensors) {
  LOCKSTEP_CHECK(!tensors.empty(), InvalidArgument, "a TensorDataset needs at least one tensor");
  for (const auto& tensor : tensors) {
    LOCKSTEP_CHECK(tensor.device().is_cpu(), InvalidArgument, "a TensorDataset lives on the cpu; ",
                   "one tensor is on ", tensor.device());
    LOCKSTEP_CHECK(tensor.dim() > 0, InvalidArgument,
                   "a scalar has no samples; tensors of at least 1 dimension are needed");
    LOCKSTEP_CHECK(tensor.size(0) == tensors[0].size(0), InvalidArgument, "tensors of ",
                   tensors[0].size(0), " and of ", tensor.size(0),
                   " samples do not make one data set; the counts must agree");
    tensors_.push_back(tensor.detach().contiguous());
  }
  LOCKSTEP_CHECK(size() > 0, InvalidArgument, "the data set is empty (0 samples)");
}

TensorBatch TensorDataset::fetch(std::span<const std::int64_t> indices) const {
  TensorBatch batch;
  for (const auto& tensor : tensors_) batch.tensors.push_back(gather_rows(tensor, indices));
  return batch;
}

std::uint64_t TensorDataset::signature() const {
  std::uint64_t signature = tensors_.size();
  for (const Tensor& each : tensors_)
    signature = signature_of("tensors", signature, signature_of_tensor(each));
  return signature;
}

}  // namespace lockstep::data
