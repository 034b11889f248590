#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/nn/module.hpp"

/// @file
/// Low-rank adapters (LoRA, Hu et al. 2021): fine-tuning a model that exists by a few parameters.

namespace lockstep::nn {

/// Options of add_lora. The defaults are those of Hugging Face's peft.
struct LoraOptions {
  /// Which linear layers get an adapter: the last parts of their names, such as "q_proj" or
  /// "self_attn.q_proj".
  std::vector<std::string> targets = {};
  std::int64_t rank = 8;
  double alpha = 8;    ///< what an adapter gives counts alpha / rank
  double dropout = 0;  ///< of what an adapter is given, in training
};

/// Puts an adapter beside linear layers of a model and freezes all parameters but adapters':
/// y = layer(x) + alpha / rank * B A dropout(x). A starts as the weight of nn::Linear does, from
/// the calling thread's generator, and B at 0, so the model gives what it gave. They are on the
/// layer's device, in its dtype, or in f32 for one of 16 bits, and are its children:
/// "q_proj.lora_A.weight" [rank, in] and "q_proj.lora_B.weight" [out, rank].
///
/// Load the model's own weights before, and make optimizers and wrappers behind it. Where a model
/// has one layer in several places, these have one adapter.
/// @return how many layers have got an adapter.
/// @throws InvalidArgument, and changes nothing, for targets that no linear layer has (with the
/// names that there are), a layer that has an adapter, a wrapped model, a rank below 1, an
/// alpha that is no number, or a dropout outside [0, 1].
std::int64_t add_lora(Module& model, const LoraOptions& options);

/// Whether a model has adapters.
bool has_lora(const Module& model);

/// The adapters' parameters alone, detached and sharing memory, to save; `load_state_dict(state,
/// false)` of a model with the same adapters loads them. The names are peft's without its
/// "base_model.model.".
NamedTensors lora_state_dict(Module& model);

/// The state of the model without adapters, their products added to the weights: a model of the
/// class that has none loads it, and gives what this one gives in evaluation, but for rounding.
/// @throws InvalidArgument for an adapter of a layer whose weight another module has too.
NamedTensors merged_state_dict(Module& model);

}  // namespace lockstep::nn
