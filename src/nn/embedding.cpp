#include "lockstep/nn/embedding.hpp"

#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/nn/init.hpp"
#include "lockstep/tensor/factories.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

Tensor initial_table(const EmbeddingOptions& options) {
  LOCKSTEP_CHECK(options.count > 0 && options.features > 0, InvalidArgument, "Embedding(",
                 options.count, ", ", options.features, "): both must be at least 1");
  LOCKSTEP_CHECK(options.padding_index >= -1 && options.padding_index < options.count,
                 InvalidArgument, "Embedding: padding index ", options.padding_index,
                 " is outside the table of ", options.count, " rows");
  const Tensor table = init::normal_(empty({options.count, options.features}, options.tensor));
  if (options.padding_index >= 0) table.select(0, options.padding_index).zero_();
  return table;
}

}  // namespace

Embedding::Embedding(const EmbeddingOptions& options)
    : padding_index_(options.padding_index), weight(this, "weight", initial_table(options)) {}

Tensor Embedding::forward(const Tensor& index) const {
  return embedding(index, weight, padding_index_);
}

Tensor Embedding::forward(const Tensor& index, const Tensor& addend) const {
  return addend.defined() ? add_embedding(addend, index, weight, padding_index_) : forward(index);
}

std::string Embedding::describe() const { return text(weight.size(0), ", ", weight.size(1)); }

}  // namespace lockstep::nn
