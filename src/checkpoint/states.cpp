#include "lockstep/checkpoint/states.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "autograd/held_memory.hpp"
#include "checkpoint/accumulation.hpp"
#include "checkpoint/buffer_names.hpp"
#include "checkpoint/each_rank.hpp"
#include "checkpoint/shard_names.hpp"
#include "checkpoint/told_values.hpp"
#include "io/in_quotes.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/leaf.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/nn/module.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/weight_average.hpp"
#include "lockstep/parallel/delayed_reduction.hpp"
#include "lockstep/parallel/parameter_shards.hpp"
#include "lockstep/parallel/power_sgd.hpp"
#include "optim/late_values.hpp"
#include "tensor/ownership.hpp"

namespace lockstep::checkpoint {
namespace {

using parallel::ShardRange;

/// Of what optimizers, averages of weights and hooks keep.
std::vector<Piece> pieces_between_steps(const NamedTensors& tensors) {
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : tensors)
    pieces.push_back({.name = name, .tensor = tensor, .copied_later = true});
  return pieces;
}

/// @throws InvalidArgument while its parameters hold their averages: a run that goes on would train
/// these, though with the states of others.
std::vector<Piece> pieces_of(const optim::Optimizer& optimizer, const NamedTensors& state) {
  for (const Tensor& parameter : optimizer.parameters())
    LOCKSTEP_CHECK(!autograd::HeldMemory::has(parameter), InvalidArgument,
                   "a checkpoint with an optimizer whose parameters hold their averages: a run "
                   "that goes on from it would train these; swap_out() the WeightAverage first");
  std::vector<Piece> pieces = pieces_between_steps(state);
  const std::set<const Storage*> own = optimizer.state_memory();
  for (Piece& piece : pieces)
    piece.loads_in_place = own.contains(piece.tensor.impl().storage.get());
  return pieces;
}

/// Of a module, whose buffers change in a forward.
std::vector<Piece> pieces_of(const nn::Module& module, const NamedTensors& state) {
  std::set<const Storage*> parameters;
  for (const auto& [name, parameter] : module.named_parameters())
    parameters.insert(parameter.impl().storage.get());
  for (const auto& [name, buffer] : module.named_buffers())
    parameters.erase(buffer.impl().storage.get());
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : state) {
    const bool is_parameter = parameters.contains(tensor.impl().storage.get());
    pieces.push_back({.name = name,
                      .tensor = tensor,
                      .copied_later = is_parameter,
                      .loads_in_place = is_parameter});
  }
  return pieces;
}

/// Of one that nobody wraps, whose buffers may differ between ranks.
std::vector<Piece> pieces_of(const nn::Module& module) {
  std::vector<Piece> pieces = pieces_of(module, module.state_dict());
  for (Piece& piece : pieces) piece.of_rank_0 = !piece.copied_later;
  return pieces;
}

/// Averages of buffers differ as these do; they are loaded as rank 0 had them.
std::vector<Piece> pieces_of(const optim::WeightAverage& average) {
  std::vector<Piece> pieces = pieces_between_steps(average.state_dict());
  const auto keys = average.keys_of_buffers();
  for (Piece& piece : pieces) piece.of_rank_0 = std::ranges::find(keys, piece.name) != keys.end();
  return pieces;
}

/// Tensors of a checkpoint that have the shape of this rank's shard of a parameter, and are none:
/// by name, with what is wrong.
using NotShards = std::map<std::string, std::string>;

/// Whether each rank has but shards of the parameters.
bool has_only_shards(const nn::ReplicatedModule& replica) {
  return replica.reducer().shards() && replica.reducer().gathered();
}

std::vector<Piece> pieces_of(const nn::Module& module, const nn::ReplicatedModule& replica) {
  std::vector<Piece> pieces = pieces_of(module, module.named_state());
  if (replica.keeps_gradients()) return pieces;
  const bool buffers_are_alike = replica.broadcasts_buffers();
  const auto piece_of = [&](const std::string& name) {
    return std::ranges::find(pieces, name, &Piece::name);
  };
  // Running statistics are each rank's own until the next forward begins with those of rank 0.
  for (const auto& [name, buffer] : module.named_buffers())
    if (const auto piece = piece_of(name); buffers_are_alike && piece != pieces.end())
      piece->of_rank_0 = true;
  if (!has_only_shards(replica)) return pieces;
  for (const auto& [name, shard] : replica.named_parameters()) {
    const auto range = replica.reducer().shards()->range_of(name);
    if (!range) continue;  // a parameter that does not train is whole
    const auto piece = piece_of(name);
    LOCKSTEP_CHECK(piece != pieces.end(), Error, "parameter ", name, " is not in the state");
    piece->tensor = shard.detach();
    piece->range = range;
    piece->copied_later = piece->loads_in_place = true;
  }
  return pieces;
}

const Tensor* find(const NamedTensors& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensors::value_type::first);
  return found == tensors.end() ? nullptr : &found->second;
}

/// Why a saved tensor does not fit.
std::string misfit(const std::string& name, DType there, const Shape& shape_there,
                   const Shape& shape, DType dtype) {
  return detail::concat(name, ": ", there, " ", shape_there, " there, ", dtype, " ", shape,
                        " here");
}

/// Whether values of one dtype become those of another as an optimizer's state does.
bool are_roundable(DType there, DType here) { return is_floating(there) && is_floating(here); }

/// Loads the tensors that fit; those of `elsewhere` come from another place.
/// @param rounds whether floating ones of other bits fit
/// @return a line for each other one.
std::vector<std::string> load_what_fits(nn::Module& module, const NamedTensors& tensors,
                                        const std::set<std::string>& elsewhere = {},
                                        bool rounds = true) {
  const NamedTensors own = module.named_state();
  std::vector<std::string> left;
  NamedTensors fitting;
  std::set<std::string> told;
  for (const auto& [name, tensor] : tensors) {
    const Tensor* here = find(own, name);
    const bool has_dtype = here && (tensor.dtype() == here->dtype() ||
                                    (rounds && are_roundable(tensor.dtype(), here->dtype())));
    if (!here || (has_dtype && tensor.shape() == here->shape())) {
      fitting.emplace_back(name, here ? tensor.to(here->dtype()) : tensor);
      continue;
    }
    left.push_back(misfit(name, tensor.dtype(), tensor.shape(), here->shape(), here->dtype()));
    told.insert(name);
  }
  const nn::LoadReport report = module.load_state_dict(fitting, false);
  for (const std::string& name : report.missing)
    if (!told.contains(name) && !elsewhere.contains(name))
      left.push_back(name + ": the checkpoint has none");
  for (const std::string& name : report.unexpected) left.push_back(name + ": the model has none");
  return left;
}

/// Shards first: the module tells all else that does not fit.
/// @param others of the tensors.
/// @return a line for each tensor that was left. @throws InvalidArgument for them, before anything
/// changes, if `is_strict`.
std::vector<std::string> load_shards(nn::Module& module, const nn::ReplicatedModule& replica,
                                     const NamedTensors& tensors, const NotShards& others,
                                     bool is_strict) {
  const NoGradGuard no_recording;
  const NamedTensors shards = replica.named_parameters();
  NamedTensors rest;
  std::vector<std::string> left;
  std::set<std::string> elsewhere;
  std::vector<std::pair<Tensor, Tensor>> loaded;
  for (const auto& [name, tensor] : tensors) {
    const Tensor* shard = find(shards, name);
    const auto range = replica.reducer().shards()->range_of(name);
    if (!shard || !range) {
      rest.emplace_back(name, tensor);
      continue;
    }
    elsewhere.insert(name);
    const bool is_shard = !others.contains(name) && tensor.shape() == Shape{shard->numel()};
    const bool has_dtype = tensor.dtype() == shard->dtype() ||
                           (!is_strict && are_roundable(tensor.dtype(), shard->dtype()));
    if (is_shard && has_dtype)
      loaded.emplace_back(*shard, tensor.reshape(shard->shape()));
    else
      left.push_back(misfit(name, tensor.dtype(), is_shard ? range->whole : tensor.shape(),
                            range->whole, shard->dtype()));
  }
  const auto check_nothing_left = [&] {
    std::string problems;
    for (const std::string& line : left) problems += "\n  " + line;
    LOCKSTEP_CHECK(!is_strict || left.empty(), InvalidArgument,
                   "the state does not fit the module:", problems);
  };
  check_nothing_left();
  const std::vector<std::string> left_too = load_what_fits(module, rest, elsewhere, !is_strict);
  left.insert(left.end(), left_too.begin(), left_too.end());
  check_nothing_left();
  for (auto& [shard, value] : loaded)
    if (!is_same_memory(shard, value)) shard.copy_(value.to(shard.device()).to(shard.dtype()));
  return left;
}

/// What a rank wants of a tensor that has the whole shape of a parameter.
/// @param others is told of a tensor of another model that could be taken for a shard.
std::optional<ShardRange> wanted_of(const std::optional<ShardRange>& range, const std::string& name,
                                    const Shape& shape, NotShards& others) {
  others.erase(name);
  if (!range || range->whole == shape) return range;
  if (shape == Shape{range->count} || shape == shape_of_shard(*range))
    others[name] = detail::concat(shape, " there, ", range->whole, " here");
  return std::nullopt;
}

/// An optimizer's states as it has those of shards, without others.
NamedTensors in_form_of_shards(NamedTensors tensors, ShardNames& names, const NotShards& others) {
  NamedTensors own;
  for (auto& [name, tensor] : tensors) {
    if (others.contains(name)) continue;
    const auto range = names.range_of(name);
    const bool is_shard = range && tensor.shape() == Shape{range->count};
    own.emplace_back(name, is_shard ? tensor.reshape(shape_of_shard(*range)) : std::move(tensor));
  }
  return own;
}

/// Those that were read now, and not in a load before.
NotShards among(const NamedTensors& tensors, const NotShards& others) {
  NotShards found;
  for (const auto& [name, tensor] : tensors)
    if (const auto other = others.find(name); other != others.end()) found.insert(*other);
  return found;
}

/// A state of an optimizer of shards, whose other tensors are among what does not fit.
void load_shards(optim::Optimizer& optimizer, ShardNames& names, NamedTensors tensors,
                 const NotShards& others) {
  std::string problems;
  for (const auto& [name, problem] : others) problems += "\n  " + name + ": " + problem;
  LOCKSTEP_CHECK(others.empty(), InvalidArgument, "optimizer state:", problems);
  const optim::LateValues late;
  optimizer.load_state_dict(in_form_of_shards(std::move(tensors), names, others));
}

/// The same for what fits. @return a line for each other one.
std::vector<std::string> load_fitting_shards(optim::Optimizer& optimizer, ShardNames& names,
                                             NamedTensors tensors, const NotShards& others) {
  std::vector<std::string> left =
      optimizer.load_matching_state(in_form_of_shards(std::move(tensors), names, others));
  for (std::string& line : left)
    if (const auto other = others.find(line.substr(0, line.find(": "))); other != others.end())
      line = other->first + ": " + other->second;
  return left;
}

/// What ranks have of a replica: of each its own where it `differs`. Ranks of different replicas,
/// those of a mesh's other axes, have different states under the same names.
TensorState of_replica(TensorState state, const nn::ReplicatedModule& replica,
                       std::function<bool(const std::string& name)> differs) {
  const comm::Communicator& group = *replica.group();
  const void* const object = state.object;
  state = of_each_rank(std::move(state), group.rank(), group.size(), std::move(differs));
  state.object = object;
  state.sharers = {group.name(), group.size()};
  return state;
}

/// Of each rank its own where ranks train alone.
TensorState unless_alike(TensorState state, const nn::ReplicatedModule& replica) {
  return of_replica(std::move(state), replica,
                    [&replica](const std::string&) { return replica.keeps_gradients(); });
}

/// The same of a module. Its gradients between micro-batches are each rank's own, too, and its
/// buffers where no forward makes them alike.
TensorState unless_alike(TensorState state, const nn::Module& module,
                         nn::ReplicatedModule& replica) {
  const auto buffers = std::make_shared<BufferNames>(module);
  const auto differs = [&replica, buffers](const std::string& name) {
    if (replica.keeps_gradients() || is_accumulation(name)) return true;
    return !replica.broadcasts_buffers() && buffers->contains(name);
  };
  return of_replica(with_accumulation(std::move(state), replica), replica, differs);
}

std::string told_updates(const optim::WeightAverage& average) {
  return detail::concat(" after ", average.updates(), " updates");
}

template <class Hook>
TensorState state_of_hook(Hook& hook) {
  return {.pieces = [&hook] { return pieces_between_steps(hook.state_dict()); },
          .load = [&hook](const NamedTensors& tensors) { hook.load_state_dict(tensors); },
          .object = static_cast<const parallel::BucketReduction*>(&hook)};
}

}  // namespace

TensorState state_of(nn::Module& module) {
  return {.pieces = [&module] { return pieces_of(module); },
          .load =
              [&module](const NamedTensors& tensors) {
                module.load_state_dict(without_accumulation(tensors));
              },
          .load_what_fits =
              [&module](const NamedTensors& tensors) {
                return load_what_fits(module, without_accumulation(tensors));
              },
          .told =
              [&module] {
                std::vector<Tensor> whole;
                for (const Tensor& each : module.parameters())
                  if (autograd::share_of(each) != autograd::GradientShare::part)
                    whole.push_back(each);
                return told_values(whole);
              }};
}

TensorState state_of(nn::Module& module, nn::ReplicatedModule& replica) {
  TensorState state = state_of(module);
  state.pieces = [&] { return pieces_of(module, replica); };
  state.told = {};
  if (!has_only_shards(replica)) return unless_alike(std::move(state), module, replica);
  const auto others = std::make_shared<NotShards>();
  state.wanted = [&replica, others](const std::string& name, const Shape& shape) {
    return wanted_of(replica.reducer().shards()->range_of(name), name, shape, *others);
  };
  state.load = [&, others](const NamedTensors& tensors) {
    load_shards(module, replica, tensors, *others, true);
  };
  state.load_what_fits = [&, others](const NamedTensors& tensors) {
    return load_shards(module, replica, tensors, *others, false);
  };
  return unless_alike(std::move(state), module, replica);
}

TensorState state_of(optim::Optimizer& optimizer) {
  optimizer.check_distinguishable();
  for (const Tensor& parameter : optimizer.parameters())
    LOCKSTEP_CHECK(autograd::share_of(parameter) != autograd::GradientShare::part, InvalidArgument,
                   "the optimizer has this rank's shards of parameters, and others theirs; add it "
                   "with the replica that shares them out: add(\"optimizer\", optimizer, ddp)");
  return {.pieces = [&optimizer] { return pieces_of(optimizer, optimizer.state_dict()); },
          .load =
              [&optimizer](NamedTensors tensors) {
                const optim::LateValues late;
                optimizer.load_state_dict(std::move(tensors));
              },
          .load_what_fits =
              [&optimizer](NamedTensors tensors) {
                return optimizer.load_matching_state(std::move(tensors));
              },
          .told =
              [&optimizer] {
                std::vector<Tensor> all;
                for (const auto& [name, tensor] : optimizer.state_dict()) all.push_back(tensor);
                return told_values(all);
              }};
}

TensorState state_of(optim::Optimizer& optimizer, nn::ReplicatedModule& replica) {
  if (!replica.reducer().shards()) {
    TensorState state = state_of(optimizer);
    state.told = {};
    state.pieces = [&] {
      return pieces_of(optimizer, replica.keeps_gradients() ? optimizer.even_state_dict()
                                                            : optimizer.state_dict());
    };
    return unless_alike(std::move(state), replica);
  }
  optimizer.check_distinguishable();
  const auto others = std::make_shared<NotShards>();
  const auto names = std::make_shared<ShardNames>(optimizer, replica);
  TensorState state{.pieces =
                        [&optimizer, names] {
                          names->check();
                          std::vector<Piece> pieces = pieces_of(optimizer, optimizer.state_dict());
                          for (Piece& piece : pieces) {
                            const auto range = names->range_of(piece.name);
                            if (range && shape_of_shard(*range) == piece.tensor.shape())
                              piece.range = range;
                          }
                          return pieces;
                        },
                    .wanted =
                        [names, others](const std::string& name, const Shape& shape) {
                          return wanted_of(names->range_of(name), name, shape, *others);
                        },
                    .load =
                        [&optimizer, names, others](NamedTensors tensors) {
                          const NotShards found = among(tensors, *others);
                          load_shards(optimizer, *names, std::move(tensors), found);
                        },
                    .load_what_fits =
                        [&optimizer, names, others](NamedTensors tensors) {
                          const NotShards found = among(tensors, *others);
                          return load_fitting_shards(optimizer, *names, std::move(tensors), found);
                        }};
  return unless_alike(std::move(state), replica);
}

TensorState state_of(optim::WeightAverage& average) {
  return {.pieces =
              [&average] {
                average.check_not_swapped();
                return pieces_of(average);
              },
          .load =
              [&average](const NamedTensors& tensors) {
                average.check_not_swapped();
                average.load_state_dict(tensors);
              },
          .told =
              [&average] {
                std::vector<Tensor> of_parameters;
                for (const Piece& piece : pieces_of(average))
                  if (!piece.of_rank_0) of_parameters.push_back(piece.tensor);
                return told_updates(average) + told_values(of_parameters);
              }};
}

TensorState state_of(optim::WeightAverage& average, nn::ReplicatedModule& replica) {
  TensorState state = state_of(average);
  state.pieces = [&replica, pieces = std::move(state.pieces)] {
    std::vector<Piece> all = pieces();
    if (replica.keeps_gradients() || !replica.broadcasts_buffers())
      for (Piece& piece : all) piece.of_rank_0 = false;
    return all;
  };
  state.told = [&average, &replica] {
    return replica.keeps_gradients() ? std::string() : told_updates(average);
  };
  return of_replica(std::move(state), replica, [&](const std::string& name) {
    if (replica.keeps_gradients()) return true;
    if (replica.broadcasts_buffers()) return false;
    const auto keys = average.keys_of_buffers();
    return std::ranges::find(keys, name) != keys.end();
  });
}

TensorState state_of(parallel::PowerSgd& hook, nn::ReplicatedModule& replica) {
  return of_replica(state_of_hook(hook), replica, [](const std::string&) { return true; });
}

TensorState state_of(parallel::DelayedReduction& hook) { return state_of_hook(hook); }

}  // namespace lockstep::checkpoint
