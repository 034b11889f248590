#pragma once

#include <cstdint>
#include <span>

/// @file
/// Of which samples an exception is.

namespace lockstep::data {

/// Notes of the exception that is being handled, whatever its type, which samples it has kept from
/// being a batch: where it ends the job, that is told.
void note_failed_samples(std::span<const std::int64_t> indices, std::uint64_t epoch) noexcept;

}  // namespace lockstep::data
