#pragma once

#include <array>
#include <cstddef>
#include <source_location>
#include <string>
#include <string_view>

/// @file
/// Where in the program something was asked for.

namespace simgpu {

/// Return addresses of a call, innermost first: cheap to take, made readable only in reports.
struct CallSite {
  static constexpr std::size_t depth = 40;
  std::array<void*, depth> frames{};
  std::size_t count = 0;

  /// The caller's stack, without the simulated GPU's own frames.
  static CallSite here();
};

/// "function (file:line)" of the innermost frame outside the simulated GPU and lockstep's lowest
/// layers, followed by some of its callers, one a line: at least as far as the first that is not
/// lockstep's. Names only where the program has no debug information.
std::string describe(const CallSite& site);

/// Which functions of a stack are looked at: all, or those that reports show, without the layers
/// that pass a call on.
enum class Frames : unsigned char { all, shown };

/// True if a function whose name contains one of the parts (separated by semicolons) is on the
/// stack. Slow.
bool is_below(const CallSite& site, std::string_view parts, Frames frames = Frames::all);

/// The demangled name of a function, such as a kernel; its address where nothing is known.
std::string function_name(const void* function);

}  // namespace simgpu
