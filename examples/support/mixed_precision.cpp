#include "support/mixed_precision.hpp"

namespace examples {

void add_amp_option(CLI::App& app, std::string& amp) {
  app.add_option("--amp", amp,
                 "Mixed precision: none, or products in bf16 or f16 (parameters stay f32)")
      ->check(CLI::IsMember({"none", "bf16", "f16"}));
}

lockstep::amp::Autocast autocast(const std::string& amp) {
  using lockstep::DType;
  return lockstep::amp::Autocast(amp == "f16" ? DType::f16 : DType::bf16,
                                 {.enabled = amp != "none"});
}

lockstep::amp::GradScaler make_scaler(const std::string& amp, lockstep::CommunicatorPtr shards) {
  return lockstep::amp::GradScaler({.enabled = amp == "f16", .group = std::move(shards)});
}

}  // namespace examples
