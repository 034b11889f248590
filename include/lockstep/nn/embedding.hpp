#pragma once

#include <cstdint>
#include <string>

#include "lockstep/nn/member.hpp"

/// @file
/// The embedding table.

namespace lockstep::nn {

/// Options of Embedding.
struct EmbeddingOptions {
  std::int64_t count = 0;           ///< rows of the table
  std::int64_t features = 0;        ///< columns of the table
  std::int64_t padding_index = -1;  ///< a row that starts at 0 and gets no gradient; -1: none
  TensorOptions tensor = {};        ///< dtype and device of the table
};

/// A learned vector for each index. Starts standard normal, as PyTorch's.
class Embedding : public Module {
 public:
  using Options = EmbeddingOptions;
  /// @throws InvalidArgument for extents below 1 or a padding index past the table.
  explicit Embedding(const EmbeddingOptions& options);
  /// A table without padding.
  Embedding(std::int64_t count, std::int64_t features, TensorOptions tensor = {})
      : Embedding(EmbeddingOptions{.count = count, .features = features, .tensor = tensor}) {}

  /// @param index i64, any shape. @return index's shape with `features` appended.
  Tensor forward(const Tensor& index) const;
  /// addend + y in one pass (`add_embedding`); an undefined addend adds nothing.
  Tensor forward(const Tensor& index, const Tensor& addend) const;
  std::string describe() const override;

 private:
  std::int64_t padding_index_;

 public:
  Parameter weight;  ///< [count, features]
};

}  // namespace lockstep::nn
