#pragma once

#include <string_view>

/// @file
/// Turns planted faults on: the copies of lockstep's own files that planted.cmake makes ask here.

namespace planted {

/// The fault of this process from now on. Before there are other threads.
void plant(std::string_view fault);

/// True if this is the fault that was planted, and is not held back. Any thread.
bool is_planted(std::string_view fault) noexcept;

/// Holds the fault back, or lets it show again: for faults that would spoil the preparations
/// already.
void hold_back(bool hold) noexcept;

}  // namespace planted
