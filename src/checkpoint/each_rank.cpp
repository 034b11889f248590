#include "checkpoint/each_rank.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "io/in_quotes.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::checkpoint {
namespace {

using parallel::ShardRange;

constexpr std::string_view each_rank_prefix = "each_rank/";

Shape in_a_row(std::int64_t ranks, const Shape& shape) {
  Shape whole{ranks};
  for (const std::int64_t size : shape) whole.push_back(size);
  return whole;
}

Shape without_first(const Shape& whole) {
  Shape shape;
  for (int i = 1; i < whole.size(); ++i) shape.push_back(whole[i]);
  return shape;
}

/// Whether all ranks' tensors in a row have the same bytes.
bool are_equal(const Tensor& row) {
  if (row.numel() == 0) return true;
  const auto* const bytes = static_cast<const char*>(row.data_ptr());
  const auto each = row.nbytes() / static_cast<std::size_t>(row.size(0));
  // Each byte is compared with the one that is one rank before.
  return std::memcmp(bytes, bytes + each, row.nbytes() - each) == 0;
}

Tensor mean_of_ranks(const Tensor& row) {
  Tensor sum = zeros(without_first(row.shape()), {.dtype = DType::f64});
  for (std::int64_t i = 0; i < row.size(0); ++i) sum.add_(row.select(0, i).to(DType::f64));
  return (sum / static_cast<double>(row.size(0))).to(row.dtype());
}

/// Of counts: of steps, which a rank's scaler may have skipped.
Tensor largest_of_ranks(const Tensor& row) {
  return row.dtype() == DType::boolean ? amax(row.to(DType::i64), {0}).to(DType::boolean)
                                       : amax(row, {0});
}

class EachRank {
 public:
  using Differs = std::function<bool(const std::string& name)>;

  EachRank(TensorState state, int rank, int size, Differs differs, OfOthers others)
      : state_(std::move(state)),
        rank_(rank),
        size_(size),
        differs_(std::move(differs)),
        others_(others) {}

  const TensorState& state() const noexcept { return state_; }

  /// What of the state's pieces each rank has, in a row of ranks.
  std::vector<Piece> in_rows(std::vector<Piece> pieces) const {
    for (Piece& piece : pieces) {
      if (!differs_(piece.name)) continue;
      const std::int64_t count = piece.tensor.numel();
      piece.name = std::string(each_rank_prefix) + piece.name;
      piece.range = ShardRange{
          .whole = in_a_row(size_, piece.tensor.shape()), .begin = rank_ * count, .count = count};
    }
    return pieces;
  }

  std::optional<ShardRange> wanted(const std::string& name, const Shape& shape) {
    if (!name.starts_with(each_rank_prefix)) return wanted_of_state(name, shape);
    LOCKSTEP_CHECK(!shape.empty() && shape[0] > 0, CorruptData, io::in_quotes(name), " of shape ",
                   shape, " has no first dimension of ranks");
    saved_[name] = shape;
    if (!takes_own(name, shape)) return std::nullopt;
    const std::int64_t count = numel(shape) / size_;
    return ShardRange{.whole = shape, .begin = rank_ * count, .count = count};
  }

  /// What of the saved tensors this rank goes on with, under the names of the state.
  NamedTensors own_of(NamedTensors tensors) const {
    const NoGradGuard no_recording;
    NamedTensors own;
    std::string told;
    for (auto& [name, tensor] : tensors) {
      if (!name.starts_with(each_rank_prefix)) {
        own.emplace_back(name, std::move(tensor));
        continue;
      }
      const Shape& shape = saved_.at(name);
      own.emplace_back(name.substr(each_rank_prefix.size()),
                       takes_own(name, shape) ? tensor.reshape(without_first(shape))
                                              : of_others(name, tensor, told));
    }
    if (!told.empty() && rank_ == 0) LOCKSTEP_LOG(warning, told);
    return own;
  }

 private:
  /// @param name with the prefix.
  bool takes_own(const std::string& name, const Shape& saved) const {
    return differs_(name.substr(each_rank_prefix.size())) && saved[0] == size_;
  }

  std::optional<ShardRange> wanted_of_state(const std::string& name, const Shape& shape) const {
    return state_.wanted ? state_.wanted(name, shape) : std::nullopt;
  }

  /// What this rank has of a tensor from other ranks'.
  Tensor of_others(const std::string& name, const Tensor& row, std::string& told) const {
    if (others_ == OfOthers::joined) return joined(name, row, told);
    if (told.empty())
      told = detail::concat("the checkpoint has tensors of each of ", row.size(0),
                            " ranks, such as ", io::in_quotes(name), "; of ", size_,
                            " ranks, r goes on with that of r % ", row.size(0));
    return row.select(0, rank_ % row.size(0));
  }

  /// What this rank has of a tensor that is to be alike on all, from each saved rank's.
  Tensor joined(const std::string& name, const Tensor& row, std::string& averaged) const {
    const bool is_alike = are_equal(row);
    if (!is_alike && averaged.empty())
      averaged = detail::concat("the checkpoint has tensors of each of ", row.size(0),
                                " ranks, such as ", io::in_quotes(name), "; the ", size_,
                                differs_(name.substr(each_rank_prefix.size())) ? "" : " equal",
                                " replicas go on from the averages");
    const Tensor whole = is_alike                   ? row.select(0, 0)
                         : is_floating(row.dtype()) ? mean_of_ranks(row)
                                                    : largest_of_ranks(row);
    const auto part = wanted_of_state(name.substr(each_rank_prefix.size()), whole.shape());
    return part ? whole.reshape({whole.numel()}).slice(0, part->begin, part->begin + part->count)
                : whole;
  }

  TensorState state_;
  int rank_, size_;
  Differs differs_;
  OfOthers others_;
  std::map<std::string, Shape> saved_;  // by the names in the checkpoint
};

}  // namespace

TensorState of_each_rank(TensorState state, int rank, int size,
                         std::function<bool(const std::string& name)> differs, OfOthers others) {
  const auto each =
      std::make_shared<EachRank>(std::move(state), rank, size, std::move(differs), others);
  TensorState all{
      .pieces = [each] { return each->in_rows(each->state().pieces()); },
      .wanted = [each](const std::string& name,
                       const Shape& shape) { return each->wanted(name, shape); },
      .load =
          [each](NamedTensors tensors) { each->state().load(each->own_of(std::move(tensors))); }};
  if (each->state().load_what_fits)
    all.load_what_fits = [each](NamedTensors tensors) {
      return each->state().load_what_fits(each->own_of(std::move(tensors)));
    };
  all.told = each->state().told;
  if (!each->state().more) return all;
  all.more = [each] { return each->in_rows(each->state().more()); };
  all.has_more = each->state().has_more;
  return all;
}

}  // namespace lockstep::checkpoint
