#pragma once

#include <cstdint>
#include <optional>
#include <vector>

/// @file
/// Tokens with which texts begin and end.

namespace lockstep::io {

/// What a config.json says of them, which no model here computes with: who generates texts from a
/// model that was saved needs it. Several tokens may each end a text; none is `null`; where nothing
/// is said, programs go by defaults of their own.
struct SpecialTokens {
  std::optional<std::vector<std::int64_t>> begin = {};  ///< `bos_token_id`
  std::optional<std::vector<std::int64_t>> end = {};    ///< `eos_token_id`
  friend bool operator==(const SpecialTokens&, const SpecialTokens&) = default;
};

}  // namespace lockstep::io
