#pragma once

#include <string>

#include <lockstep/amp/autocast.hpp>

#include "support/command_line.hpp"

/// @file
/// The option --amp.

namespace examples {

/// Adds --amp, the dtype of products under autocast: none or bf16. f16 is refused with a reason.
void add_amp_option(CLI::App& app, std::string& amp);

/// The scope of a forward as --amp asks for it.
lockstep::amp::Autocast autocast(const std::string& amp);

}  // namespace examples
