#pragma once

#include <span>

#include "comm/operation.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::comm {

/// What comes on `later` from now on waits for what is on `earlier` now.
inline void order_after(StreamRef earlier, StreamRef later) {
  Event end(earlier.device);
  end.record(earlier);
  end.wait(later);
}

/// The same after all streams on which operations were called: the current one, and those of a
/// batch, which may differ.
inline void order_after_callers(std::span<const Operation> operations, StreamRef later) {
  const StreamRef current = current_stream(later.device);
  order_after(current, later);
  StreamRef last = current;
  for (const Operation& operation : operations) {
    if (!operation.stream || *operation.stream == last) continue;
    last = *operation.stream;
    order_after(last, later);
  }
}

/// As `order_after` for a group that failed: an aborted kernel may touch its memory until it ends,
/// and the caller gives that memory back.
inline void try_order_after(StreamRef earlier, StreamRef later) noexcept {
  try {
    order_after(earlier, later);
  } catch (...) {
    // The device has failed: nothing runs on it any more.
  }
}

}  // namespace lockstep::comm
