#pragma once

#include <filesystem>

#include "lockstep/core/error.hpp"
#include "lockstep/nn/init.hpp"
#include "lockstep/nn/module.hpp"

namespace lockstep::models {

/// True for one file of weights, where other paths are folders.
inline bool is_file_of_model(const std::filesystem::path& path) {
  return path.extension() == ".safetensors" && !std::filesystem::is_directory(path);
}

/// Makes a model whose state is loaded next: nothing is drawn for it.
template <class Make>
auto without_initial_values(Make make) {
  const nn::init::NoInitGuard no_values;
  return make();
}

/// `model.load_state_dict(state)`. @param path where the state was read, for the message.
/// @throws InvalidArgument as that does, naming the path.
inline void load_state_of_file(nn::Module& model, const NamedTensors& state,
                               const std::filesystem::path& path) try {
  model.load_state_dict(state);
} catch (const InvalidArgument& misfit) {
  LOCKSTEP_THROW(InvalidArgument, path.string(), " does not fit its config.json: ", misfit.what());
}

}  // namespace lockstep::models
