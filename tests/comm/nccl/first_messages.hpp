#pragma once

#include "lockstep/comm/session.hpp"

/// @file
/// Jobs in which ranks come to their first messages, before which NCCL connects them on the host.

namespace lockstep::testing {

/// Rank 0 sends to rank 1, which fails.
int fail_before_first_message(Session& session);
/// Rank 0 begins a batch with rank 1, which has left, and rank 2, which does something else.
int leave_before_first_batch(Session& session);
/// Rank 0 waits for a second message of rank 1, which has left.
int leave_after_first_message(Session& session);
/// Rank 0 sends to rank 1, which does something else.
int ignore_first_message(Session& session);
/// Ranks 0 and 1 begin to exchange messages in two groups, each on a thread of its own; in a third
/// one a thread of rank 0 waits meanwhile.
int begin_on_threads(Session& session);
/// The ranks exchange messages in a captured step, and never before it is captured.
int begin_in_captured_step(Session& session);

}  // namespace lockstep::testing
