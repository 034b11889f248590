#include "support/mixed_precision.hpp"

namespace examples {

void add_amp_option(CLI::App& app, std::string& amp) {
  const auto check = [](const std::string& given) -> std::string {
    if (given == "none" || given == "bf16") return {};
    if (given == "f16")
      return "f16 needs a gradient scaler, which this program does not use; bf16 does without";
    return "must be none or bf16, not " + given;
  };
  app.add_option("--amp", amp, "Mixed precision: none, or products in bf16 (parameters stay f32)")
      ->check(CLI::Validator(check, "none|bf16"));
}

lockstep::amp::Autocast autocast(const std::string& amp) {
  return lockstep::amp::Autocast(lockstep::DType::bf16, {.enabled = amp == "bf16"});
}

}  // namespace examples
