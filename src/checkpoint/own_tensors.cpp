#include <map>
#include <string>
#include <utility>

#include "checkpoint/each_rank.hpp"
#include "io/in_quotes.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/checkpoint/states.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::checkpoint {
namespace {

/// Copies what was read into the tensors of its names, or into none.
void load_into(NamedTensors& tensors, const NamedTensors& read) {
  std::map<std::string, Tensor> found(read.begin(), read.end());
  for (const auto& [name, tensor] : tensors) {
    const auto each = found.find(name);
    LOCKSTEP_CHECK(each != found.end(), InvalidArgument, io::in_quotes(name),
                   " is not among the saved tensors");
    const Tensor& saved = each->second;
    LOCKSTEP_CHECK(saved.shape() == tensor.shape() && saved.dtype() == tensor.dtype(),
                   InvalidArgument, io::in_quotes(name), " was saved with shape ", saved.shape(),
                   " and ", saved.dtype(), " on each rank, and has ", tensor.shape(), " and ",
                   tensor.dtype());
  }
  LOCKSTEP_CHECK(found.size() == tensors.size(), InvalidArgument, found.size(),
                 " tensors were saved, and there are ", tensors.size());
  const NoGradGuard no_recording;
  for (auto& [name, tensor] : tensors) tensor.copy_(found.at(name).to(tensor.device()));
}

}  // namespace

TensorState state_of_each_rank(NamedTensors tensors, const comm::Communicator& group) {
  for (const auto& [name, tensor] : tensors)
    LOCKSTEP_CHECK(tensor.defined(), InvalidArgument, io::in_quotes(name), " is undefined");
  TensorState own{
      .pieces =
          [tensors] {
            std::vector<Piece> pieces;
            for (const auto& [name, tensor] : tensors)
              pieces.push_back({.name = name, .tensor = tensor.detach()});
            return pieces;
          },
      .load = [tensors](const NamedTensors& read) mutable { load_into(tensors, read); }};
  return of_each_rank(
      std::move(own), group.rank(), group.size(), [](const std::string&) { return true; },
      OfOthers::in_turn);
}

}  // namespace lockstep::checkpoint
