#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/contents.hpp"
#include "checkpoint/former_values.hpp"
#include "checkpoint/staging.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/parallel/shard_range.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// How tensors of a checkpoint come to the ranks that want them.

namespace lockstep::checkpoint {

/// One state's files, and what this rank wants of them.
struct Reading {
  StemContents contents;
  std::vector<std::string> headers;                         ///< of the files
  std::vector<std::optional<parallel::ShardRange>> ranges;  ///< of each tensor; unset: all of it
  /// To be filled, contiguous, on the CPU.
  std::vector<Tensor> tensors;
  /// Of each tensor whether it is one that training has, to which others come last.
  std::vector<bool> in_place;
};

/// Fills the tensors, but of those that training has only this rank's own part. Each rank reads its
/// ranges, and an equal part of what all want, which it gives to the others while it reads on,
/// unless that is for tensors that training has. Every rank must call it, with readings that are
/// alike but for the ranges' places.
/// @param staging gets what tensors that training has have now of what changes.
/// @param former of each reading that, until it forgets: then `fill_in_place` comes.
/// @return what this rank's bytes, headers on rank 0, add to the checksums of each reading's files,
/// as Contributions packs them.
/// @throws on every rank what the first one failed with: CorruptData, also for a FileError; what
/// the group throws.
std::vector<std::string> read_and_exchange(comm::Communicator& group,
                                           const std::filesystem::path& checkpoint,
                                           std::span<const Reading> readings, Staging& staging,
                                           std::vector<FormerValues>& former);

/// Gives all ranks the parts of a state's tensors that training has, once they have taken its
/// others over. Every rank must call it, with what `read_and_exchange` had and gave.
/// @throws what the group throws: then some have changed, and others not.
void fill_in_place(comm::Communicator& group, const Reading& reading, FormerValues& former);

}  // namespace lockstep::checkpoint
