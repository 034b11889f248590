#include <map>
#include <memory>
#include <string>
#include <utility>

#include "io/in_quotes.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/checkpoint/states.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::checkpoint {
namespace {

using parallel::ShardRange;

class OwnTensors {
 public:
  OwnTensors(NamedTensors tensors, int rank, int ranks)
      : tensors_(std::move(tensors)), rank_(rank), ranks_(ranks) {
    for (const auto& [name, tensor] : tensors_)
      LOCKSTEP_CHECK(tensor.defined(), InvalidArgument, io::in_quotes(name), " is undefined");
  }

  std::vector<Piece> pieces() const {
    std::vector<Piece> pieces;
    for (const auto& [name, tensor] : tensors_) {
      Shape whole{ranks_};
      for (const std::int64_t extent : tensor.shape()) whole.push_back(extent);
      pieces.push_back({.name = name,
                        .tensor = tensor.detach().reshape({tensor.numel()}),
                        .range = row_of(rank_, whole)});
    }
    return pieces;
  }

  /// The rank's row, or all of them where those that saved were more or fewer.
  std::optional<ShardRange> wanted(const std::string& name, const Shape& whole) {
    LOCKSTEP_CHECK(!whole.empty() && whole[0] > 0, InvalidArgument, io::in_quotes(name),
                   " was saved with shape ", whole, ", not as one tensor for each rank");
    saved_[name] = whole;
    if (whole[0] == ranks_) return row_of(rank_, whole);
    return std::nullopt;
  }

  void load(const NamedTensors& read) {
    std::map<std::string, Tensor> found;
    for (const auto& [name, tensor] : read) found.emplace(name, own_of(name, tensor));
    for (const auto& [name, tensor] : tensors_) {
      const auto each = found.find(name);
      LOCKSTEP_CHECK(each != found.end(), InvalidArgument, io::in_quotes(name),
                     " is not among the saved tensors");
      Shape shape = saved_.at(name);
      shape.erase(0);
      LOCKSTEP_CHECK(shape == tensor.shape() && each->second.dtype() == tensor.dtype(),
                     InvalidArgument, io::in_quotes(name), " was saved with shape ", shape, " and ",
                     each->second.dtype(), " on each rank, and has ", tensor.shape(), " and ",
                     tensor.dtype());
    }
    LOCKSTEP_CHECK(found.size() == tensors_.size(), InvalidArgument, found.size(),
                   " tensors were saved, and there are ", tensors_.size());
    const NoGradGuard no_recording;
    for (auto& [name, tensor] : tensors_)
      tensor.copy_(found.at(name).reshape(tensor.shape()).to(tensor.device()));
    if (read.empty()) return;
    const std::int64_t saved_ranks = saved_.at(read[0].first)[0];
    if (saved_ranks != ranks_ && rank_ == 0)
      LOCKSTEP_LOG(warning, "the checkpoint has ", io::in_quotes(read[0].first), " of each of ",
                   saved_ranks, " ranks; of ", ranks_, " ranks, r goes on with that of r % ",
                   saved_ranks);
  }

 private:
  static ShardRange row_of(std::int64_t rank, const Shape& whole) {
    const std::int64_t count = numel(whole) / whole[0];
    return {.whole = whole, .begin = rank * count, .count = count};
  }

  /// This rank's of what was read.
  Tensor own_of(const std::string& name, const Tensor& read) const {
    const std::int64_t saved_ranks = saved_.at(name)[0];
    return saved_ranks == ranks_ ? read : read.select(0, rank_ % saved_ranks);
  }

  NamedTensors tensors_;
  int rank_, ranks_;
  std::map<std::string, Shape> saved_;  // with the first dimension of ranks
};

}  // namespace

TensorState state_of_each_rank(NamedTensors tensors, const comm::Communicator& group) {
  const auto own = std::make_shared<OwnTensors>(std::move(tensors), group.rank(), group.size());
  return {.pieces = [own] { return own->pieces(); },
          .wanted = [own](const std::string& name,
                          const Shape& whole) { return own->wanted(name, whole); },
          .load = [own](const NamedTensors& read) { own->load(read); }};
}

}  // namespace lockstep::checkpoint
