#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Documents for language models, several in a sequence.

namespace lockstep::data {

/// Sequences of documents; behind the last one there may be padding.
struct PackedBatch {
  /// i64 [batch, context]; 0 in padding.
  Tensor tokens;
  /// i64 [batch, context]: what follows each token in its document; -100, which `cross_entropy`
  /// leaves out, in padding.
  Tensor targets;
  /// i64 [batch, context]: the place of each token, from 0 on in each document; 0 in padding.
  Tensor positions;
  /// i64 [batch, context]: the number of each token's document in its sequence; -1 in padding.
  Tensor documents;

  /// Which tokens see each other in `scaled_dot_product_attention`: those of the same document.
  /// Give it `is_causal`, too.
  /// @return bool [batch, 1, context, context], on the device of the batch.
  Tensor mask() const;
  /// For DataLoader, which puts them on a device.
  void visit_tensors(auto&& visit) {
    visit(tokens);
    visit(targets);
    visit(positions);
    visit(documents);
  }
};

/// How documents are packed.
struct PackedDatasetOptions {
  /// Tokens in a sequence.
  std::int64_t context = 256;
  /// The token that ends each document; by default GPT-2's. It is a target, never an input.
  std::int64_t end_of_text = 50256;
  /// Bytes of a token in a file of tokens: 2, or 4 where the vocabulary is larger than 65536.
  int token_bytes = 2;
};

/// Every token of every document once, but for what ends it, in sequences that no document crosses:
/// a document longer than the context is cut into pieces, of which only the last one is shorter,
/// and a piece counts as a document of its own. The text stays where it is: mapped from its file,
/// or in memory. Copies share it, and the index of 16 bytes a piece.
///
/// What a sequence consists of follows from the text and the options alone, so that epochs are
/// orders of sequences, as of any data set's samples. Longer pieces are placed first, each where it
/// leaves the least room (best-fit decreasing: Ding et al., "Fewer truncations improve language
/// modeling", 2024). That reads the text once, whenever the data set is made.
class PackedDataset {
 public:
  using Options = PackedDatasetOptions;

  /// A file of unsigned tokens of `token_bytes`, lowest byte first, and nothing else.
  /// @throws FileError; CorruptData for a number of bytes that makes no whole number of tokens;
  /// InvalidArgument for options out of range, an end of text that is wider, a text in which no
  /// document ends, or none with a token that another one follows.
  static PackedDataset from_token_file(const std::filesystem::path& file, Options options = {});
  /// Every byte of a string is a token. @throws InvalidArgument as above.
  static PackedDataset from_text(std::string text, Options options);

  /// Number of sequences.
  std::int64_t size() const { return std::ssize(index_->first_piece) - 1; }
  /// Number of tokens in all sequences; `size()` * context less that is padding.
  std::int64_t token_count() const { return index_->tokens; }
  /// A number that follows from the options, the number of tokens and some of them, and the pieces.
  std::uint64_t signature() const;
  /// Sequences. Any number of threads may call it.
  /// @throws InvalidArgument for an index out of range.
  PackedBatch fetch(std::span<const std::int64_t> indices) const;

 private:
  // Tokens of `width` bytes each, in memory that `owner` keeps.
  struct Text {
    std::shared_ptr<const void> owner;
    std::span<const std::byte> bytes;
    int width;
    std::string source;
  };
  struct Piece {
    std::int64_t begin, length;
  };
  struct Index {
    std::vector<Piece> pieces;              // of one sequence after the other
    std::vector<std::int64_t> first_piece;  // of each sequence, and the end
    std::int64_t tokens = 0;
    std::uint64_t signature = 0;
  };
  PackedDataset(Text text, Options options);
  template <class Token>
  std::vector<Piece> cut() const;
  template <class Token>
  void fill(std::span<const std::int64_t> indices, PackedBatch& batch) const;
  std::span<const Piece> pieces(std::int64_t index) const;
  Index pack(const std::vector<Piece>& pieces) const;

  Text text_;
  Options options_;
  std::shared_ptr<const Index> index_;
};

}  // namespace lockstep::data
