#pragma once

#include <cstddef>

/// @file
/// Pinned memory that a queued operation uses is closed to the host, page by page, until the host
/// has synchronised with that operation. Where the platform cannot do that, these do nothing.

namespace simgpu {

/// Closes the pinned pages of a range: the engine calls it for each access of an operation that is
/// queued.
void close_to_host(const void* data, std::size_t bytes);

/// Opens closed pages with which the host is up to date: the engine calls it after each call with
/// which the host waits (streams, events, device) or learns that something is done (queries), so
/// that system calls may use the memory too. A page that is touched before is opened, or reported,
/// when it faults.
void open_ordered_pages();

}  // namespace simgpu
