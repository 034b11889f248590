#pragma once

#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::autograd {

/// Puts "in PATH: " before the message of the error that is being handled, unless that was done
/// further in, or the path is empty.
void name_place(Error& error, const std::string& path);

}  // namespace lockstep::autograd
