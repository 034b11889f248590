#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// @file
/// What files and folders of checkpoints are called.

namespace lockstep::checkpoint {

inline constexpr std::string_view step_prefix = "step-";
/// Folders that are no checkpoints yet, or none any more, begin with these.
inline constexpr std::string_view saving_prefix = ".saving-", old_prefix = ".old-",
                                  deleting_prefix = ".deleting-";
inline constexpr std::string_view manifest_name = "manifest.json", state_name = "state.json",
                                  latest_name = "latest", verification_name = "verification",
                                  lock_name = ".lock", index_suffix = ".safetensors.index.json";

/// "step-1000"
inline std::string name_of_step(std::int64_t step) {
  return std::string(step_prefix) + std::to_string(step);
}

/// The reverse, of nothing else.
inline std::optional<std::int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(step_prefix)) return std::nullopt;
  const std::string_view digits = name.substr(step_prefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || name_of_step(step) != name || step < 0) return std::nullopt;
  return step;
}

}  // namespace lockstep::checkpoint
