#pragma once

#include <filesystem>

#include "lockstep/core/error.hpp"
#include "lockstep/nn/module.hpp"

namespace lockstep::models {

/// `model.load_state_dict(state)`. @param path where the state was read, for the message.
/// @throws InvalidArgument as that does, naming the path.
inline void load_state_of_file(nn::Module& model, const NamedTensors& state,
                               const std::filesystem::path& path) try {
  model.load_state_dict(state);
} catch (const InvalidArgument& misfit) {
  LOCKSTEP_THROW(InvalidArgument, path.string(), " does not fit its config.json: ", misfit.what());
}

}  // namespace lockstep::models
