#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Making sure that replicas start as the same model, with the same options.

namespace lockstep::parallel {

/// Compares names, shapes and dtypes between the ranks of a group. Blocks.
/// @throws comm::Mismatch naming the first parameter that differs and how, on every rank.
void check_same_parameters(comm::Communicator& group,
                           std::span<const std::pair<std::string, Tensor>> parameters);

/// Compares settings between the ranks of a group: what they are called in messages, and their
/// values, such as {"--lr", "0.001"}. One exchange for all of them. Blocks; every rank must call
/// it.
/// @throws InvalidArgument on every rank, naming the first setting that differs, the two values and
/// their ranks.
void check_same_settings(comm::Communicator& group,
                         std::span<const std::pair<std::string, std::string>> settings);

/// Compares a number between the ranks of a group, such as a sampler's signature. Blocks; every
/// rank must call it.
/// @param what what the number stands for, for the message.
/// @throws comm::Mismatch on every rank, naming the first rank whose number is not rank 0's.
void check_same_value(comm::Communicator& group, std::string_view what, std::uint64_t value);

/// Gives every rank the values of root, a few large messages for many tensors. Blocks.
/// @param tensors on the group's device; the same shapes and dtypes on every rank.
/// @param options what the ranks compare; of the id's part, those of one call count from there.
void broadcast_tensors(comm::Communicator& group, std::span<const Tensor> tensors, int root = 0,
                       comm::CollectiveOptions options = {.label = "model values"});

}  // namespace lockstep::parallel
