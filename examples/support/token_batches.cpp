#include "support/token_batches.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <lockstep/autograd/ops.hpp>
#include <lockstep/data/packed_dataset.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/data/token_dataset.hpp>
#include <lockstep/io/mapped_file.hpp>
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

/// A data set's batches as their tensors.
template <class D>
struct AsTensors {
  D dataset;

  std::int64_t size() const { return dataset.size(); }
  std::uint64_t signature() const { return dataset.signature(); }
  Sequences fetch(std::span<const std::int64_t> indices) const {
    auto batch = dataset.fetch(indices);
    Sequences tensors;
    batch.visit_tensors([&](ls::Tensor& each) { tensors.push_back(each); });
    return tensors;
  }
};

template <class D>
TextDataset as_tensors(D dataset) {
  return AsTensors<D>{std::move(dataset)};
}

/// Text to train with and to judge by.
struct Text {
  std::int64_t bytes;
  TextDataset train, held_out;
};

Text cut(std::span<const std::filesystem::path> files, std::int64_t context) {
  const auto text = ls::data::TokenDataset::from_text_files(
      files, {.context = context, .stride = std::max<std::int64_t>(1, context / 4)});
  auto [train, held_out] = text.split(training_part);
  return {text.token_count(), as_tensors(std::move(train)), as_tensors(std::move(held_out))};
}

Text pack(std::span<const std::filesystem::path> files, std::int64_t context) {
  std::string text;
  for (const auto& path : files) {
    const ls::io::MappedFile file(path);
    text.append(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }
  const auto part = static_cast<std::size_t>(training_part * static_cast<double>(text.size()));
  const std::size_t middle = std::min(text.find('\n', part), text.size() - 1) + 1;
  const auto packed = [&](std::size_t begin, std::size_t end) {
    return as_tensors(ls::data::PackedDataset::from_text(
        text.substr(begin, end - begin), {.context = context, .end_of_text = '\n'}));
  };
  return {std::ssize(text), packed(0, middle), packed(middle, text.size())};
}

void check_same_text(ls::Communicator& group, const Text& text) {
  const std::vector<std::pair<std::string, std::string>> length{
      {"the text's number of bytes", std::to_string(text.bytes)}};
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
  const auto files = options.text.empty() ? project_text() : options.text;
  const Text text = options.packs ? pack(files, options.context) : cut(files, options.context);
  check_same_text(group, text);
  held_out_ = text.held_out;
  text_.emplace(text.train, ls::data::RandomSampler(text.train.size(), options.seed),
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

Sequences TokenBatches::next() {
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
