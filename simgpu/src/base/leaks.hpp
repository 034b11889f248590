#pragma once

#include <string>

#include "base/call_site.hpp"

/// @file
/// Objects that the program never destroyed, by the place where it made them.

namespace simgpu {

/// An object with a destroy call was made. `kind` is a literal: "stream", "event", "allocation".
void object_created(const char* kind, const void* object, std::string detail = {});
/// It was destroyed. Objects that are not known are ignored.
void object_destroyed(const char* kind, const void* object);

/// Objects made from now on, by any thread, are kept on purpose until the count falls to zero
/// again: simgpu::KeepObjects of the public header.
void begin_keeping();
void end_keeping();
/// All objects that live now are kept on purpose.
void keep_live_objects();

/// Reports the objects that live and are not kept, one finding a creation site.
/// @return how many objects.
std::size_t report_leaks();

}  // namespace simgpu
