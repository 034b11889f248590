#pragma once

#include <span>
#include <string_view>
#include <vector>

/// @file
/// The faults that the simulated GPU must find.

namespace planted {

/// The kind of a fault that lockstep itself refuses, before anything runs on the device.
inline constexpr std::string_view refusal = "refusal";

/// A fault, and the program that has it.
struct Fault {
  std::string_view name;
  std::string_view what;
  /// The word that the report must start with, or `refusal`.
  std::string_view kind;
  /// What one report, or the refusal, must name, all of it: functions, kernels, files, streams,
  /// memory. "a|b" is either.
  std::vector<std::string_view> places;
  /// Runs the program: right, unless the fault was planted (switch.hpp).
  void (*run)() = nullptr;
};

/// All of them, in the order of the table.
std::span<const Fault> faults();

/// @return null if there is none of that name.
const Fault* find_fault(std::string_view name);

}  // namespace planted
