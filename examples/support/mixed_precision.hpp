#pragma once

#include <string>

#include <lockstep/amp/autocast.hpp>
#include <lockstep/amp/grad_scaler.hpp>

#include "support/command_line.hpp"

/// @file
/// The option --amp.

namespace examples {

/// Adds --amp, the dtype of products under autocast: none, bf16 or f16.
void add_amp_option(CLI::App& app, std::string& amp);

/// The scope of a forward as --amp asks for it.
lockstep::amp::Autocast autocast(const std::string& amp);

/// The scaler of the loss. Only f16 needs one: else everything passes it unchanged.
/// @param shards the ranks that share the gradients out, or null.
lockstep::amp::GradScaler make_scaler(const std::string& amp,
                                      lockstep::CommunicatorPtr shards = nullptr);

}  // namespace examples
