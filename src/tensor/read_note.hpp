#pragma once

#include <string_view>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// What a step reads that is about to be captured.

namespace lockstep {

/// Called for what is read while thread_modes.noting_reads is on, which a StepGraph switches on:
/// tells it, so that no launch reads what is gone by then. @param reader for whoever is told of it
void note_read(const Tensor& tensor, std::string_view reader);

}  // namespace lockstep
