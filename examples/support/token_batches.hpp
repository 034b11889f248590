#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include <lockstep/comm/communicator.hpp>
#include <lockstep/data/any_dataset.hpp>
#include <lockstep/data/data_loader.hpp>

/// @file
/// Batches of a language model, shared out over the ranks.

namespace examples {

/// Tokens and their targets; where documents are packed, positions and documents, too: the tensors
/// of a data::TokenBatch or a data::PackedBatch.
using Sequences = std::vector<lockstep::Tensor>;
/// Sequences of text.
using TextDataset = lockstep::data::AnyDataset<Sequences>;

/// Where batches come from.
struct TokenBatchesOptions {
  /// Text files; empty: the project's own text. A tenth at their end is held out.
  std::vector<std::filesystem::path> text = {};
  /// Safetensors with `tokens` i64 [steps, batch, context + 1], replayed instead of any text.
  std::filesystem::path replay = {};
  /// Tokens in a sequence of text.
  std::int64_t context = 128;
  /// Each line of the text is a document, of which a sequence has several.
  bool packs = false;
  /// Sequences a step, over all ranks; a replayed file has its own.
  std::int64_t global_batch = 16;
  /// Order of the sequences of text.
  std::uint64_t seed = 1;
  /// Where batches are handed out.
  lockstep::Device device = lockstep::cpu;
};

/// The batches of a run, without end for text; this rank's part of each.
class TokenBatches {
 public:
  /// Every rank of the group must make one.
  /// @throws lockstep::InvalidArgument for too little text, a file of another shape, a rank without
  /// a sequence, or text that differs between the ranks.
  TokenBatches(const TokenBatchesOptions& options, lockstep::Communicator& group);

  /// Sequences a step, over all ranks.
  std::int64_t global_batch() const { return global_batch_; }
  /// Tokens a step, over all ranks.
  std::int64_t tokens_a_step() const { return global_batch_ * context_; }
  /// Steps that there are batches for, `wanted` at the most.
  std::int64_t steps(std::int64_t wanted) const;
  /// The next batch's part of this rank. A replayed file has no more than its steps.
  Sequences next();
  /// Where to go on after the batch of `next`, and going there before the first; see DataLoader.
  lockstep::data::LoaderState state() const;
  void load_state(const lockstep::data::LoaderState& state);
  /// Text to judge the model by; none where batches are replayed.
  const std::optional<TextDataset>& held_out() const { return held_out_; }

 private:
  using Loader = lockstep::data::DataLoader<TextDataset>;

  void open_text(const TokenBatchesOptions& options, lockstep::Communicator& group);
  bool replays() const { return replay_.defined(); }

  int rank_, ranks_;
  std::int64_t global_batch_, context_;
  lockstep::Device device_;
  lockstep::Tensor replay_;
  std::int64_t step_ = 0;
  std::optional<TextDataset> held_out_;
  std::optional<Loader> text_;
  std::optional<Loader::Iterator> position_;  // none before the first batch
};

}  // namespace examples
