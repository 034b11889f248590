#pragma once

#include <cstddef>

#include "base/call_site.hpp"

/// @file
/// Pinned memory that a queued operation uses is closed to the host, page by page, until the host
/// has synchronised with that operation. Where the platform cannot do that, these do nothing.

namespace simgpu {

/// What the engine knows of the order between the host and the device.
struct HostOrder {
  /// True if the host has synchronised with every operation that uses the memory, so that no access
  /// of the host could be a race.
  bool (*is_up_to_date)(const void* data, std::size_t bytes) = nullptr;
  /// Checks an access of the host against the work that nothing made the host wait for.
  void (*access)(const void* data, std::size_t bytes, bool writes, const CallSite& site) = nullptr;
};

/// The engine says it before it closes the first page.
void set_host_order(const HostOrder& order);

/// Closes the pinned pages of a range: the engine calls it for each access of an operation that is
/// queued.
void close_to_host(const void* data, std::size_t bytes);

/// Opens closed pages with which the host is up to date: the engine calls it after each call with
/// which the host waits (streams, events, device) or learns that something is done (queries), so
/// that system calls may use the memory too. A page that is touched before is opened, or reported,
/// when it faults.
void open_ordered_pages();

}  // namespace simgpu
