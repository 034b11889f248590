#include "lockstep/data/token_dataset.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "data/signature.hpp"
#include "data/token_file.hpp"
#include "lockstep/io/mapped_file.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read in place");

TokenDatasetOptions check_options(TokenDatasetOptions options) {
  LOCKSTEP_CHECK(options.context > 0, InvalidArgument, "context is ", options.context,
                 "; at least 1 token is needed");
  LOCKSTEP_CHECK(options.stride >= 0 && options.vocabulary >= 0, InvalidArgument, "stride ",
                 options.stride, " and vocabulary ", options.vocabulary, " must not be negative");
  if (options.stride == 0) options.stride = options.context;
  return options;
}

}  // namespace

TokenDataset::TokenDataset(Run run, Options options)
    : run_(std::move(run)),
      options_(check_options(options)),
      count_(static_cast<std::int64_t>(run_.bytes.size()) / run_.width) {
  LOCKSTEP_CHECK(count_ > options_.context, InvalidArgument, run_.source, ": ", count_,
                 " tokens make no sequence of ", options_.context, "; at least ",
                 static_cast<std::uint64_t>(options_.context) + 1,
                 " are needed (each has a target)");
}

TokenDataset TokenDataset::from_text_files(std::span<const std::filesystem::path> files,
                                           Options options) {
  LOCKSTEP_CHECK(!files.empty(), InvalidArgument,
                 "no text files were given; at least one is needed");
  if (files.size() == 1) {
    const auto file = std::make_shared<const io::MappedFile>(files[0]);
    return TokenDataset({file, file->bytes(), 1, files[0].string()}, options);
  }
  std::string text;
  for (const auto& path : files) {
    const io::MappedFile file(path);
    text.append(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }
  return from_text(std::move(text), options);
}

TokenDataset TokenDataset::from_text(std::string text, Options options) {
  const auto owner = std::make_shared<const std::string>(std::move(text));
  return TokenDataset({owner, std::as_bytes(std::span(*owner)), 1, "the text"}, options);
}

TokenDataset TokenDataset::from_token_file(const std::filesystem::path& path, Options options) {
  const auto file = map_tokens(path, options.token_bytes, options.vocabulary - 1);
  return TokenDataset({file, file->bytes(), options.token_bytes, path.string()}, options);
}

std::int64_t TokenDataset::size() const {
  return (count_ - 1 - options_.context) / options_.stride + 1;
}

TokenDataset TokenDataset::part(std::int64_t begin, std::int64_t end) const {
  Run run = run_;
  run.bytes = run.bytes.subspan(static_cast<std::size_t>(begin * run.width),
                                static_cast<std::size_t>((end - begin) * run.width));
  TokenDataset part(std::move(run), options_);
  part.first_ = first_ + begin;
  return part;
}

std::pair<TokenDataset, TokenDataset> TokenDataset::split(double fraction) const {
  LOCKSTEP_CHECK(fraction > 0 && fraction < 1, InvalidArgument, "the fraction ", fraction,
                 " leaves one part empty; give one between 0 and 1");
  const auto middle = static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(count_)));
  return {part(0, middle), part(middle, count_)};
}

void TokenDataset::check_token(std::int64_t token, std::int64_t position) const {
  LOCKSTEP_CHECK(token < options_.vocabulary, CorruptData, run_.source, ": token ",
                 first_ + position, " is ", token, ", but the vocabulary ends at ",
                 options_.vocabulary - 1);
}

template <class Token>
void TokenDataset::fill(std::span<const std::int64_t> indices, TokenBatch& batch) const {
  std::int64_t* token = batch.tokens.data<std::int64_t>();
  std::int64_t* target = batch.targets.data<std::int64_t>();
  const std::int64_t context = options_.context;
  for (const auto index : indices) {
    LOCKSTEP_CHECK(index >= 0 && index < size(), InvalidArgument, "sequence ", index,
                   " is outside 0 to ", size() - 1);
    const std::int64_t start = index * options_.stride;
    const Token* from = reinterpret_cast<const Token*>(run_.bytes.data()) + start;
    if (options_.vocabulary > 0) {
      const Token* largest = std::max_element(from, from + context + 1);
      check_token(*largest, start + (largest - from));
    }
    token = std::copy_n(from, context, token);
    target = std::copy_n(from + 1, context, target);
  }
}

TokenBatch TokenDataset::fetch(std::span<const std::int64_t> indices) const {
  const Shape shape{static_cast<std::int64_t>(indices.size()), options_.context};
  TokenBatch batch{empty(shape, {.dtype = DType::i64}), empty(shape, {.dtype = DType::i64})};
  with_token_of(run_.width, [&]<class Token>(Token) { fill<Token>(indices, batch); });
  return batch;
}

std::uint64_t TokenDataset::signature() const {
  return signature_of("tokens", options_.context, options_.stride, run_.width, first_,
                      signature_of_bytes(run_.bytes));
}

}  // namespace lockstep::data
