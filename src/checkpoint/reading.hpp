#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/contents.hpp"
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
  std::vector<Tensor> tensors;                              ///< to be filled, on the CPU
};

/// Fills the tensors. Each rank reads its ranges, and an equal part of what all want, which it
/// gives to the others while it reads on. Every rank must call it, with readings that are alike but
/// for the ranges' places.
/// @return what this rank's bytes, headers on rank 0, add to the checksums of each reading's files,
/// as Contributions packs them.
/// @throws on every rank what the first one failed with: CorruptData, also for a FileError; what
/// the group throws.
std::vector<std::string> read_and_exchange(comm::Communicator& group,
                                           const std::filesystem::path& checkpoint,
                                           std::span<const Reading> readings);

}  // namespace lockstep::checkpoint
