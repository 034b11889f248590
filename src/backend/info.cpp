#include "backend/info.hpp"

#include "backend/backend.hpp"
#include "cpu/loops.hpp"
#include "cpu/tile_registers.hpp"
#include "lockstep/backend/info.hpp"

namespace lockstep::backend {
namespace {

std::vector<std::string> machine_extensions() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
#define LOCKSTEP_EXTENSION(name) \
  if (__builtin_cpu_supports(name)) found.emplace_back(name)
  LOCKSTEP_EXTENSION("sse4.2");
  LOCKSTEP_EXTENSION("avx");
  LOCKSTEP_EXTENSION("fma");
  LOCKSTEP_EXTENSION("avx2");
  LOCKSTEP_EXTENSION("avx512f");
  LOCKSTEP_EXTENSION("avx512bw");
  LOCKSTEP_EXTENSION("avx512vl");
  LOCKSTEP_EXTENSION("avx512vnni");
  LOCKSTEP_EXTENSION("avx512bf16");
#undef LOCKSTEP_EXTENSION
#endif
  if (cpu_kernels::machine_has_tile_registers()) found.emplace_back("amx-bf16");
  return found;
}

}  // namespace

std::vector<Component> components() {
  std::vector<Component> found;
  for (const auto& [name, version] :
       {Component{"oneDNN", onednn_version()}, Component{"cuBLASLt", cublaslt_version()},
        Component{"cuDNN", cudnn_version()}})
    if (!version.empty()) found.push_back({name, version});
  return found;
}

CpuInstructions cpu_instructions() {
  CpuInstructions result{{}, cpu_kernels::isa_name(), machine_extensions()};
  for (const char* level : cpu_kernels::compiled_isas()) result.compiled.emplace_back(level);
  return result;
}

std::vector<HalfPrecision> cpu_half_precision() {
  const std::string converted = "16 bits in memory, f32 inside, in every op";
  const bool library = of(Device(DeviceType::cpu)).name != cpu().name;
  const std::string in_tiles =
      "products and attention by tile registers (AMX), convolutions by oneDNN";
  const std::string in_vectors =
      "products and convolutions by oneDNN, and attention, in instructions for bf16 where the "
      "machine has them, else in f32";
  const std::string& products = cpu_kernels::has_tile_registers() ? in_tiles : in_vectors;
  return {{"f16", converted},
          {"bf16", library ? products + "; f32 inside in every other op" : converted}};
}

}  // namespace lockstep::backend
