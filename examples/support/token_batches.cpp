#include "support/token_batches.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <lockstep/autograd/ops.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/io/safetensors.hpp>
#include <lockstep/parallel/agreement.hpp>

#include "support/project_text.hpp"

namespace examples {

namespace ls = lockstep;

namespace {

constexpr double training_part = 0.9;

ls::Tensor read_replay(const std::filesystem::path& path) {
  const ls::Tensor tokens = ls::io::SafetensorsFile::open(path).tensor("tokens");
  LOCKSTEP_CHECK(tokens.dim() == 3 && tokens.dtype() == ls::DType::i64, InvalidArgument,
                 path.string(), ": `tokens` must be i64 [steps, batch, context + 1], it is ",
                 tokens.dtype(), " ", tokens.shape());
  return tokens;
}

void check_same_text(ls::Communicator& group, const ls::data::TokenDataset& text) {
  const std::vector<std::pair<std::string, std::string>> length{
      {"the text's number of bytes", std::to_string(text.token_count())}};
  ls::parallel::check_same_settings(group, length);
}

}  // namespace

TokenBatches::TokenBatches(const TokenBatchesOptions& options, ls::Communicator& group)
    : rank_(group.rank()),
      ranks_(group.size()),
      global_batch_(options.global_batch),
      context_(options.context),
      device_(options.device) {
  if (!options.replay.empty()) {
    replay_ = read_replay(options.replay);
    global_batch_ = replay_.size(1);
    context_ = replay_.size(2) - 1;
  }
  LOCKSTEP_CHECK(global_batch_ >= ranks_, InvalidArgument, "--global-batch ", global_batch_,
                 " leaves some of ", ranks_, " ranks without a sequence");
  if (!replays()) open_text(options, group);
}

void TokenBatches::open_text(const TokenBatchesOptions& options, ls::Communicator& group) {
  const auto text = ls::data::TokenDataset::from_text_files(
      options.text.empty() ? project_text() : options.text,
      {.context = options.context, .stride = std::max<std::int64_t>(1, options.context / 4)});
  check_same_text(group, text);
  auto [train, held_out] = text.split(training_part);
  held_out_ = std::move(held_out);
  const ls::data::RandomSampler sampler(train.size(), options.seed);
  text_.emplace(std::move(train), sampler,
                ls::data::DataLoaderOptions{.batch_size = global_batch_,
                                            .drop_last = true,
                                            .rank = rank_,
                                            .world_size = ranks_,
                                            .num_workers = 1,
                                            .device = device_});
}

std::int64_t TokenBatches::steps(std::int64_t wanted) const {
  return replays() ? std::min(wanted, replay_.size(0)) : wanted;
}

ls::data::LoaderState TokenBatches::state() const {
  return replays() ? ls::data::LoaderState{.samples = step_ * global_batch_} : text_->state();
}

void TokenBatches::load_state(const ls::data::LoaderState& state) {
  if (replays())
    step_ = state.samples / global_batch_;
  else
    text_->load_state(state);
}

ls::data::TokenBatch TokenBatches::next() {
  if (!replays()) {
    if (position_) ++*position_;
    if (!position_ || *position_ == text_->end()) position_ = text_->begin();
    return std::move(**position_);
  }
  const ls::Tensor rows = replay_.select(0, step_++);
  const std::int64_t share = global_batch_ / ranks_, extra = global_batch_ % ranks_;
  const std::int64_t begin = rank_ * share + std::min<std::int64_t>(rank_, extra);
  const ls::Tensor part = rows.slice(0, begin, begin + share + (rank_ < extra ? 1 : 0));
  return {part.slice(1, 0, part.size(1) - 1).contiguous().to(device_, true),
          part.slice(1, 1, part.size(1)).contiguous().to(device_, true)};
}

}  // namespace examples
