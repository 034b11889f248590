#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/optim/adam.hpp"
#include "parallel/one_rank_alone.hpp"

/// @file
/// Training in which one rank's updates may differ.

namespace lockstep::parallel::testing {

using Update = std::function<void(optim::AdamW&, int rank, int step)>;

/// Trains with an optimizer; the step of one rank may differ.
inline void train(Communicator& group, const Update& update) {
  Replica replica(make_net(1), share(group));
  optim::AdamW optimizer(replica.parameters(), {.lr = 0.25});
  for (int step = 1; step <= 4; ++step) {
    const Batch batch = Batch::of_step(step).part(group.rank(), group.size());
    loss_of(replica(batch.x), batch).backward();
    update(optimizer, group.rank(), step);
    optimizer.zero_grad();
  }
}

/// The same, which must fail. Returns the messages of both ranks.
inline std::vector<std::string> train_with(const Update& update) {
  return messages_of_ranks([&](Communicator& group) { train(group, update); });
}

}  // namespace lockstep::parallel::testing
