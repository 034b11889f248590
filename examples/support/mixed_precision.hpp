#pragma once

#include <optional>
#include <string>

#include <lockstep/amp/grad_scaler.hpp>
#include <lockstep/core/dtype.hpp>

#include "support/command_line.hpp"

/// @file
/// The options --amp and --capture.

namespace examples {

/// Adds --amp, the dtype of products under autocast: none, bf16 or f16.
void add_amp_option(CLI::App& app, std::string& amp);
/// Adds --capture: steps are captured, and replayed as one launch.
void add_capture_option(CLI::App& app, bool& capture);

/// The dtype of products; nothing for none.
std::optional<lockstep::DType> autocast(const std::string& amp);

/// The scaler of the loss. Only f16 needs one: else everything passes it unchanged.
/// @param shards the ranks that share the gradients out, or null.
lockstep::amp::GradScaler make_scaler(const std::string& amp,
                                      lockstep::CommunicatorPtr shards = nullptr);

}  // namespace examples
