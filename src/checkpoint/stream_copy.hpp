#pragma once

#include <cstddef>
#include <span>

/// @file
/// Copies of much memory.

namespace lockstep::checkpoint {

/// As memcpy, for bytes that nobody reads soon: past the caches, which keep what training has
/// there, and from several pages at once. memcpy does so of hundreds of megabytes alone; of a few
/// it takes half as long again. What was copied is seen by whoever synchronizes with the caller.
/// @param from as many bytes as `to` has.
void stream_copy(std::span<std::byte> to, const std::byte* from) noexcept;

}  // namespace lockstep::checkpoint
