#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Text for language models: long runs of tokens, cut into sequences.

namespace lockstep::data {

/// Sequences with what follows each of their tokens.
struct TokenBatch {
  /// i64 [batch, context].
  Tensor tokens;
  /// i64 [batch, context]: targets[b, t] follows tokens[b, t].
  Tensor targets;
  /// For DataLoader, which puts them on a device.
  void visit_tensors(auto&& visit) {
    visit(tokens);
    visit(targets);
  }
};

/// How a run of tokens is cut.
struct TokenDatasetOptions {
  /// Tokens in a sequence; each takes one more, the last one's target.
  std::int64_t context = 256;
  /// Tokens from one sequence's start to the next one's; 0 means `context`, so without overlap.
  std::int64_t stride = 0;
  /// Where above 0: a token of this value or more is reported as corrupt when it is fetched.
  std::int64_t vocabulary = 0;
  /// Bytes of a token in a file of tokens: 2, or 4 where the vocabulary is larger than 65536.
  int token_bytes = 2;
};

/// Sequence s begins at token s * stride of a run of tokens, which stays where it is: mapped from
/// its file, or in memory. Copies share it.
class TokenDataset {
 public:
  using Options = TokenDatasetOptions;

  /// Every byte of the text is a token; several files are joined in the order given. A single file
  /// is mapped, several are read.
  /// @throws FileError; InvalidArgument for options out of range or too little text for a sequence.
  static TokenDataset from_text_files(std::span<const std::filesystem::path> files,
                                      Options options = {});
  /// Every byte of a string is a token. @throws InvalidArgument as above.
  static TokenDataset from_text(std::string text, Options options = {});
  /// A file of unsigned tokens of `token_bytes`, lowest byte first, and nothing else; mapped.
  /// @throws as above, also for a vocabulary with tokens that are wider; CorruptData for a number
  /// of bytes that makes no whole number of tokens.
  static TokenDataset from_token_file(const std::filesystem::path& file, Options options = {});

  /// Number of sequences.
  std::int64_t size() const;
  /// Number of tokens.
  std::int64_t token_count() const { return count_; }
  /// A number that follows from the options, the number of tokens and some of them.
  std::uint64_t signature() const;
  /// Two data sets over the first `fraction` of the tokens and over the others: training and
  /// held-out text. @throws InvalidArgument if either is too short for a sequence.
  std::pair<TokenDataset, TokenDataset> split(double fraction) const;
  /// Sequences and targets. Any number of threads may call it.
  /// @throws InvalidArgument for an index out of range; CorruptData for a token past the
  /// vocabulary.
  TokenBatch fetch(std::span<const std::int64_t> indices) const;

 private:
  // A run of tokens of `width` bytes each, in memory that `owner` keeps.
  struct Run {
    std::shared_ptr<const void> owner;
    std::span<const std::byte> bytes;
    int width;
    std::string source;
  };
  TokenDataset(Run run, Options options);
  TokenDataset part(std::int64_t begin, std::int64_t end) const;
  template <class Token>
  void fill(std::span<const std::int64_t> indices, TokenBatch& batch) const;
  void check_token(std::int64_t token, std::int64_t position) const;

  Run run_;
  Options options_;
  std::int64_t count_;
  std::int64_t first_ = 0;  // in the file, for messages
};

}  // namespace lockstep::data
