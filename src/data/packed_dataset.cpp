#include "lockstep/data/packed_dataset.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <utility>

#include "data/signature.hpp"
#include "data/token_file.hpp"
#include "lockstep/io/mapped_file.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read in place");

constexpr std::int64_t ignored = -100, no_document = -1;

// Gives each of some lengths, which do not grow, a bin of the capacity: of those with enough room
// the one with the least. Returns the bins, and how many there are.
std::pair<std::vector<std::uint32_t>, std::size_t> best_fit(std::span<const std::int64_t> lengths,
                                                            std::int64_t capacity) {
  std::vector<std::vector<std::uint32_t>> with_room(static_cast<std::size_t>(capacity) + 1);
  std::set<std::int64_t> rooms;  // of which there are bins
  std::vector<std::uint32_t> bins;
  std::uint32_t count = 0;
  for (const std::int64_t length : lengths) {
    const auto room = rooms.lower_bound(length);
    std::int64_t left = capacity - length;
    std::uint32_t bin = count;
    if (room == rooms.end()) {
      ++count;
    } else {
      auto& fitting = with_room[static_cast<std::size_t>(*room)];
      bin = fitting.back();
      fitting.pop_back();
      left = *room - length;
      if (fitting.empty()) rooms.erase(room);
    }
    bins.push_back(bin);
    if (left == 0) continue;
    with_room[static_cast<std::size_t>(left)].push_back(bin);
    rooms.insert(left);
  }
  return {std::move(bins), count};
}

}  // namespace

Tensor PackedBatch::mask() const {
  return documents.unsqueeze(2).eq(documents.unsqueeze(1)).unsqueeze(1);
}

PackedDataset::PackedDataset(Text text, Options options)
    : text_(std::move(text)), options_(options) {
  LOCKSTEP_CHECK(options.context > 0 && options.end_of_text >= 0, InvalidArgument, "context ",
                 options.context, " and end_of_text ", options.end_of_text,
                 "; at least 1 token and a token of 0 or more are needed");
  index_ = std::make_shared<const Index>(
      pack(with_token_of(text_.width, [&]<class Token>(Token) { return cut<Token>(); })));
}

PackedDataset PackedDataset::from_token_file(const std::filesystem::path& path, Options options) {
  const auto file = map_tokens(path, options.token_bytes, options.end_of_text);
  return PackedDataset({file, file->bytes(), options.token_bytes, path.string()}, options);
}

PackedDataset PackedDataset::from_text(std::string text, Options options) {
  const auto owner = std::make_shared<const std::string>(std::move(text));
  return PackedDataset({owner, std::as_bytes(std::span(*owner)), 1, "the text"}, options);
}

// The documents, the last token of which is a target alone, in pieces that fit into a sequence.
template <class Token>
std::vector<PackedDataset::Piece> PackedDataset::cut() const {
  const auto* tokens = reinterpret_cast<const Token*>(text_.bytes.data());
  const auto count = static_cast<std::int64_t>(text_.bytes.size() / sizeof(Token));
  std::vector<Piece> pieces;
  bool ends = false;
  const auto add = [&](std::int64_t begin, std::int64_t last) {
    for (; begin < last; begin += options_.context)
      pieces.push_back({begin, std::min(options_.context, last - begin)});
  };
  std::int64_t begin = 0;
  for (std::int64_t position = 0; position < count; ++position)
    if (tokens[position] == options_.end_of_text) {
      add(begin, position);
      begin = position + 1;
      ends = true;
    }
  add(begin, count - 1);
  LOCKSTEP_CHECK(ends, InvalidArgument, text_.source, ": none of ", count,
                 " tokens is the end_of_text, ", options_.end_of_text,
                 "; give the token that ends documents");
  LOCKSTEP_CHECK(!pieces.empty(), InvalidArgument, text_.source,
                 ": no document has a token that another one follows");
  return pieces;
}

PackedDataset::Index PackedDataset::pack(const std::vector<Piece>& pieces) const {
  std::vector<Piece> sorted = pieces;
  std::ranges::stable_sort(sorted, std::ranges::greater(), &Piece::length);
  std::vector<std::int64_t> lengths;
  for (const Piece& piece : sorted) lengths.push_back(piece.length);
  const auto [bins, count] = best_fit(lengths, options_.context);

  Index index{.pieces = std::vector<Piece>(sorted.size()),
              .first_piece = std::vector<std::int64_t>(count + 1),
              .tokens = std::reduce(lengths.begin(), lengths.end())};
  for (const std::uint32_t bin : bins) ++index.first_piece[bin + 1];
  std::partial_sum(index.first_piece.begin(), index.first_piece.end(), index.first_piece.begin());
  std::vector<std::int64_t> next = index.first_piece;
  for (std::size_t i = 0; i < sorted.size(); ++i)
    index.pieces[static_cast<std::size_t>(next[bins[i]]++)] = sorted[i];
  index.signature =
      lockstep::detail::fnv_hash(index.pieces.data(), index.pieces.size() * sizeof(Piece));
  return index;
}

std::uint64_t PackedDataset::signature() const {
  return signature_of("packed", options_.context, options_.end_of_text, text_.width,
                      index_->signature, signature_of_bytes(text_.bytes));
}

std::span<const PackedDataset::Piece> PackedDataset::pieces(std::int64_t index) const {
  LOCKSTEP_CHECK(index >= 0 && index < size(), InvalidArgument, "sequence ", index,
                 " is outside 0 to ", size() - 1);
  const auto* first = index_->first_piece.data() + index;
  return {index_->pieces.data() + first[0], index_->pieces.data() + first[1]};
}

template <class Token>
void PackedDataset::fill(std::span<const std::int64_t> indices, PackedBatch& batch) const {
  const auto* text = reinterpret_cast<const Token*>(text_.bytes.data());
  auto *token = batch.tokens.data<std::int64_t>(), *target = batch.targets.data<std::int64_t>(),
       *position = batch.positions.data<std::int64_t>(),
       *document = batch.documents.data<std::int64_t>();
  for (const std::int64_t index : indices) {
    std::int64_t number = 0, padding = options_.context;
    for (const auto& [begin, length] : pieces(index)) {
      token = std::copy_n(text + begin, length, token);
      target = std::copy_n(text + begin + 1, length, target);
      std::iota(position, position + length, std::int64_t{0});
      position += length;
      document = std::fill_n(document, length, number++);
      padding -= length;
    }
    token = std::fill_n(token, padding, 0);
    target = std::fill_n(target, padding, ignored);
    position = std::fill_n(position, padding, 0);
    document = std::fill_n(document, padding, no_document);
  }
}

PackedBatch PackedDataset::fetch(std::span<const std::int64_t> indices) const {
  const Shape shape{std::ssize(indices), options_.context};
  const TensorOptions options{.dtype = DType::i64};
  PackedBatch batch{empty(shape, options), empty(shape, options), empty(shape, options),
                    empty(shape, options)};
  with_token_of(text_.width, [&]<class Token>(Token) { fill<Token>(indices, batch); });
  return batch;
}

}  // namespace lockstep::data
