#include "support/mixed_precision.hpp"

namespace examples {

void add_amp_option(CLI::App& app, std::string& amp) {
  app.add_option("--amp", amp,
                 "Mixed precision: none, or products in bf16 or f16 (parameters stay f32)")
      ->check(CLI::IsMember({"none", "bf16", "f16"}));
}

void add_capture_option(CLI::App& app, bool& capture) {
  app.add_flag("--capture", capture,
               "Capture the step once, and replay it: on a GPU as one launch");
}

std::optional<lockstep::DType> autocast(const std::string& amp) {
  using lockstep::DType;
  if (amp == "none") return std::nullopt;
  return amp == "f16" ? DType::f16 : DType::bf16;
}

lockstep::amp::GradScaler make_scaler(const std::string& amp, lockstep::CommunicatorPtr shards) {
  return lockstep::amp::GradScaler({.enabled = amp == "f16", .group = std::move(shards)});
}

}  // namespace examples
