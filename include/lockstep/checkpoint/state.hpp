#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/values.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/parallel/shard_range.hpp"
#include "lockstep/tensor/named_tensors.hpp"

/// @file
/// What a checkpoint is made of: how an object gives its state, and takes it back.

namespace lockstep::checkpoint {

/// A tensor to be saved: one that all ranks hold alike, or what this rank has of one.
struct Piece {
  std::string name;
  Tensor tensor;
  /// Of which whole, and from where on; unset: the tensor is whole, and the same on all ranks.
  std::optional<parallel::ShardRange> range = {};
  /// Whether it is saved as rank 0 has it, though others may have other values; without a range.
  bool of_rank_0 = false;
  /// Whether it may be copied when `save` has returned, beside the next steps. Whoever writes to it
  /// until then waits: ops in place, optimizers, averages of weights, collectives into
  /// parallel::writable_buffer, launches of captured steps. False for what a forward changes, which
  /// would wait, and for what is written in other ways, through pointers or kernels of one's own.
  bool copied_later = false;
  /// Whether `load`, given this tensor itself or a view of it, leaves it where it is. Contiguous
  /// ones on the CPU are then given to `load` in the place of new ones: training needs no second
  /// copy of them. A part of the values is there when `load` is called, and all are when all ranks
  /// have taken the state's others; what they had before comes back if a rank refuses the state.
  bool loads_in_place = false;
};

/// State in tensors, in files of their own: "NAME-00001-of-00002.safetensors".
struct TensorState {
  /// This rank's pieces of all tensors, in their dtypes, on any device. Saves and loads ask for
  /// them, the latter maybe without using them; it must not wait for other ranks.
  std::function<std::vector<Piece>()> pieces;
  /// What of a saved tensor this rank shall be given back; unset, or none, for all of it. The
  /// ranks' ranges of a tensor make up all of it, each element once: what is read is verified.
  std::function<std::optional<parallel::ShardRange>(const std::string& name, const Shape& shape)>
      wanted = {};
  /// Takes them back: on the CPU, under their names; pieces in one dimension. They are nobody
  /// else's, but those that load in place.
  /// @throws InvalidArgument naming all that does not fit.
  std::function<void(NamedTensors tensors)> load;
  /// Takes back those that fit, and leaves the rest as it is (ManagerOptions::partial). Unset: all,
  /// or where `load` throws InvalidArgument, none.
  /// @return a line for each that was not taken back, or that there was nothing for: the same on
  /// all ranks.
  std::function<std::vector<std::string>(NamedTensors tensors)> load_what_fits = {};
  /// Pieces that are not always there: saved where `has_more` is true on any rank, and then asked
  /// for on all. Their names and shapes must be alike.
  std::function<std::vector<Piece>()> more = {};
  /// Whether this rank has any of `more`, which ranks ask each other with each save. Set with it.
  std::function<bool()> has_more = {};
  /// What must be the same on all ranks, in words behind its name: " after 3 updates". A save on
  /// ranks that say otherwise is refused on all. Asks no device.
  std::function<std::string()> told = {};
  /// The group whose ranks have the state alike, and how many they are; unset: all ranks that save.
  /// Ranks of several such groups have states of their own under one name, and a save is refused.
  struct Sharers {
    std::string group;
    int ranks = 0;
  };
  std::optional<Sharers> sharers = {};
  /// What it is the state of, for Manager::keeps.
  const void* object = nullptr;
};

/// What a load took over.
struct LoadReport {
  std::vector<std::string> loaded;  ///< names of states, whole or in part
  /// What is as it was before: "average: the checkpoint has none",
  /// "model: head.weight: shape [10, 8], expected [5, 8]".
  std::vector<std::string> left;
};

/// State in values.
struct ValueState {
  /// What is to be kept: of rank 0, or with `load_on_new_rank` of each rank.
  std::function<Values()> values;
  /// Takes it back. @throws CorruptData, InvalidArgument.
  std::function<void(const Values& values)> load;
  /// Set it for what ranks have of their own. A rank that the saved job did not have calls this in
  /// the place of `load`, with the values of rank 0. Where ranks had it alike when it was saved, or
  /// have it alike now and had not, `load` gets those of rank 0.
  std::function<void(const Values& of_rank_0)> load_on_new_rank = {};
};

}  // namespace lockstep::checkpoint
